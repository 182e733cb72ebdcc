"""The settings of a study: stored with it, so that all its workers have the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syno.errors import SpecError
from syno.search.policies import Policy, Proposal
from syno.search.reward import Reward
from syno.search.storage import TrialStore

ATTRIBUTE = "syno"  # the study's attribute that holds them
FORMAT = 1
ABSENT = object()


def study_settings(
    space_id: str, policy: Policy, reward: Reward, warm_start: Sequence[Proposal], most_attempts: int
) -> dict[str, Any]:
    """Everything that the trials of a study depend on, as JSON."""
    return {
        "format": FORMAT,
        "space": space_id,
        "policy": {"name": policy.name, **policy.settings.model_dump(mode="json")},
        "seed": policy.seed,
        "reward": reward.settings(),
        "warm_start": [proposal.fingerprint for proposal in warm_start],
        "most_attempts": most_attempts,
    }


def agree(store: TrialStore, given: dict[str, Any], place: str) -> None:
    """Give a new study its settings; see whether one that is there has these.

    Raises SpecError that says which differ.
    """
    stored = store.attributes.get(ATTRIBUTE)
    if stored is None:
        store.describe(ATTRIBUTE, given)
        stored = store.attributes[ATTRIBUTE]  # another worker may have come first
    found = differences(stored, given)
    if found:
        raise SpecError(
            f'study "{store.study.study_name}" in {place} has other settings: {"; ".join(found)}. '
            "Give those it has to go on with it, or another name to begin a new one"
        )


def differences(stored: object, given: object, name: str = "") -> list[str]:
    """Where two settings differ, in words. Of two policies or rewards with different names, only the names."""
    if stored == given:
        return []
    if not isinstance(stored, dict) or not isinstance(given, dict):
        return [f"{name} is {_shown(stored)} there, {_shown(given)} here"]
    keys = list(dict.fromkeys([*stored, *given]))
    if stored.get("name") != given.get("name"):
        keys = ["name"]
    parts = (differences(stored.get(key, ABSENT), given.get(key, ABSENT), f"{name}.{key}" if name else key) for key in keys)
    return [difference for some in parts for difference in some]


def _shown(value: object) -> str:
    return "absent" if value is ABSENT else repr(value)
