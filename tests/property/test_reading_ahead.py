"""Whether a random operator reads ahead, and what exactly: against changing one input position after another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from strategies import VIEWS_AND_WINDOWS, pgraphs

from syno.ir.graph import PGraph
from syno.lower.causality import leak
from syno.lower.interpreter import interpret, shapes

QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=500)


def dependences(graph: PGraph, out: int, into: int) -> set[tuple[int, int]]:
    """Output positions with the input positions that they depend on. With weights of 1, whatever is read adds to the output."""
    values = graph.variables.valuation()
    input_shape, weight_shapes, output_shape = shapes(graph, values)
    weights = [np.ones(shape, dtype=np.int64) for shape in weight_shapes]
    found = set()
    for position in range(input_shape[into]):
        x = np.zeros(input_shape, dtype=np.int64)
        np.moveaxis(x, into, 0)[position] = 1
        changed = np.moveaxis(interpret(graph, values, x, *weights), out, 0).reshape(output_shape[out], -1).any(1)
        found |= {(int(at), position) for at in np.flatnonzero(changed)}
    return found


def check(graph: PGraph) -> None:
    values = graph.variables.valuation()
    input_shape, _, output_shape = shapes(graph, values)
    for out, into in itertools.product(range(len(output_shape)), range(len(input_shape))):
        if output_shape[out] != input_shape[into] or output_shape[out] == 1:
            continue
        pairs = dependences(graph, out, into)
        later = sorted(pair for pair in pairs if pair[1] > pair[0])
        found = leak(graph, (out, into), values)
        if not later:
            event("reads nothing ahead")
            assert found is None, (str(graph), found)
        else:
            event("reads ahead")
            first = later[0][0]
            assert found is not None, str(graph)
            assert (found.output, found.input) == (first, max(read for at, read in later if at == first)), str(graph)


@QUICK
@given(pgraphs())
def test_random_operators(graph: PGraph) -> None:
    check(graph)


@QUICK
@given(pgraphs(steps=VIEWS_AND_WINDOWS))
def test_random_views_and_windows(graph: PGraph) -> None:
    check(graph)


@pytest.mark.slow
@THOROUGH
@given(pgraphs(max_weights=3))
def test_many_random_operators(graph: PGraph) -> None:
    check(graph)


@pytest.mark.slow
@THOROUGH
@given(pgraphs(steps=VIEWS_AND_WINDOWS))
def test_many_views_and_windows(graph: PGraph) -> None:
    check(graph)
