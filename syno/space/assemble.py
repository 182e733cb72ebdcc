"""A state read as an operator."""

from __future__ import annotations

from syno.base.files import name_from
from syno.ir.dim import Dim, output_axis
from syno.ir.graph import PGraph
from syno.space.spec import OperatorSpec
from syno.space.state import State


def assemble(spec: OperatorSpec, state: State, axes: tuple[Dim, ...]) -> PGraph:
    """The operator that reads its input at `axes`, and its weights at the axes that the state has for them."""
    weights: list[list[Dim]] = [[] for _ in range(state.ends.counts.weights)]
    for dim in state.live:
        if dim.is_weight_side:
            assert dim.operation is not None and isinstance(dim.operation.parameter, int)
            weights[dim.operation.parameter - 1].append(dim)
    output = tuple(output_axis(i, size) for i, size in enumerate(spec.output_sizes))
    return PGraph(
        output, axes, tuple(map(tuple, weights)), state.expansions, name_from(spec.name), defaults=spec.table.defaults
    )
