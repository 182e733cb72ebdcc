"""What `syno data` prints: the data, the network, which shares of its costs operators can reach, and what was tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syno.config import Experiment
from syno.stages.data import DataRecord

MOST_NAMES = 8  # of layers in one line; data.json has all of them
UNLIMITED = 1e6  # a share above this is no bound that anybody gave


def data_text(experiment: Experiment, record: DataRecord) -> str:
    """The lines on an experiment whose record was just made by `syno.stages.data.prepare`."""
    return "".join(f"{line}\n" for line in _lines(experiment, record))


def _lines(experiment: Experiment, record: DataRecord) -> Iterable[str]:
    counts = f"{record.data}: {record.train_images} + {record.test_images}"
    if record.image_shape is None:
        samples = f"sequences of {record.length} tokens, {record.classes} different ones"
    else:
        samples = f"pictures of {' x '.join(map(str, record.image_shape))}, {record.classes} classes"
    yield (
        f"{counts} {samples}; "
        f"{record.model}: {len(record.layers)} layers to replace, {record.flops:,.0f} FLOPs, {record.parameters:,} parameters"
    )
    yield f"layers to replace: {_names(record.layers)}"
    if record.layers_that_stay:
        reasons = _by_reason(record.layers_that_stay).items()
        yield f"not replaced: {'; '.join(f'{_names(names)} ({reason})' for reason, names in reasons)}"
    if record.layers_with_bias:
        yield f"the bias of these layers is dropped, since operators have none: {_names(record.layers_with_bias)}"
    assert record.rest_flops is not None and record.rest_parameters is not None  # only old records have none
    flops, parameters = record.rest_flops / record.flops, record.rest_parameters / record.parameters
    yield (
        f"reachable: more than {flops:.1%} of the FLOPs ({record.rest_flops:,.0f}) and {parameters:.1%} of the parameters "
        f"({record.rest_parameters:,}), which the rest of the network has; the original is 100%"
    )
    if experiment.searches:
        yield f"budget of the search: {_budget(experiment)}"
    yield f"one step of training and one of testing work on {experiment.network.settings.training.device}"


def _budget(experiment: Experiment) -> str:
    budget, original = experiment.operator_spec.budget, experiment.network.original
    return ", ".join(
        (
            _bounds("FLOPs", budget.least_flops, budget.most_flops, budget.rest_flops, original.flops),
            _bounds("parameters", budget.least_parameters, budget.most_parameters, budget.rest_parameters, original.parameters),
        )
    )


def _bounds(what: str, least: float, most: float, rest: float, original: float) -> str:
    """The shares of the original that a search accepts."""
    low = f"at least {least / original:.1%}" if least > rest else f"more than {rest / original:.1%}"
    high = "" if most / original > UNLIMITED else f" and at most {most / original:.1%}"
    return f"{low}{high} of the {what}"


def _by_reason(layers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The names of the layers for each reason."""
    return {reason: tuple(name for name, why in layers.items() if why == reason) for reason in dict.fromkeys(layers.values())}


def _names(layers: tuple[str, ...]) -> str:
    more = len(layers) - MOST_NAMES
    return ", ".join(layers) if more <= 0 else f"{', '.join(layers[:MOST_NAMES])} and {more} more"
