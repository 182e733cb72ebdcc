"""The latency of a network's layers on this machine, original and replaced by operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas
import torch
from pydantic import ValidationError
from torch import nn

from syno.base.core_locks import alone
from syno.base.errors import SpecError
from syno.base.files import ORIGINAL
from syno.base.validation import explained
from syno.ir.graph import PGraph
from syno.measure.latency import pinned
from syno.measure.timing import LatencySettings, stopwatch_of
from syno.measure.turns import in_turns
from syno.model.extraction import check_example, distinct_layers, trace
from syno.model.inputs import Inputs, first_inputs, len_of_batch
from syno.model.layer_rules import Where
from syno.model.substitution import substitute
from syno.run.table import LATENCY_COLUMNS

COLUMNS = (*LATENCY_COLUMNS, "layer")


def layer_latency(
    network: nn.Module,
    operators: PGraph | Sequence[PGraph],
    example: Inputs,
    *,
    where: Where = "spatial",
    **settings: Any,
) -> pandas.DataFrame:
    """Measure the layers that operators replace, in plain PyTorch on the device of the network.

    Layers of equal sizes are measured once. After a warm-up, the layer and its replacements are timed in turns, without
    gradients, on inputs of the layer's shape in the network.

    >>> import syno, torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    >>> operator = syno.OPERATORS["separable_conv2d"]()
    >>> table = syno.layer_latency(network, operator, torch.zeros(1, 3, 16, 16), least_ms=1, least_repeats=6)
    >>> table[["layer", "operator", "batch"]].values.tolist()
    [['2', 'original', 1], ['2', 'separable_conv2d', 1]]

    Args:
        network: the network; it is not changed.
        operators: one operator or several.
        example: inputs of the network, whose length is the batch size: a tensor, a tuple of arguments, or a dict of named ones.
        where: the layers; see `syno.substitute`.
        settings: options of `tune: latency` in docs/options.md, such as `threads` (1) and `least_ms` (500 for each layer).

    Returns a table with a row for each layer and operator: `layer`, `operator`, `latency_ms` with the ends of its 95 %
    interval, and `speedup` over the original layer, among others (`syno.run.values.Latency`). `syno.plot.layer_latency` draws
    it.

    Raises MisfitError if an operator does not fit a layer, SpecError for invalid settings or if there is no layer to replace.
    """
    chosen = [operators] if isinstance(operators, PGraph) else list(operators)
    if names := sorted({operator.name for operator in chosen if [other.name for other in chosen].count(operator.name) > 1}):
        raise SpecError(f'several of the operators are called "{names[0]}"; give them names by operator.renamed("...")')
    check_example(example)
    try:
        latency_settings = LatencySettings(**{**settings, "batch": len_of_batch(example)})
    except ValidationError as error:
        raise SpecError(f"layer_latency: {explained(error, LatencySettings)}") from None
    place = first_inputs(example)[0].device
    device = str(place)
    shapes = {call.name: call.input for call in trace(network, example)}
    networks = [network, *(substitute(network, operator, example, where=where) for operator in chosen)]
    rows: list[dict[str, Any]] = []
    for distinct in distinct_layers(network, example, where):
        name = distinct.layer.name
        calls = [_call(model.get_submodule(name), torch.rand(shapes[name], device=place)) for model in networks]
        with torch.no_grad(), pinned(latency_settings), alone(device):
            turns = in_turns(calls, latency_settings, stopwatch_of(device))
        for number, interval in enumerate(turns.latencies):
            operator = chosen[number - 1] if number else None
            rows.append(
                {
                    "operator": ORIGINAL if operator is None else operator.name,
                    "operator_id": None if operator is None else operator.id,
                    "role": ORIGINAL if operator is None else "found",
                    "device": device,
                    "device_name": "",
                    "compiler": "eager",
                    "status": "ok",
                    "reason": turns.unsteady,
                    "latency_ms": interval.value,
                    "latency_low_ms": interval.low,
                    "latency_high_ms": interval.high,
                    "batch": latency_settings.batch,
                    "threads": latency_settings.threads,
                    "checked": False,
                    "suspicious": False,
                    "speedup": turns.speedups[number - 1].value if number else 1.0,
                    "layer": name,
                }
            )
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def _call(module: nn.Module, inputs: torch.Tensor) -> Callable[[], object]:
    return partial(module, inputs)
