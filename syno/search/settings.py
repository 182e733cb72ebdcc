"""The settings of a study, which are stored with it, so that all its workers share them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial

from syno.base.addresses import without_passwords
from syno.base.errors import SpecError
from syno.base.identity import changes, in_words
from syno.base.validation import named_differences
from syno.search.policies import Policy, Proposal
from syno.search.reward import Reward
from syno.search.storage.records import FINGERPRINT, Result, worker_of
from syno.search.storage.store import EXHAUSTED, SETTINGS, TrialStore
from syno.search.trials import is_running

FORMAT = 1
SPACE, SPEC, WORKLOAD, GOAL, REWARD, KNOWN = "space", "spec", "workload", "goal", "reward", "known"
OWN_CODE, OWN_NETWORK = "own code", "own network"  # keys of identities: see `syno.base.identity`


def study_settings(
    space_id: str,
    policy: Policy,
    reward: Reward,
    warm_start: Sequence[Proposal],
    most_attempts: int,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return all settings that the trials of a study depend on, as JSON.

    `more` has the settings of the space and the evaluation.
    """
    settings = {
        "format": FORMAT,
        SPACE: space_id,
        "policy": {"name": policy.name, **policy.settings.model_dump(mode="json")},
        "seed": policy.seed,
        REWARD: reward.settings(),
        "warm_start": [proposal.fingerprint for proposal in warm_start],
        "most_attempts": most_attempts,
        **(more or {}),
    }
    stored: dict[str, Any] = json.loads(json.dumps(settings))  # normalized as a storage returns it, with lists for tuples
    return stored


def agree(store: TrialStore, settings: dict[str, Any], place: str) -> None:
    """Store the settings of a new study, or check that an existing study has the same settings.

    If no trial has succeeded yet, the study takes the new settings, with a warning that names the differences, and its trials
    do not count. Raises SpecError with the differences if a trial has succeeded, or is being evaluated by another worker.
    """
    stored = store.attributes.get(SETTINGS)
    if stored is None:
        store.describe(SETTINGS, settings)
        stored = store.attributes[SETTINGS]  # another worker may have stored its settings first
    differing = differences(stored, settings)
    if not differing:
        return
    name, trials = store.study.study_name, _trials(store)
    if not differences(store.attributes[SETTINGS], settings):
        return  # another worker has just stored the same settings
    refused = _why_kept(trials)
    if refused:
        raise SpecError(
            f'study "{name}" in {place} has other settings: {"; ".join(differing)}. '
            f"{refused}Give those it has to go on with it, or another name to begin a new one"
        )
    numbers = [trial.number for trial in trials if FINGERPRINT in trial.user_attrs]
    if numbers:
        store.withdraw(numbers, "the study was given other settings")
    store.describe(SETTINGS, settings)
    store.describe(EXHAUSTED, None)  # exhaustion of the space under the old settings
    warnings.warn(
        f'study "{name}" in {without_passwords(place)} takes other settings, as no trial has succeeded with those it had: '
        f"{'; '.join(differing)}",
        stacklevel=4,
    )


def _trials(store: TrialStore) -> Sequence[FrozenTrial]:
    """Return all trials of the study, after ending the trials of dead workers."""
    trials = store.trials()
    running = [trial for trial in trials if is_running(trial)]
    return store.trials() if running and store.end_stale(running) else trials


def _why_kept(trials: Sequence[FrozenTrial]) -> str:
    """Return a sentence and a space: why a study with these trials cannot take other settings; "" if it can."""
    for trial in trials:
        result = Result.of(trial)
        if result is not None and result.kind in ("complete", "pruned", "paused"):
            return f"Trial {trial.number} has succeeded with those. "
        if is_running(trial) and not worker_of(trial).is_gone():
            return f"Trial {trial.number} is being evaluated with those, by {worker_of(trial)}. "
    return ""


def differences(stored: object, current: object) -> list[str]:
    """Return the differences between stored and current settings of a study, in words: names with both values.

    For policies or rewards with different names, only the names are given; for spaces, the options of their specs that differ;
    for user code and data, the parts that have changed.
    """
    there, here = _structured(stored), _structured(current)
    if there.get(WORKLOAD) != here.get(WORKLOAD):
        for settings in (there, here):  # these options follow from the network
            options = settings.get(SPEC, {})
            options.pop("layers", None)
            options["budget"] = {name: value for name, value in options.get("budget", {}).items() if "rest_" not in name}
    if there.get(SPACE) == here.get(SPACE):
        for settings in (there, here):
            settings.pop(SPEC, None)
    named = named_differences(there.get(SPEC, {}), here.get(SPEC, {}), SPEC)
    if named or there.get(WORKLOAD) != here.get(WORKLOAD):
        for settings in (there, here):
            settings.pop(SPACE, None)
    own = {name: None for part in (OWN_CODE, OWN_NETWORK) for name in changes(there.pop(part, {}), here.pop(part, {}))}
    return [*named_differences(there, here), *([in_words(own)] if own else [])]


def _structured(settings: object) -> dict[str, Any]:
    """Return a copy of settings as a mapping, in which the spec's options are copied, too; {} if they are no mapping."""
    structured = dict(settings) if isinstance(settings, dict) else {}
    if isinstance(structured.get(SPEC), dict):
        structured[SPEC] = dict(structured[SPEC])
    return structured
