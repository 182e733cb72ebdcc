"""The share of summands at which two operators read the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from strategies import pgraphs

from syno.algebra import Size, Valuation
from syno.base.errors import GraphError, SizeError, ValuationError
from syno.ir.coordinates import coordinates
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.space.identity.agreement import agreement


def op(body: str) -> PGraph:
    """An operator from its text, with lines separated by "; "."""
    return parse("operator test\nvariables N, C, H; B, k, s\n" + body.replace("; ", "\n"))


BELOW = "a:B*N = Unfold(i, {window}); q:N, m:B = Merge(a, B); "
ABOVE = "q:N, a:B = Merge(i, B); m:B = Unfold(a, {window}); "
SUMMED = "output i:B*N; r:k = Reduce(); {views}input q:N, m:B"
SEEN = "output i:B*N, j:k; {views}input q:N, m:B"
WEIGHED = "output i:B*N; r:k = Reduce(); d:k = Share(r, w1[0]); {views}input q:N, m:B; weight w1[k]"


@pytest.mark.parametrize("block", [8, 32, 128])
@pytest.mark.parametrize(("form", "window"), [(SUMMED, "r"), (SEEN, "j"), (WEIGHED, "d")], ids=["summed", "seen", "weighed"])
def test_an_unfold_below_a_merge_is_nearly_one_above_it(form, window, block):
    """The paper's example: they differ for one tap on each side of every border between two of the 4 blocks."""
    below, above = (op(form.format(views=views.format(window=window))) for views in (BELOW, ABOVE))
    values = {"N": 4, "B": block, "k": 3}
    expected = 1 - 2 * 3 / (3 * 4 * block)
    assert agreement(below, above, values) == pytest.approx(expected)
    assert agreement(above, below, values) == agreement(below, above, values)
    assert round(agreement(below, above, values), 3) == {8: 0.938, 32: 0.984, 128: 0.996}[block]


def test_summands_beyond_the_border_agree_only_with_each_other():
    rolled = op("output i:H, j:s; a:H = Shift(i, 1); Expand(j); input a:H")
    shifted = op("output i:H, j:s; a:H = Unfold(i, j); input a:H")  # i + j - 1, from i - 1 on
    plain = op("output i:H, j:s; Expand(j); input i:H")
    assert agreement(plain, shifted, {"H": 5, "s": 2}) == 5 / 10  # j = 1; at i = j = 0 one reads nothing
    assert agreement(shifted, shifted, {"H": 5, "s": 2}) == 1
    assert agreement(plain, rolled, {"H": 5, "s": 2}) == 0
    assert agreement(shifted, rolled, {"H": 5, "s": 3}) == 4 / 15  # j = 2, but for the last i, which is outside


def test_elements_of_weights_count():
    by_row = op("output i:H, j:H; a:H = Share(i, w1[0]); input a:H, j:H; weight w1[H]")
    by_column = op("output i:H, j:H; a:H = Share(j, w1[0]); input i:H, a:H; weight w1[H]")
    assert agreement(by_row, by_column, {"H": 4}) == 1 / 4


def test_large_sizes_take_no_time():
    conv2d = OPERATORS["conv2d"]()
    assert agreement(conv2d, conv2d, {"N": 128, "C_in": 512, "C_out": 512, "H": 56}) == 1


def test_operators_that_cannot_be_compared_are_errors():
    summed = op("output i:H; r:C = Reduce(); input i:H, r:C")
    with pytest.raises(GraphError, match="the reductions of .* must be the same"):
        agreement(summed, op("output i:H; r:N = Reduce(); input i:H, r:N"), {"H": 4, "C": 2, "N": 2})
    with pytest.raises(GraphError, match="the output axes of .* must be the same"):
        agreement(summed, op("output i:C; r:C = Reduce(); input i:C, r:C"), {"H": 4, "C": 2})
    with pytest.raises(GraphError, match="tensors of different shapes"):
        agreement(summed, op("output i:H; r:C = Reduce(); input r:C, i:H"), {"H": 4, "C": 2})
    with pytest.raises(ValuationError, match='no value for "C"'):
        agreement(summed, summed, {"H": 4})
    blocks = op("output i:H; q:s^-1*H, r:s = Merge(i, s); input q:s^-1*H, r:s")
    with pytest.raises(SizeError):
        agreement(blocks, blocks, {"H": 5, "s": 2})


class OneByOne:
    """Arithmetic on single whole numbers."""

    def __init__(self, values: Valuation) -> None:
        self.values, self.inside = values, True

    def size(self, size: Size) -> int:
        return self.values.integer(size)

    def half(self, size: Size) -> int:
        return self.values.integer(size) // 2

    def guard(self, index: int, extent: Size) -> int:
        self.inside = self.inside and 0 <= index < self.values.integer(extent)
        return index


def reads(graph: PGraph, values: Valuation) -> list[tuple[int, ...] | None]:
    """What each summand reads, one after the other; None for nothing."""
    loops = (*graph.output, *graph.reduces)
    found: list[tuple[int, ...] | None] = []
    for position in itertools.product(*(range(values.integer(dim.size)) for dim in loops)):
        arithmetic = OneByOne(values)
        at = coordinates(graph.tops, dict(zip(loops, position, strict=True)), arithmetic)
        read = tuple(at[dim] for dims in (graph.input, *graph.weights) for dim in dims)
        found.append(read if arithmetic.inside else None)
    return found


def check_one_by_one(graph: PGraph) -> None:
    values = graph.variables.valuation()
    shapes = [dim.size for dim in graph.input]
    twins = [(a, b) for a, b in itertools.combinations(range(len(shapes)), 2) if shapes[a] is shapes[b]]
    order = list(range(len(shapes)))
    for a, b in twins[:1]:
        order[a], order[b] = b, a
    other = PGraph(graph.output, tuple(graph.input[axis] for axis in order), graph.weights, graph.expansions)
    one, two = reads(graph, values), reads(other, values)
    expected = sum(a == b for a, b in zip(one, two, strict=True)) / len(one)
    assert agreement(graph, other, values) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@given(pgraphs())
@settings(max_examples=8, deadline=None, derandomize=True)
def test_the_ratio_is_that_of_counting_one_by_one(graph):
    check_one_by_one(graph)


@pytest.mark.slow
@given(pgraphs())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_many_as_counted_one_by_one(graph):
    check_one_by_one(graph)
