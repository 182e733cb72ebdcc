"""Fingerprints of random operators: the same for any way of writing one, and as different as what is computed."""

from __future__ import annotations

import random
import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from strategies import pgraphs

from syno.base.errors import SynoError
from syno.ir.graph import PGraph
from syno.ir.rewriting import normal_form
from syno.ir.text import parse
from syno.lower.interpreter import interpret, shapes
from syno.space.identity.fingerprint import fingerprint, same_operator

MOST_ELEMENTS = 200  # of a weight, one interpretation for each


def text_of(graph: PGraph) -> str:
    return str(graph).split("\nid ")[0]


def rewritten(graph: PGraph, chance: random.Random) -> PGraph:
    """The operator with its reductions, its weights, and the axes of its weights in another order."""
    lines = [line for line in text_of(graph).splitlines() if not line.startswith("weight ")]
    reductions = [line for line in lines if line.endswith("= Reduce()")]
    shuffled = iter(chance.sample(reductions, len(reductions)))
    lines = [next(shuffled) if line in reductions else line for line in lines]
    weights = chance.sample(range(1, len(graph.weights) + 1), len(graph.weights))
    axes = [chance.sample(range(len(weight)), len(weight)) for weight in graph.weights]

    def moved(match: re.Match[str]) -> str:
        return f"w{weights[int(match[1]) - 1]}[{axes[int(match[1]) - 1][int(match[2])]}]"

    return parse(re.sub(r"w(\d+)\[(\d+)\]", moved, "\n".join(lines)))


def rewired(graph: PGraph, chance: random.Random) -> PGraph:
    """The operator with two uses of dims of one size exchanged."""
    text = text_of(graph)
    size_of = dict(re.findall(r"(\w+):(\S+?)(?=,| =|\n|$)", text))
    uses = [use for use in re.finditer(r"(?<=[(, ])(\w+)(?=[,):]|$)", text) if use[1] in size_of and reads(text, use.start())]
    pairs = [(a, b) for a, b in combinations(uses, 2) if size_of[a[1]] == size_of[b[1]] and a[1] != b[1]]
    assume(pairs)
    first, second = chance.choice(pairs)
    try:
        return parse(text[: first.start()] + second[1] + text[first.end() : second.start()] + first[1] + text[second.end() :])
    except SynoError:  # used before it is there, or in a way that the language does not allow
        reject()


def reads(text: str, place: int) -> bool:
    """Whether a primitive, or the input, takes the dim that is named at this place of the text."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return "(" in line or line.startswith("input")


def shape(graph: PGraph) -> list[list[str]]:
    return [[str(dim.size) for dim in dims] for dims in (graph.input, *graph.weights)]


def meaning(graph: PGraph) -> list[tuple[int, ...]]:
    """What an operator with at most one weight computes for each single element of the weight, in no order."""
    values = graph.variables.valuation()
    input_shape, weight_shapes, _ = shapes(graph, values)
    x = np.random.default_rng(0).integers(1, 10**6, input_shape)
    if not weight_shapes:
        return [tuple(interpret(graph, {}, x).ravel().tolist())]
    elements = np.eye(int(np.prod(weight_shapes[0])), dtype=np.int64)
    return sorted(tuple(interpret(graph, {}, x, one.reshape(weight_shapes[0])).ravel().tolist()) for one in elements)


def one_operator_written_in_many_ways(graph, chance, axes, rolled):
    kind = "rolled" if rolled else "unordered"
    free = {
        f"{kind}_output": [axis for axis in axes if axis < len(graph.output)],
        f"{kind}_input": [axis for axis in axes if axis < len(graph.input)],
        "valuations": [graph.variables.valuation()],
    }
    expected = fingerprint(graph, **free)
    assert {fingerprint(normal_form(graph), **free), fingerprint(rewritten(graph, chance), **free)} == {expected}
    assert same_operator(graph, rewritten(graph, chance))


@given(pgraphs(), st.randoms(use_true_random=False), st.sets(st.integers(0, 2)), st.booleans())
@settings(max_examples=10, deadline=None, derandomize=True)
def test_one_operator_written_in_many_ways(graph, chance, axes, rolled):
    one_operator_written_in_many_ways(graph, chance, axes, rolled)


@pytest.mark.slow
@given(pgraphs(), st.randoms(use_true_random=False), st.sets(st.integers(0, 2)), st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_one_operator_written_in_many_ways_again_and_again(graph, chance, axes, rolled):
    one_operator_written_in_many_ways(graph, chance, axes, rolled)


def equal_exactly_where_the_same_is_computed(graph, chance):
    values = graph.variables.valuation()
    assume(values.numel([dim.size for weight in graph.weights for dim in weight]) <= MOST_ELEMENTS)
    other = rewired(graph, chance)
    assume(shape(graph) == shape(other))
    rows = [{**values, **other.variables.valuation()}]
    same = fingerprint(graph, valuations=rows) == fingerprint(other, valuations=rows)
    assert same == (meaning(graph) == meaning(other))


@given(pgraphs(max_weights=1), st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_equal_exactly_where_the_same_is_computed(graph, chance):
    equal_exactly_where_the_same_is_computed(graph, chance)


@pytest.mark.slow
@given(pgraphs(max_weights=1), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_equal_exactly_where_the_same_is_computed_again_and_again(graph, chance):
    equal_exactly_where_the_same_is_computed(graph, chance)


def sums_are_equal(graph, other):
    """Whether both compute the same of one input, with weights that are all 1."""
    outputs = []
    for each in (graph, other):
        input_shape, weight_shapes, _ = shapes(each, each.variables.valuation())
        x = np.random.default_rng(0).integers(1, 10**6, input_shape)
        outputs.append(interpret(each, {}, x, *(np.ones(shape, np.int64) for shape in weight_shapes)))
    return np.array_equal(*outputs)


def test_a_window_along_a_sum():
    """As the window ends at the borders, it is no sum over the whole axis."""
    first, other = (
        parse(f"""
        operator window_of_sums
        variables A=5; k=3, s=2
        output i0:A
        r0:k = Reduce()
        r1:k = Reduce()
        r2:k = Reduce()
        r3:s = Reduce()
        d0:k*A = Split(i0, r1)
        d1:k = Unfold(r0, r3)
        d2:k^2 = Split({digits})
        input d2:k^2, d0:k*A
        """)
        for digits in ("r2, d1", "d1, r2")
    )
    assert not sums_are_equal(first, other)
    assert not same_operator(first, other)


def equal_only_where_sums_are_equal(graph, chance):
    other = rewired(graph, chance)
    if same_operator(graph, other):
        assert sums_are_equal(graph, other)


@given(pgraphs(), st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_equal_only_where_sums_are_equal(graph, chance):
    equal_only_where_sums_are_equal(graph, chance)


@pytest.mark.slow
@given(pgraphs(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_equal_only_where_sums_are_equal_again_and_again(graph, chance):
    equal_only_where_sums_are_equal(graph, chance)
