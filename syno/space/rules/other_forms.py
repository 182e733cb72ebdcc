"""Rules that reject the other of two equal forms than the rules on views do; off, as those are on."""

from __future__ import annotations

from syno.space.facts import Edge
from syno.space.rules.table import SHIFT, SPLIT, STRIDE, UNFOLD, Candidate, rule


@rule("V8b", SPLIT, "Stride, then Split as minor", "as V8, the other way", exact=True, on=False, against="V8")
def _(step: Candidate) -> bool:
    return step.of(1).edge is Edge.STRIDE


@rule("V9b", STRIDE, "Merge, then Stride of the remainder", "as V9, the other way", exact=True, on=False, against="V9")
def _(step: Candidate) -> bool:
    return step.of().edge is Edge.REMAINDER


@rule("V11b", SPLIT, "Unfold, then Split as minor", "as V11, the other way", exact=False, on=False, against="V11")
def _(step: Candidate) -> bool:
    return step.of(1).edge is Edge.UNFOLD


@rule("V12b", UNFOLD, "Merge, then Unfold of the remainder", "as V12, the other way", exact=False, on=False, against="V12")
def _(step: Candidate) -> bool:
    return step.of().edge is Edge.REMAINDER


@rule("V14b", SHIFT, "Unfold, then Shift", "as V14, the other way", exact=False, on=False, against="V14")
def _(step: Candidate) -> bool:
    return step.of().edge is Edge.UNFOLD


@rule("V22", SPLIT, "Unfold, then Split as major", "the window goes above the Split, but for padding", exact=False, on=False)
def _(step: Candidate) -> bool:
    return step.of(0).edge is Edge.UNFOLD
