"""Rules on symmetries of pictures: shifting a whole axis, exchanging height and width. Off unless asked for.

Source: of the 33 operators that the authors published, 29 have Shifts, most of them of this kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from syno.ir.dim import Dim, output_axis
from syno.ir.graph import PGraph
from syno.ir.primitives import SHIFT, UNFOLD
from syno.ir.rewriting import normal_form
from syno.ir.structure import Rebuilt
from syno.space.assemble import assemble
from syno.space.rules.table import FINALIZE, Candidate, rule
from syno.space.spec import OperatorSpec

Mirror = tuple[tuple[int, int], tuple[int, int]]  # axes of the output, axes of the input


def rolled_axes(spec: OperatorSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes of the output and of the input that a Shift rotates as a whole: ordered ones, not bound."""
    output = {axis for axis, _ in spec.bound_axes} | spec.unordered_output
    given = {axis for _, axis in spec.bound_axes} | spec.unordered_input
    return (
        tuple(axis for axis in range(len(spec.output_sizes)) if axis not in output),
        tuple(axis for axis in range(len(spec.input_sizes)) if axis not in given),
    )


def mirrors(spec: OperatorSpec) -> Iterator[Mirror]:
    """Pairs of ordered axes of one size, in the output and in the input: height and width."""
    output, given = rolled_axes(spec)
    for i, a in enumerate(output):
        for b in output[i + 1 :]:
            same = [axis for axis in given if spec.input_sizes[axis] is spec.output_sizes[a]]
            if spec.output_sizes[a] is spec.output_sizes[b] and len(same) == 2:
                yield (a, b), (same[0], same[1])


def mirrored(graph: PGraph, mirror: Mirror) -> PGraph:
    """The operator with two axes of the output exchanged, and two of the input."""
    (a, b), (c, d) = mirror
    new = {graph.output[a]: output_axis(b, graph.output[b].size), graph.output[b]: output_axis(a, graph.output[a].size)}
    axes = list(graph.input)
    axes[c], axes[d] = axes[d], axes[c]
    return graph.mapped(Rebuilt(new), input=axes)


@rule(
    "S1",
    FINALIZE,
    "a Shift of a whole axis of the input",
    "it rolls the output by one position, for all channels alike; padding differs under a window",
    exact=False,
    source="published operators",
    on=False,
)
def _(step: Candidate) -> bool:
    return any(_rolls(step.dims[axis]) for axis in rolled_axes(step.spec)[1])


def _rolls(dim: Dim) -> bool:
    shifted = False
    while dim.operation is not None and dim.operation.primitive in (SHIFT, UNFOLD):
        shifted |= dim.operation.primitive is SHIFT
        dim = dim.operation.bottoms[0]
    return shifted and dim.is_output


@rule(
    "S2",
    FINALIZE,
    "the mirror image of an operator",
    "height and width are exchanged in the output and in the input: one of the two is enough",
    exact=True,
    source="published operators",
    on=False,
)
def _(step: Candidate) -> bool:
    graph = assemble(step.spec, step.state, step.dims)
    name = normal_form(graph).id
    return any(normal_form(mirrored(graph, mirror)).id < name for mirror in mirrors(step.spec))
