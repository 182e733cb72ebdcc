"""Where operators read their input, taken apart: put together again, it is the index map, at every position."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import pgraphs

from syno.ir import reading as module
from syno.ir.coordinates import index_map
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.reading import Border, readings
from syno.report.operators.words import in_words

SIZES = {"N": 1, "C": 4, "C_in": 4, "C_out": 8, "H": 6, "M": 3, "K": 4, "seq_len": 5, "H_in": 48, "g": 2, "u": 2}


def check(graph: PGraph, values: dict[str, int]) -> int:
    """Compare at all positions; returns how many axes were taken apart."""
    valuation = graph.valuation(values)
    loops = [*graph.output, *graph.reduces]
    grid = np.indices([valuation.integer(dim.size) for dim in loops])
    at = {graph.labels[dim]: one for dim, one in zip(loops, grid, strict=True)}
    conditions = set(index_map(graph).conditions)
    taken_apart = 0
    for one in readings(graph):
        size, expected = valuation.integer(one.size), one.index.evaluate(at, valuation)
        if one.is_every:
            sums = np.indices([valuation.integer(one.extents[name]) for name in one.reductions])
            index = one.index.evaluate(dict(zip(one.reductions, sums, strict=True)), valuation)
            assert sorted(index.reshape(-1)) == list(range(size))
        if one.output is None:
            assert not one.steps
            continue
        taken_apart += 1
        position = valuation.integer(one.scale) * (grid[one.output] // valuation.integer(one.repeat))
        inside = np.ones(grid.shape[1:], dtype=bool)
        for step, displacements in zip(one.steps, one.displacements(valuation) or (), strict=True):
            offset = step.offset.evaluate(at, valuation)
            assert displacements == tuple(np.unique(offset))
            position = position + offset
            match step.border:
                case Border.ZERO:
                    index, extent = step.condition or (step.offset, one.size)
                    assert (index, extent) in conditions and valuation.integer(extent) == size
                    counted = index.evaluate(at, valuation)
                    assert np.array_equal(
                        (counted >= 0) & (counted < size) & inside, (position >= 0) & (position < size) & inside
                    )
                    inside &= (position >= 0) & (position < size)
                case Border.AROUND:
                    position = position % size
        assert np.array_equal(np.broadcast_to(expected, inside.shape)[inside], np.broadcast_to(position, inside.shape)[inside])
    return taken_apart


@pytest.mark.parametrize("name", OPERATORS)
def test_positions_that_known_operators_read(name: str) -> None:
    graph = OPERATORS[name]()
    values = {variable: value for variable, value in SIZES.items() if variable in graph.variables}
    assert check(graph, values) > 0
    in_words(graph, values)


@given(pgraphs())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_positions_that_random_operators_read(graph: PGraph) -> None:
    check(graph, {})
    assert in_words(graph).count("\n") > len(graph.input)


@pytest.mark.slow
@given(pgraphs())
@settings(deadline=None, derandomize=True, max_examples=300)
def test_positions_that_many_random_operators_read(graph: PGraph) -> None:
    check(graph, {})
    assert in_words(graph).count("\n") > len(graph.input)


def test_the_examples_of_the_module_run() -> None:
    assert doctest.testmod(module).failed == 0
