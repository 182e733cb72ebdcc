"""A space with a requirement holds exactly the operators of the space without it that meet the requirement."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import small_specs

from syno.space import OperatorSpec, Sampler, Space, preset
from syno.space.requirements import Requirements

FEW: dict[str, Any] = {"tensors": 2, "merges": 1, "splits": 1, "shifts": 1, "reductions": 3}


@small_specs.changeable
def square() -> dict[str, Any]:
    """A small 2-d convolution's shapes: blocks, shifts and windows."""
    return {
        "input": "C_in: unordered, H, H",
        "output": "C_out: unordered, H, H",
        "variables": "C_in:1, C_out:1, H:0; k=3:2, s=2:1",
        "layers": [{"C_in": 4, "C_out": 4, "H": 8}],
        "occurrences": FEW,
        "contractions": {"least_elements": 4},
        "repeats": {"largest": 1},
        "depth": 4,
    }


@small_specs.changeable
def resnet8() -> dict[str, Any]:
    """The shapes and bounds of benchmarks/live.yaml."""
    rows = ((16, 16, 16, 2), (16, 32, 8, 1), (32, 32, 8, 1), (32, 64, 4, 1), (64, 64, 4, 1))
    return {
        "input": "N, C_in: unordered, H, H",
        "output": "N, C_out: unordered, H, H",
        "variables": "N:0, C_in:2, C_out:4, H:0; k_1=3:2, s=2:2, g=4:3",
        "layers": [{"values": {"N": 64, "C_in": i, "C_out": o, "H": h}, "count": count} for i, o, h, count in rows],
        "bound_axes": [(0, 0)],
        "occurrences": {"tensors": 3, "merges": 1, "splits": 3, "shifts": 0},
        "windows": {"least_ratio": 1.0},
        "contractions": {"least_elements": 16},
        "repeats": {"largest": 1, "tile": False},
        "depth": 5,
    }


def gpt2() -> OperatorSpec:
    """The preset with few sums, of which there are thousands of sets, and without its budget, which no window meets so soon."""
    chosen = preset("gpt2")
    return chosen.with_(depth=4, occurrences=chosen.occurrences.with_(reductions=2), budget={})


SQUARE: dict[str, Any] = {"H": 3}
LINE: dict[str, Any] = {"H": 3, "along": "any"}
ONCE: dict[str, Any] = {"H": 2, "applied": 1, "centred": False, "channels": "none", "along": "any"}
SEQUENCE: dict[str, Any] = {"seq_len": 2, "applied": 1, "centred": False, "channels": "none"}


@pytest.mark.parametrize(
    ("spec", "reads", "count"),
    [
        pytest.param(square(), SQUARE, 2, id="square"),
        pytest.param(square(), LINE, 4, id="line"),
        pytest.param(square(occurrences={**FEW, "shifts": 0, "merges": 2}), ONCE, 4, id="once"),
        pytest.param(small_specs.convolution(depth=5), {"H": 2, "centred": False}, 10, id="convolution"),
        pytest.param(resnet8(), SQUARE, 2, id="resnet8", marks=pytest.mark.slow),
        pytest.param(preset("resnet18").with_(depth=5), LINE, 10, id="resnet18", marks=pytest.mark.slow),
        pytest.param(preset("densenet121").with_(depth=4), LINE, 8, id="densenet121", marks=pytest.mark.slow),
        pytest.param(gpt2(), SEQUENCE, 5, id="gpt2", marks=pytest.mark.slow),
    ],
)
def test_no_operator_is_lost_and_none_added(spec: OperatorSpec, reads: dict[str, Any], count: int) -> None:
    asking = spec.with_(reads=reads)
    check = Requirements(asking)
    expected = sorted(operator.id for _, operator in Space(spec).enumerate() if check.unmet(operator) is None)
    found = sorted(operator.id for _, operator in Space(asking).enumerate())
    assert found == expected
    assert len(found) == count


def test_guided_walks_find_every_operator() -> None:
    spec = small_specs.convolution(depth=5)
    space = Space(spec.with_(reads={"H": 2, "centred": False}))
    guide = space.guide
    assert Space(spec).guide is None
    assert guide is not None
    usual, all_ids = ({operator.id for _, operator in one.enumerate()} for one in (guide, space))
    assert usual < all_ids
    sampler = Sampler(space, Random(0))
    while not sampler.is_exhausted and sampler.walks < 10_000:
        sampler.draw()
    assert {operator.id for operator in sampler.operators} == all_ids
