"""Every form computes what the interpreter computes where axes are as small as windows, or smaller."""

from __future__ import annotations

import math

import pytest
import torch
from agreement import check_every_form
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import VIEWS_AND_WINDOWS, pgraphs

import syno
from syno.algebra import Valuation
from syno.base.errors import SizeError
from syno.ir.graph import PGraph
from syno.model import build

QUICK = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
WINDOWS = st.lists(st.sampled_from(["unfold", "unfold", "stride", "contract", "shift", "merge"]), min_size=2, max_size=8)
LARGEST = 20_000


@st.composite
def tiny(draw: st.DrawFn) -> tuple[PGraph, Valuation]:
    """An operator with primaries of 1 to 3, where they divide, and windows, strides and factors of 1 to 4."""
    graph = draw(pgraphs(max_weights=3, steps=draw(st.sampled_from([None, WINDOWS, VIEWS_AND_WINDOWS]))))
    values = {}
    for name in sorted(graph.variables, key=lambda name: name in "ABC"):
        values[name] = draw(st.integers(1, 3 if name in "ABC" else 4), label=name)
    try:
        valuation = graph.valuation(values)
    except SizeError:
        values |= {name: 12 * values[name] for name in values if name in "ABC"}
        try:
            valuation = graph.valuation(values)
        except SizeError:
            assume(False)
    tensors = (graph.input, *graph.weights, (*graph.output, *graph.reduces))
    assume(all(valuation.numel(dim.size for dim in dims) <= LARGEST for dims in tensors))
    return graph, valuation


@QUICK
@given(tiny())
def test_random_operators_in_every_form(drawn: tuple[PGraph, Valuation]) -> None:
    check_every_form(*drawn)


@pytest.mark.slow
@settings(QUICK, max_examples=300)
@given(tiny())
def test_many_random_operators_in_every_form(drawn: tuple[PGraph, Valuation]) -> None:
    check_every_form(*drawn)


DILATED = {
    "sum": "e:H = Unfold(y, d)\ninput e:H",
    "sum of a view": "e:H = Unfold(y, d)\nf:H = Shift(e, +1)\ninput f:H",
    "two sums": "r2:k = Reduce()\nd2:k*s = Stride(r2, s)\ne:H = Unfold(y, d)\nf:H = Unfold(e, d2)\ninput f:H",
}


@pytest.mark.parametrize("name", DILATED)
def test_dilated_windows_without_weight(name: str) -> None:
    """An axis of at most half the dilation: what is padded is then cut off again."""
    head = "operator f\nvariables H; k, s\noutput y:H\nr:k = Reduce()\nd:k*s = Stride(r, s)\n"
    graph = syno.parse(f"{head}{DILATED[name]}\n")
    for h in (1, 2, 3):
        for k in (1, 2, 3):
            for s in (1, 2, 4):
                check_every_form(graph, graph.valuation(H=h, k=k, s=s))


@pytest.mark.parametrize("reduced", [False, True])
def test_dilated_windows_put_off(reduced: bool) -> None:
    """The weight is multiplied in before its window: slices along its axis are moved into place, and summed or not."""
    loop = "r:k = Reduce()\n" if reduced else ""
    output = "output y:H, c:C" if reduced else "output y:H, c:C, r:k"
    graph = syno.parse(f"""
        operator f
        variables H, C; k, s
        {output}
        {loop}j:C = Reduce()
        t:k = Share(r, w1[0])
        o:C = Share(c, w1[1])
        Expand(o)
        i:C = Share(j, w1[2])
        d:k*s = Stride(t, s)
        e:H = Unfold(y, d)
        input e:H, i:C
        """)
    for h in (1, 2, 3):
        for k, s in ((1, 2), (1, 4), (2, 4), (3, 2)):
            check_every_form(graph, graph.valuation(H=h, C=2, k=k, s=s))


def test_the_reported_operator() -> None:
    text = "operator f\nvariables H; k, s\noutput y:H\nr:k = Reduce()\nd:k*s = Stride(r, s)\ne:H = Unfold(y, d)\ninput e:H\n"
    assert build(syno.parse(text), {"H": 1, "k": 1, "s": 4})(torch.ones(1)).item() == 0
    assert math.isclose(build(syno.parse(text), {"H": 3, "k": 1, "s": 4})(torch.arange(3.0))[2].item(), 0)
