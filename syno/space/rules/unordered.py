"""Rules on channels, which have no order of their own: a permutation of them is taken up by the weights beside.

Bottom-up (U1 to U3) the output's channels and every sum are unordered; top-down (U4 to U7) the input's channels are.

Source: the published system; the paper names channels' order in section 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syno.algebra import Size
from syno.ir.dim import Dim, Operation
from syno.ir.primitives import MERGE as MERGE_ROW
from syno.ir.primitives import SHARE as SHARE_ROW
from syno.ir.primitives import SPLIT as SPLIT_ROW
from syno.space.facts import Origin
from syno.space.rules.table import REST, Rest, rule
from syno.space.steps import FINALIZE, MERGE, SHIFT, SPLIT, CandidateStep


@rule("U1", SHIFT, "Shift of channels", "a permutation of channels", exact=True)
def _(step: CandidateStep) -> bool:
    return step.of().scope is not None


@rule("U2", MERGE, "Merge of channels into descending factors", "channels are cut in any order: factors ascend", exact=True)
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


# ---- from the input down ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Channels:
    """What is known of a dim from above: whether it is unordered, of which axis, and the Split it is a piece of.

    `is_mixed` says that the piece is joined with dims that are none.
    """

    unordered: bool
    axis: Dim | None = None
    piece_of: Operation | None = None
    is_mixed: bool = False


ORDERED = Channels(False)
FREE = Channels(True)


def violations(tops: Mapping[Dim, Channels]) -> set[str]:
    """Which of U4 to U7 the operations below break; "U6p" is what U6 breaks without being exact.

    Args:
        tops: what is known of each dim at the top; others are ORDERED, but those of weights are FREE.
    """
    found: set[str] = set()
    known = dict(tops)
    reductions_of: dict[Operation, int] = {}
    for operation in _top_down(known):
        above = [known.get(dim, FREE if dim.is_weight_side else ORDERED) for dim in operation.tops]
        if operation.primitive is SPLIT_ROW:
            below = _through_split(operation, above[0], known, found)
        elif operation.primitive in (MERGE_ROW, SHARE_ROW):
            below = [_through_merge(above, found)]
            if operation.primitive is SHARE_ROW:  # a weight tells the pieces apart
                below = [Channels(below[0].unordered, below[0].axis)]
        elif not operation.bottoms:
            source = above[0].piece_of
            if source is not None and not above[0].is_mixed:
                reductions_of[source] = reductions_of.get(source, 0) + 1
                if reductions_of[source] > 1:
                    found.add("U7")
            continue
        else:
            if operation.primitive.name == "Shift" and above[0].unordered:
                found.add("U4")
            below = [Channels(above[0].unordered, above[0].axis)] * len(operation.bottoms)
        known.update(zip(operation.bottoms, below, strict=True))
    return found


def _top_down(tops: Mapping[Dim, Channels]) -> list[Operation]:
    """The operations below, each after those above it."""
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


def _through_split(operation: Operation, above: Channels, known: Mapping[Dim, Channels], found: set[str]) -> list[Channels]:
    if not above.unordered:
        return [ORDERED, ORDERED]
    major, minor = operation.bottoms
    source = above.piece_of
    if _descending(major.size, minor):
        found.add("U5")
    top = source if source is not None else operation
    return [Channels(True, above.axis, top, above.is_mixed)] * 2


def _descending(groups: Size, minor: Dim) -> bool:
    """Whether the minor's outermost factor comes before the major in the order of sizes."""
    below = minor.operation
    factor = below.bottoms[0].size if below is not None and below.primitive is SPLIT_ROW else minor.size
    return factor < groups


def _through_merge(above: list[Channels], found: set[str]) -> Channels:
    sources = {channels.piece_of for channels in above if channels.piece_of is not None}
    if len(above) == 2 and above[0].piece_of is not None and above[0].piece_of is above[1].piece_of:
        found.add("U6" + REST * any(channels.is_mixed for channels in above))
    if not all(channels.unordered for channels in above):
        return ORDERED
    axes = {channels.axis for channels in above if channels.axis is not None}
    if len(axes) > 1 or len(sources) > 1:
        return ORDERED
    is_mixed = any(channels.is_mixed or channels.piece_of is None for channels in above)
    return Channels(True, next(iter(axes), None), next(iter(sources), None), is_mixed)


@rule("U4", FINALIZE, "Shift of the input's channels", "a permutation of channels", exact=True)
def _(step: CandidateStep) -> bool:
    return "U4" in final_violations(step)


@rule(
    "U5",
    FINALIZE,
    "Split of the input's channels into descending factors",
    "channels are cut in any order: factors ascend",
    exact=True,
)
def _(step: CandidateStep) -> bool:
    return "U5" in final_violations(step)


@rule(
    "U6",
    FINALIZE,
    "pieces of the input's channels joined again",
    "a channel shuffle",
    exact=True,
    rest=Rest(
        lambda step: "U6" in final_violations(step),
        "pieces of the input's channels joined again with others between",
        "a channel shuffle, but for what is between",
    ),
)
def _(step: CandidateStep) -> bool:
    return bool({"U6", "U6" + REST} & final_violations(step))


@rule("U7", FINALIZE, "two sums over pieces of the input's channels", "one sum over both", exact=True)
def _(step: CandidateStep) -> bool:
    return "U7" in final_violations(step)


def final_violations(step: CandidateStep) -> set[str]:
    """Which of U4 to U7 a complete operator breaks."""
    unordered = {dim for axis, dim in enumerate(step.dims) if axis in step.spec.unordered_input}
    tops = {dim: Channels(True, dim) if dim in unordered else ORDERED for dim in step.dims}
    tops |= {dim: FREE for dim in (*step.state.live, *step.state.expansions) if dim not in tops}
    return violations(tops)
