"""Trials that do not count because the set-up was broken when they ran, not their operators.

The numbers of withdrawn trials are stored with the study. Who opens it afterwards reads it as if these trials were not there:
so their operators are proposed and evaluated again, in the same order, and `n_trials` is not spent on them.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syno.search.storage.records import RESULT

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from syno.search.storage.storage import TrialStore

PREFIX = "withdrawn "  # of attributes of the study, one for each decision: several workers may decide at the same moment


def withdraw(store: TrialStore, numbers: Iterable[int], reason: str) -> None:
    """Store that the trials of these numbers do not count, and why."""
    store.describe(f"{PREFIX}{uuid.uuid4().hex}", {"trials": sorted(numbers), "reason": reason})


def withdrawn(attributes: Mapping[str, Any]) -> dict[int, str]:
    """Return the numbers of the trials that do not count, each with the reason, from the attributes of a study."""
    decisions = [value for key, value in attributes.items() if key.startswith(PREFIX)]
    return {int(number): str(decision["reason"]) for decision in decisions for number in decision["trials"]}


def marked(trials: Sequence[FrozenTrial], attributes: Mapping[str, Any]) -> list[FrozenTrial]:
    """Return the trials of a study for a table: those withdrawn have the outcome "withdrawn" in place of "failed"."""
    numbers = withdrawn(attributes)
    return [_marked(trial) if trial.number in numbers else trial for trial in trials]


def _marked(trial: FrozenTrial) -> FrozenTrial:
    result = trial.user_attrs.get(RESULT)
    if not isinstance(result, dict) or result.get("kind") != "failed":
        return trial
    changed = copy.copy(trial)
    changed.user_attrs = {**trial.user_attrs, RESULT: {**result, "kind": "withdrawn"}}
    return changed
