"""Normal forms: equal for operators that differ in numbers and layouts only, and of the same meaning."""

from __future__ import annotations

import random
import re
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import pgraphs

from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.rewriting import normal_form, renumbered
from syno.ir.text import parse
from syno.lower.interpreter import interpret, shapes


def rewritten(graph: PGraph, chance: random.Random) -> PGraph:
    """The operator with its reductions in another order, and with the axes of its weights in another order."""
    lines = [line for line in str(graph).splitlines() if not line.startswith(("weight ", "id "))]
    reductions = [line for line in lines if line.endswith("= Reduce()")]
    shuffled = iter(chance.sample(reductions, len(reductions)))
    lines = [next(shuffled) if line in reductions else line for line in lines]
    axes = [chance.sample(range(len(weight)), len(weight)) for weight in graph.weights]
    return parse(re.sub(r"w(\d+)\[(\d+)\]", lambda m: f"w{m[1]}[{axes[int(m[1]) - 1][int(m[2])]}]", "\n".join(lines)))


def values(graph: PGraph) -> np.ndarray:
    """The output for some input, and for weights that do not change when their axes are given in another order."""
    valuation = graph.variables.valuation()
    input_shape, weight_shapes, _ = shapes(graph, valuation)
    x = np.random.default_rng(0).integers(-9, 10, input_shape)
    weights = [reduce(np.multiply.outer, [np.arange(1, size + 1) ** 2 % 7 for size in shape]) for shape in weight_shapes]
    return interpret(graph, {}, x, *weights)


@given(pgraphs(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_rewritten_random_operators_have_one_normal_form(graph, chance):
    form = normal_form(graph)
    for other in (graph, form, rewritten(graph, chance)):
        assert normal_form(other).id == form.id
    assert np.array_equal(values(form), values(graph))
    assert np.array_equal(values(renumbered(graph)), values(graph))
    assert [[dim.size for dim in weight] for weight in renumbered(graph).weights] == [
        [dim.size for dim in weight] for weight in graph.weights
    ]


@pytest.mark.parametrize("name", OPERATORS)
def test_rewritten_known_operators_have_one_normal_form(name):
    graph = OPERATORS[name]()
    ids = {normal_form(rewritten(graph, random.Random(seed))).id for seed in range(8)}
    assert ids == {normal_form(graph).id}
    assert normal_form(graph).name == graph.name


def test_a_weight_is_laid_out_as_in_torch():
    assert [str(size) for size in normal_form(rewritten(OPERATORS["conv2d"](), random.Random(0))).weight_sizes(1)] == [
        "C_out", "C_in", "k", "k",
    ]  # fmt: skip


def test_different_operators_stay_different():
    forms = {normal_form(OPERATORS[name]()).id for name in OPERATORS}
    assert len(forms) == len({OPERATORS[name]().id for name in OPERATORS})
