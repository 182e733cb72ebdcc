"""The values by which trials are compared at their rungs, as they are stored with running trials."""

from __future__ import annotations

from math import isfinite, nan
from typing import Any

from optuna.trial import FrozenTrial

from syno.search.halving import Step, as_step
from syno.search.storage.records import is_intact, with_checksum

PREFIX = "rung "  # of the attributes, followed by the step


def rung_key(step: Step) -> str:
    """Return the name of the attribute for a step."""
    return f"{PREFIX}{step}"


def rung_attribute(value: float) -> dict[str, Any]:
    """Return a value that trials are compared by at a rung, as it is stored with a running trial, with a checksum."""
    return with_checksum({"value": value if isfinite(value) else None})


def values_at_rungs(trial: FrozenTrial) -> dict[Step, float]:
    """Return the values that a trial is compared by, by step; NaN if it had none. Damaged ones are left out."""
    found = {key.removeprefix(PREFIX): value for key, value in trial.user_attrs.items() if key.startswith(PREFIX)}
    return {
        as_step(step): nan if stored["value"] is None else float(stored["value"])
        for step, stored in found.items()
        if isinstance(stored, dict) and is_intact(stored)
    }
