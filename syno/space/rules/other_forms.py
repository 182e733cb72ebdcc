"""Rules that reject the other of two equal forms than the rules on views do; off, as those are on."""

from __future__ import annotations

from syno.space.facts import Origin
from syno.space.rules.table import rule
from syno.space.steps import SHIFT, SPLIT, STRIDE, UNFOLD, CandidateStep


@rule("V8b", SPLIT, "Stride, then Split as minor", "as V8, the other way", exact=True, on=False, against="V8")
def _(step: CandidateStep) -> bool:
    return step.of(1).origin is Origin.STRIDE


@rule("V9b", STRIDE, "Merge, then Stride of the remainder", "as V9, the other way", exact=True, on=False, against="V9")
def _(step: CandidateStep) -> bool:
    return step.of().origin is Origin.REMAINDER


@rule("V11b", SPLIT, "Unfold, then Split as minor", "as V11, the other way", exact=False, on=False, against="V11")
def _(step: CandidateStep) -> bool:
    return step.of(1).origin is Origin.UNFOLD


@rule("V12b", UNFOLD, "Merge, then Unfold of the remainder", "as V12, the other way", exact=False, on=False, against="V12")
def _(step: CandidateStep) -> bool:
    return step.of().origin is Origin.REMAINDER


@rule("V14b", SHIFT, "Unfold, then Shift", "as V14, the other way", exact=False, on=False, against="V14")
def _(step: CandidateStep) -> bool:
    return step.of().origin is Origin.UNFOLD


@rule("V22", SPLIT, "Unfold, then Split as major", "the window goes above the Split, but for padding", exact=False, on=False)
def _(step: CandidateStep) -> bool:
    return step.of(0).origin is Origin.UNFOLD
