"""Canonicalization rules on views: one primitive above another that commutes or fuses with it.

Rules whose id ends in b reject the opposite of two equal forms; they are off by default, since their opposites are on.

Paper: section 5.3, Figure 3.
"""

from __future__ import annotations

from syno.algebra import Size
from syno.ir.dim import Dim
from syno.ir.primitives import MERGE, REDUCE, SHIFT, SPLIT, STRIDE, UNFOLD, Primitive
from syno.space.facts import Origin, adjacent
from syno.space.rules.forms import (
    below_a_stride,
    below_minor,
    below_shares,
    beside_one_weight,
    cut_of_a_split,
    fused_merge,
    merged_below_split,
    neighbours_alike,
    two_sums,
)
from syno.space.rules.table import Predicate, Rest, rule
from syno.space.steps import CandidateStep

PAPER, THEIRS = "section 5.3", "published system"


def above(origin: Primitive | Origin, position: int = 0) -> Predicate:
    """Return a predicate of a step: whether its dim at `position` lies directly above this primitive."""
    return lambda step: step.facts[step.dims[position]].origin is origin


def _block_below(dim: Dim) -> Size:
    """Return the size of the Split's minor, or of the Unfold's window, directly below the dim."""
    assert dim.operation is not None
    return dim.operation.bottoms[1].size


below: Primitive | Origin
# Rules that depend only on the primitive below the first dim.
for id_, kind, below, forbids, reason, exact, source in (
    (
        "V3",
        SPLIT,
        SPLIT,
        "Split of a Split as major",
        "nested Splits re-associate: they go on the minor only",
        True,
        PAPER,
    ),
    ("V5", SHIFT, SHIFT, "Shift, then Shift", "two shifts are one shift; one position is enough", False, PAPER),
    ("V7", STRIDE, STRIDE, "Stride, then Stride", "two strides are one stride with their product", True, PAPER),
    ("V10", STRIDE, UNFOLD, "Unfold, then Stride", "the Stride goes below; the window's center differs", False, THEIRS),
    (
        "V11",
        UNFOLD,
        SPLIT,
        "Split, then Unfold",
        "B*i + j + w: the Unfold can go on the minor; only the padding differs",
        False,
        PAPER,
    ),
    ("V14", UNFOLD, SHIFT, "Shift, then Unfold", "they commute, except at the border of the axis", False, THEIRS),
    ("V18", SHIFT, REDUCE, "Shift on a reduction", "a sum does not depend on where it starts", True, PAPER),
):
    rule(id_, kind, forbids, reason, exact=exact, source=source)(above(below))

# Rules that reject the other of two equal forms, and what the dim at a position lies above.
for against, kind, forbids, exact, below, position in (
    ("V8", SPLIT, "Stride, then Split as minor", True, STRIDE, 1),
    ("V9", STRIDE, "Merge, then Stride of the remainder", True, Origin.REMAINDER, 0),
    ("V11", SPLIT, "Unfold, then Split as minor", False, UNFOLD, 1),
    ("V12", UNFOLD, "Merge, then Unfold of the remainder", False, Origin.REMAINDER, 0),
    ("V14", SHIFT, "Unfold, then Shift", False, UNFOLD, 0),
):
    other_way = f"this rejects the form that {against} keeps"
    rule(against + "b", kind, forbids, other_way, exact=exact, on=False, against=against)(above(below, position))

rule("V22", SPLIT, "Unfold, then Split as major", "the Unfold goes above the Split; padding differs", exact=False, on=False)(
    above(UNFOLD)
)

rule(
    "V1",
    MERGE,
    "Split, then Merge of a block that is a multiple of the minor, or divides it",
    "(C*i + j) div and mod B*C distribute over i: Merges go below",
    exact=True,
    source=PAPER,
    rest=Rest(
        merged_below_split,
        "Split, then any other Merge",
        "the cut runs through both pieces, or an approximate rule rejects the Merge below",
        also=cut_of_a_split,
    ),
)(above(SPLIT))

rule(
    "V2",
    MERGE,
    "Merge on a quotient",
    "nested Merges re-associate: they go on the remainder only",
    exact=True,
    source=PAPER,
    rest=Rest(
        fused_merge, "Merge on a quotient above a Shift or an Unfold", "an approximate rule rejects the larger Merge below"
    ),
)(above(Origin.QUOTIENT))


@rule(
    "V4",
    SPLIT,
    "Split of adjacent dims",
    "it undoes a Merge, or joins two sums to one",
    exact=True,
    source=PAPER,
    rest=Rest(neighbours_alike, "Split of adjacent dims that different weights have", "one weight has only one of the pieces"),
)
def _(step: CandidateStep) -> bool:
    return adjacent(step.of(0), step.of(1))


@rule(
    "V6",
    (SHIFT, MERGE),
    "Shift on a Split, or Merge on a Shift, of a large block",
    "a Shift of the minor gives the same, except at the edges of blocks",
    exact=False,
    source=PAPER,
)
def _(step: CandidateStep) -> bool:
    largest, origin = step.spec.windows.shift_pattern, step.of().origin
    if step.kind is SHIFT:
        return origin is SPLIT and step.sizes[_block_below(step.dims[0])].highest > largest
    return origin is SHIFT and step.sizes[step.block].highest > largest


rule(
    "V8",
    STRIDE,
    "Split, then Stride",
    "S*(B*i + j) = S*B*i + S*j: the Stride goes under the minor",
    exact=True,
    rest=Rest(below_minor, "Split with an Unfold as minor, then Stride", "V10 rejects the Stride under the minor"),
)(above(SPLIT))


@rule(
    "V9",
    MERGE,
    "Stride, then Merge of a block that is a multiple of it",
    "the Stride goes above the remainder",
    exact=True,
    rest=Rest(
        below_a_stride,
        "Stride, then Merge of any other larger block",
        "the cut runs between two strides, or an approximate rule rejects the Merge below",
    ),
)
def _(step: CandidateStep) -> bool:
    if step.of().origin is not STRIDE:
        return False
    operation = step.dims[0].operation
    assert operation is not None and isinstance(operation.parameter, Size)
    return step.sizes[step.block / operation.parameter].lowest >= 1


@rule(
    "V12",
    MERGE,
    "Unfold, then Merge of a block no smaller than the window",
    "(i + w - K/2) div B is nearly i div B: the Unfold goes on the remainder",
    exact=False,
    source="section 5.3, Figure 3c",
)
def _(step: CandidateStep) -> bool:
    return step.of().origin is UNFOLD and step.sizes[step.block / _block_below(step.dims[0])].lowest >= 1


@rule(
    "V13", MERGE, "Unfold, then Merge of a block that divides the window", "the window is cut by the block's tiles", exact=False
)
def _(step: CandidateStep) -> bool:
    if step.of().origin is not UNFOLD:
        return False
    facts = step.sizes[_block_below(step.dims[0]) / step.block]
    return facts.is_coefficient and any(facts.exponents)


@rule("V15", UNFOLD, "Unfold, then Unfold of a smaller window", "windows add up in any order: sizes ascend", exact=False)
def _(step: CandidateStep) -> bool:
    if step.of().origin is not UNFOLD:
        return False
    return step.sizes[step.dims[1].size / _block_below(step.dims[0])].lowest < 1


rule(
    "V16",
    (MERGE, SHIFT),
    "Share, then Merge or Shift",
    "one-to-one views commute with Share: they go below",
    exact=True,
    rest=Rest(
        below_shares,
        "Share, then a Merge or Shift that is rejected below it",
        "an approximate rule or a policy rejects it below the Share",
    ),
)(above(Origin.DATA))

rule(
    "V17",
    MERGE,
    "Merge on a reduction",
    "a sum over an axis that a Merge cuts is two sums",
    exact=True,
    source=PAPER,
    rest=Rest(two_sums, "Merge on a reduction if two sums need more occurrences", "a spec's occurrences count both sums"),
)(above(REDUCE))


@rule("V19", UNFOLD, "a reduction as a window", "a sum over an unweighted window, a box filter", exact=False, source=PAPER)
def _(step: CandidateStep) -> bool:
    window = step.of(1)
    if window.origin in (Origin.QUOTIENT, Origin.REMAINDER):  # a piece of a reduction is one as well
        return window.only_sums and not window.tags and not window.discards
    return window.origin is REDUCE


@rule("V20", UNFOLD, "Unfold of reductions", "the window only multiplies a sum by its size", exact=False, source=PAPER)
def _(step: CandidateStep) -> bool:
    return step.of(0).only_sums


@rule(
    "V21",
    SPLIT,
    "Split of two axes of one weight",
    "the weight is reshaped instead: the Split goes below its Share",
    exact=True,
    rest=Rest(
        beside_one_weight,
        "Split of two axes of one weight with other axes between",
        "the weight would also be indexed by the axes between them",
    ),
)
def _(step: CandidateStep) -> bool:
    weights = step.of(0).shared_by + step.of(1).shared_by
    return len(set(weights)) < len(weights)
