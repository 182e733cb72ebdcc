"""Spaces whose operators read no later position."""

from __future__ import annotations

from typing import Any

import pytest

from syno.base.errors import SpecError, UnreachableError
from syno.ir import support
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.lower.causality import leak
from syno.model.spec import SEQUENCE_DEFAULTS
from syno.space import OperatorSpec, Space, preset

LAYER = {"N": 1, "seq_len": 8, "H_in": 16}


def spec(**changes: Any) -> OperatorSpec:
    given = {
        "variables": "N:0, seq_len:0, H_in:4; j=2:2, k=3:2, t=3:1",
        "depth": 5,
        "occurrences": {"tensors": 2, "reductions": 2, "merges": 0, "splits": 0, "shifts": 1},
        "layers": [LAYER],
    }
    return OperatorSpec(**{**SEQUENCE_DEFAULTS, **given, **changes})


def window(size: str) -> PGraph:
    build = Builder("N, seq_len, H_in; j=2, k=3, t=3", name="window")
    n, position, feature = build.output("N, seq_len, t*H_in")
    i, c = build.contract(outer=[feature], inner=build.reduce(f"{size}, H_in"))
    return build.finish([n, build.unfold(position, i), c])


def enumerated(given: OperatorSpec) -> dict[str, PGraph]:
    return {operator.id: operator for _, operator in Space(given).enumerate()}


def test_what_reads_ahead_is_left_out_and_nothing_else() -> None:
    every, causal = enumerated(spec()), enumerated(spec(causal=["seq_len"]))
    wanted = {name for name, operator in every.items() if leak(operator, "seq_len", LAYER) is None}
    assert set(causal) == wanted
    assert 1 < len(wanted) < len(every)


def test_the_error_names_the_position_that_is_read_ahead() -> None:
    space = Space(spec(causal=["seq_len"]))
    assert space.path(window("j"))[-1].kind == "Finalize"
    with pytest.raises(UnreachableError, match=r"causal.*position 0 along seq_len"):
        space.path(window("k"))
    assert Space(spec()).path(window("k"))


def test_operators_are_causal_in_every_layer() -> None:
    """A window of `w` positions reaches back only where w is 2."""
    variables = "N:0, seq_len:0, H_in:4, w:1; t=3:1"
    build = Builder("N, seq_len, H_in, w; t=3", name="window")
    n, position, feature = build.output("N, seq_len, t*H_in")
    i, c = build.contract(outer=[feature], inner=build.reduce("w, H_in"))
    operator = build.finish([n, build.unfold(position, i), c])
    for widths, is_held in (((2, 2), True), ((2, 3), False)):
        layers = [{**LAYER, "w": width} for width in widths]
        space = Space(spec(variables=variables, layers=layers, causal=["seq_len"]))
        assert (space.completion.leak(operator) is None) is is_held


def test_operators_too_large_to_check_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "MOST_ROWS", 3)
    space = Space(spec(causal=["seq_len"]))
    assert "more than 3; give smaller sizes" in (space.completion.leak(window("j")) or "")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("length", 'causal holds "length", and the input has 0 axes of this size; give one that it has once: N, seq_len, H_in'),
        ("H_in", 'causal holds "H_in", and the output has 0 axes of this size'),
    ],
)
def test_an_axis_that_is_not_there(size: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec(causal=[size])
    with pytest.raises(SpecError, match='causal holds "H", and the input has 2 axes of this size'):
        preset("resnet18").with_(causal=["H"])


def test_ids_of_specs_without_it_are_what_they_were() -> None:
    assert preset("resnet18").id == "097091d0ff7f0fce775cdb3741cddec4"
    assert spec(causal=["seq_len"]).id != spec().id
