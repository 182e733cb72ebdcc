"""The ablation of requirements walks on both sides, and counts what meets the requirement on each."""

from __future__ import annotations

import small_specs

from syno.paper.ablations.drawing import draw
from syno.paper.ablations.parts import NO_PARTS
from syno.paper.ablations.requiring import COLUMNS, requirement_rows
from syno.report.operators.folder import silent


def test_both_sides_find_the_same_operators_in_a_space_that_is_gone_through() -> None:
    spec = small_specs.convolution(depth=4, reads={"H": 3})
    without, with_ = requirement_rows(spec, 60, 0, silent, NO_PARTS)
    assert (without["side"], with_["side"]) == ("without", "with")
    assert without["meeting"] == with_["meeting"] == with_["operators"] == 1 < int(str(without["operators"]))
    assert tuple(with_) == COLUMNS
    assert draw("requirements", [without, with_], ["a note"]).axes
