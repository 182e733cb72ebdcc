"""Canonicalization rules on symmetries: channels have no order, and pictures may be rolled or mirrored.

A permutation of channels is absorbed by adjacent weights. Bottom-up (U1 to U3) the output's channels and every sum are
unordered; top-down (U4 to U7) the input's channels are. The rules on pictures (S1, S2) are off unless asked for.

Source: the published system; the paper names channels' order in section 5.3. Of the 33 operators that the authors published, 29
have Shifts, most of them of whole axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from syno.ir.dim import Dim, Operation, output_axis
from syno.ir.graph import PGraph
from syno.ir.primitives import MERGE, SHARE, SHIFT, SPLIT, UNFOLD
from syno.ir.rewriting import normal_form
from syno.ir.structure import Rebuilt
from syno.space.facts import Origin
from syno.space.rules.table import REST, Predicate, Rest, rule
from syno.space.spec import OperatorSpec
from syno.space.steps import FINALIZE, CandidateStep

Mirror = tuple[tuple[int, int], tuple[int, int]]  # axes of the output, axes of the input


def rolled_axes(spec: OperatorSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the output and input axes along which operators may be rotated as a whole: ordered and not bound."""
    fixed_output = {axis for axis, _ in spec.bound_axes} | spec.unordered_output
    fixed_input = {axis for _, axis in spec.bound_axes} | spec.unordered_input
    return (
        tuple(axis for axis in range(len(spec.output_sizes)) if axis not in fixed_output),
        tuple(axis for axis in range(len(spec.input_sizes)) if axis not in fixed_input),
    )


def mirrors(spec: OperatorSpec) -> Iterator[Mirror]:
    """Yield pairs of ordered axes of equal size, in the output and in the input, such as height and width."""
    output, input_axes = rolled_axes(spec)
    for i, a in enumerate(output):
        for b in output[i + 1 :]:
            same = [axis for axis in input_axes if spec.input_sizes[axis] is spec.output_sizes[a]]
            if spec.output_sizes[a] is spec.output_sizes[b] and len(same) == 2:
                yield (a, b), (same[0], same[1])


def mirrored(graph: PGraph, mirror: Mirror) -> PGraph:
    """Return the operator with two axes of the output and two of the input exchanged."""
    (a, b), (c, d) = mirror
    new = {graph.output[a]: output_axis(b, graph.output[b].size), graph.output[b]: output_axis(a, graph.output[a].size)}
    axes = list(graph.input)
    axes[c], axes[d] = axes[d], axes[c]
    return graph.mapped(Rebuilt(new), input=axes)


@rule(
    "S1",
    FINALIZE,
    "a Shift of a whole axis of the input",
    "it rotates the whole output by one position; only the padding under a window differs",
    exact=False,
    source="published operators",
    on=False,
)
def _(step: CandidateStep) -> bool:
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
    "height and width are exchanged in the input and in the output: one of the two operators is enough",
    exact=True,
    source="published operators",
    on=False,
)
def _(step: CandidateStep) -> bool:
    graph = step.state.assembled(step.spec, step.dims)
    name = normal_form(graph).id
    return any(normal_form(mirrored(graph, mirror)).id < name for mirror in mirrors(step.spec))


@rule("U1", SHIFT, "Shift of channels", "a permutation of channels", exact=True)
def _(step: CandidateStep) -> bool:
    return step.of().scope is not None


@rule("U2", MERGE, "Merge of channels into descending factors", "the factors may have any order: they ascend", exact=True)
def _(step: CandidateStep) -> bool:
    facts, dim = step.of(), step.dims[0]
    if facts.scope is None:
        return False
    quotient = dim.size / step.block
    if not quotient <= step.block:
        return True
    if facts.origin is not Origin.REMAINDER:
        return False
    assert dim.operation is not None
    return not dim.operation.tops[0].size <= quotient


@rule("U3", SPLIT, "Split of pieces of the same channels", "a channel shuffle", exact=True)
def _(step: CandidateStep) -> bool:
    left, right = step.of(0), step.of(1)
    return left.scope is not None and left.scope is right.scope and left.base is right.base


@dataclass(frozen=True)
class Channels:
    """Facts about the order of a dim's elements, derived from the input's and weights' axes downwards.

    Attributes:
        unordered: whether its elements have no order.
        axis: the unordered axis of which the dim is made, if any.
        piece_of: the Split of which the dim is a piece, if any.
        is_mixed: whether the piece is joined with dims that are no pieces.
    """

    unordered: bool
    axis: Dim | None = None
    piece_of: Operation | None = None
    is_mixed: bool = False


ORDERED = Channels(False)
FREE = Channels(True)


def violations(tops: Mapping[Dim, Channels]) -> set[str]:
    """Return the rules among U4 to U7 that the operations below break; "U6p" for an inexact break of U6.

    Args:
        tops: facts about the dims at the top. Other dims are ORDERED, weight sides are FREE.
    """
    broken: set[str] = set()
    known = dict(tops)
    reductions_of: dict[Operation, int] = {}
    for operation in _top_down(known):
        above = [known.get(dim, FREE if dim.is_weight_side else ORDERED) for dim in operation.tops]
        if operation.primitive is SPLIT:
            below = _through_split(operation, above[0], broken)
        elif operation.primitive in (MERGE, SHARE):
            below = [_through_merge(above, broken)]
            if operation.primitive is SHARE:  # a weight tells the pieces apart
                below = [Channels(below[0].unordered, below[0].axis)]
        elif not operation.bottoms:
            source = above[0].piece_of
            if source is not None and not above[0].is_mixed:
                reductions_of[source] = reductions_of.get(source, 0) + 1
                if reductions_of[source] > 1:
                    broken.add("U7")
            continue
        else:
            if operation.primitive is SHIFT and above[0].unordered:
                broken.add("U4")
            below = [Channels(above[0].unordered, above[0].axis)] * len(operation.bottoms)
        known.update(zip(operation.bottoms, below, strict=True))
    return broken


def _top_down(tops: Mapping[Dim, Channels]) -> list[Operation]:
    """Return all operations below the dims, each after those above it."""
    order: dict[Operation, None] = {}

    def visit(operation: Operation | None) -> None:
        if operation is None or operation in order:
            return
        for bottom in operation.bottoms:
            visit(bottom.operation)
        order[operation] = None

    for dim in tops:
        visit(dim.operation)
    return list(reversed(order))


def _through_split(operation: Operation, above: Channels, broken: set[str]) -> list[Channels]:
    if not above.unordered:
        return [ORDERED, ORDERED]
    major, minor = operation.bottoms
    below = minor.operation
    outermost = below.bottoms[0] if below is not None and below.primitive is SPLIT else minor
    if outermost.size < major.size:
        broken.add("U5")
    return [Channels(True, above.axis, above.piece_of or operation, above.is_mixed)] * 2


def _through_merge(above: list[Channels], broken: set[str]) -> Channels:
    sources = {channels.piece_of for channels in above if channels.piece_of is not None}
    if len(above) == 2 and above[0].piece_of is not None and above[0].piece_of is above[1].piece_of:
        broken.add("U6" + REST * any(channels.is_mixed for channels in above))
    axes = {channels.axis for channels in above if channels.axis is not None}
    if len(axes) > 1 or len(sources) > 1 or not all(channels.unordered for channels in above):
        return ORDERED
    is_mixed = any(channels.is_mixed or channels.piece_of is None for channels in above)
    return Channels(True, next(iter(axes), None), next(iter(sources), None), is_mixed)


def _breaks(*names: str) -> Predicate:
    """Return a predicate of a step: whether the complete operator breaks one of the rules with these names."""

    def rejects(step: CandidateStep) -> bool:
        unordered = {dim for axis, dim in enumerate(step.dims) if axis in step.spec.unordered_input}
        tops = {dim: Channels(True, dim) if dim in unordered else ORDERED for dim in step.dims}
        tops |= {dim: FREE for dim in (*step.state.live, *step.state.expansions) if dim not in tops}
        return not violations(tops).isdisjoint(names)

    return rejects


rule("U4", FINALIZE, "Shift of the input's channels", "a permutation of channels", exact=True)(_breaks("U4"))

rule(
    "U5",
    FINALIZE,
    "Split of the input's channels into descending factors",
    "the factors may have any order: they ascend",
    exact=True,
)(_breaks("U5"))

rule(
    "U6",
    FINALIZE,
    "pieces of the input's channels joined again",
    "a channel shuffle",
    exact=True,
    rest=Rest(
        _breaks("U6"),
        "pieces of the input's channels joined again with others between",
        "a channel shuffle, except for the pieces between",
    ),
)(_breaks("U6", "U6" + REST))

rule("U7", FINALIZE, "two sums over pieces of the input's channels", "one sum over both", exact=True)(_breaks("U7"))
