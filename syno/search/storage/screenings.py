"""Screenings as attributes of trials: an operator that has passed its screening is not screened again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optuna.trial import FrozenTrial

from syno.search.storage.records import is_intact, with_checksum

SCREENING = "screening"  # the attribute


def screening_attribute(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return the metrics of a screening that was passed, as they are stored with a trial."""
    return with_checksum({"metrics": dict(metrics)})


def screening_metrics(trials: Iterable[FrozenTrial]) -> dict[str, float] | None:
    """Return the metrics of the screening that one of an operator's trials passed; None if none of them has passed one."""
    for trial in trials:
        stored = trial.user_attrs.get(SCREENING)
        if isinstance(stored, dict) and is_intact(stored):
            return {str(name): float(value) for name, value in stored["metrics"].items()}
    return None
