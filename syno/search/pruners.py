"""Optuna's pruners, by name: they stop an evaluation that does worse than others did at the same step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError, suggestion

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

CLASSES: Mapping[str, str] = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "threshold": "ThresholdPruner",
}


def make_pruner(settings: Mapping[str, Any]) -> BasePruner:
    """The pruner that `name` and settings mean, which are those of Optuna's class.

    SpecError for unknown names and settings; it lists those that there are.
    """
    import optuna  # half a second

    rest = dict(settings)
    name = str(rest.pop("name", ""))
    if name not in CLASSES:
        raise SpecError(f'"{name}" is no pruner; there are: {", ".join(CLASSES)}.{suggestion(name, CLASSES)}')
    kind = getattr(optuna.pruners, CLASSES[name])
    allowed = list(inspect.signature(kind).parameters)
    for key in rest:
        if key not in allowed:
            known = f"there are: {', '.join(allowed)}.{suggestion(key, allowed)}"
            raise SpecError(f'the pruner "{name}" has no setting {key}; {known}')
    try:
        pruner: BasePruner = kind(**rest)
    except (TypeError, ValueError) as error:
        raise SpecError(f'the pruner "{name}": {error}') from error
    return pruner
