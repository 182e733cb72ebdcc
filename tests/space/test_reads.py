"""Requirements on what operators read: their settings, and the check of one operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import syno
from syno.base.errors import SpecError, UnreachableError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.paper.artifact.published_operator import distinct, read_artifact
from syno.space import OperatorSpec, Space, preset
from syno.space.reach import reach
from syno.space.requirements import Requirements

SPEC = preset("resnet18")


def line(*, exchanged: bool) -> PGraph:
    """All channels, and three positions along the last axis; with its axes exchanged, rows and columns are."""
    build = Builder("N, C_in, C_out, H; k_1=3", name="line")
    n, c_out, row, column = build.output("N, C_out, H, H")
    c_in, window = build.contract(outer=[c_out], inner=[*build.reduce("C_in"), *build.reduce("k_1")])
    slid = build.unfold(column, window)
    return build.finish([n, c_in, slid, row] if exchanged else [n, c_in, row, slid])


def unmet(operator: PGraph, **reads: Any) -> str | None:
    return Requirements(SPEC.with_(reads=reads)).unmet(operator)


def test_a_line_with_axes_exchanged_is_a_square_when_applied_twice() -> None:
    assert unmet(line(exchanged=True), H=3) is None
    assert unmet(line(exchanged=False), H=3, along="any") is None
    lack = unmet(line(exchanged=False), H=3)
    assert lack is not None and "of the operator applied twice reads 1 and 5 positions along H" in lack


def test_own_position_is_required_if_centred() -> None:
    build = Builder("N, C_in, C_out, H", name="rolled")
    n, c_out, row, column = build.output("N, C_out, H, H")
    rolled = build.finish([n, *build.contract(outer=[c_out], inner=build.reduce("C_in")), row, build.shift(column, 1)])
    assert "does not read its own position" in str(unmet(rolled, H=1))
    assert unmet(rolled, H=1, centred=False) is None


def shifted(by: int) -> PGraph:
    """Applied twice, it reads a square of 3 along each axis, which lies `by` positions after the own one."""
    build = Builder("N, C_in, C_out, H; k_1=3", name="shifted")
    n, c_out, row, column = build.output("N, C_out, H, H")
    c_in, window = build.contract(outer=[c_out], inner=[*build.reduce("C_in"), *build.reduce("k_1")])
    return build.finish([n, c_in, build.shift(build.unfold(column, window), by), row])


@pytest.mark.parametrize("size", [4, 8])
def test_positions_on_one_side_of_its_own_are_enough_and_go_around_the_border(size: int) -> None:
    """In the middle of 4 positions, the second after it is the first of the axis."""
    spec = SPEC.with_(layers=[{"N": 1, "C_in": 4, "C_out": 4, "H": size}], reads={"H": 3}, budget={})
    assert Requirements(spec).unmet(shifted(1)) is None
    beside = Requirements(spec.with_(reads={"H": 3, "along": "any"})).unmet(shifted(2))
    assert "square of positions side by side around its own" in str(Requirements(spec).unmet(shifted(2)))
    assert "3 positions side by side along H" in str(beside)


def test_reading_the_own_block_alone_does_not_meet_a_requirement() -> None:
    """Each element reads the four positions of the block that it is in, along both axes when it is applied twice."""
    build = Builder("N, C_in, C_out, H; s=2", name="blocks")
    n, c_out, row, column = build.output("N, C_out, H, H")
    block, inside = build.merge(column, "s^2")
    c_in, place = build.contract(outer=[c_out, inside], inner=[*build.reduce("C_in"), *build.reduce("s^2")])
    blocks = build.finish([n, c_in, build.split(block, place), row])
    spec = SPEC.with_(layers=[{"N": 1, "C_in": 4, "C_out": 4, "H": 8}], reads={"H": 3}, budget={})
    assert "around its own" in str(Requirements(spec).unmet(blocks))
    assert Requirements(spec.with_(reads={"H": 3, "centred": False})).unmet(blocks) is None


@pytest.mark.slow
def test_published_operators_of_resnet18_meet_what_the_network_asks_for(artifact: Path) -> None:
    check = Requirements(SPEC.with_(reads={"H": 3, "applied": 2, "centred": True, "channels": "all", "along": "every"}))
    found = distinct(read_artifact(artifact / "vision" / "a100" / "good-kernels-cifar100" / "resnet"))
    assert len(found) == 6
    assert [check.unmet(one.graph) for one in found] == [None] * 6


def test_a_space_says_what_an_operator_reads_too_little_of() -> None:
    with pytest.raises(UnreachableError, match=r"reads 1 and 5 positions along H"):
        reach(Space(SPEC.with_(reads={"H": 3})), line(exchanged=False))


def test_an_operator_of_the_paper_is_in_the_space_with_a_requirement() -> None:
    assert reach(Space(SPEC.with_(reads={"H": 3})), syno.OPERATORS["operator_1"]())


def test_a_spec_without_requirement_keeps_its_id() -> None:
    asking = SPEC.with_(reads={"H": 3, "along": "any"})
    assert asking.with_(reads=None).id == SPEC.id != asking.id
    assert "reads" not in SPEC.dump()
    assert OperatorSpec(**yaml.safe_load(asking.dump())).id == asking.id


@pytest.mark.parametrize(
    ("name", "reads", "message"),
    [
        ("resnet18", {"W": 3}, 'reads holds "W"; there are the axes of the input C_in, H'),
        ("resnet18", {"H": 9}, "asks for 9 positions of H, which is 7 in the smallest layer"),
        ("gpt2", {"seq_len": 3}, "give applied: 1"),
        ("resnet18", {"centred": False, "channels": "none"}, "asks for nothing"),
    ],
)
def test_a_requirement_that_nothing_can_meet_is_refused(name: str, reads: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        preset(name).with_(reads=reads)
