"""Fingerprints: equal for one operator however it is written, and what else they depend on."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from quick_cases import quick_cases
from rewritten_operators import CHANNELS, MIRRORED, ROLLED, SAME, op

from syno.algebra import VariableTable
from syno.base.errors import GraphError, ValuationError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.rewriting import normal_form
from syno.ir.text import parse
from syno.model.spec import SEQUENCE_DEFAULTS
from syno.paper.artifact.published_operator import distinct, read_artifact
from syno.space.identity.fingerprint import fingerprint, same_operator
from syno.space.identity.valuations import own_valuations, tiny_valuations
from syno.space.presets import PRESETS, preset
from syno.space.space import Space
from syno.space.spec import OperatorSpec


@pytest.mark.parametrize("name", SAME)
def test_one_operator_written_in_two_ways(name):
    first, second = map(op, SAME[name])
    assert first.id != second.id
    assert same_operator(first, second)


def test_numbers_of_reductions():
    def made(swapped: bool) -> PGraph:
        build = Builder("C_in, C_out, H; k")
        o, y, x = build.output("C_out, H, H")
        i, j = build.reduce("k, k")
        first, second = (j, i) if swapped else (i, j)
        first, second = build.contract(outer=[o], inner=[first, second])
        return build.finish([build.unfold(y, first), build.unfold(x, second)])

    assert made(True).id != made(False).id
    assert fingerprint(made(True)) == fingerprint(made(False))


def test_normal_forms_of_known_operators_have_the_same_fingerprint():
    for make in OPERATORS.values():
        assert fingerprint(normal_form(make())) == fingerprint(make())


@pytest.mark.parametrize("chosen", quick_cases(PRESETS, "resnet18".__eq__))
def test_operators_drawn_in_a_space_of_the_paper_can_be_compared(chosen):
    """Also where a size is 1, as GPT-2's batch is, and so none that the options allow."""
    space, random = Space(preset(chosen)), Random(0)
    walk = None
    while walk is None:
        walk = space.walk(space.root, random)
    operator = walk[-1].operator
    assert space.fingerprint(operator) == Space(preset(chosen)).fingerprint(operator)


# ---- what fingerprints depend on ------------------------------------------------------------------------------------


def test_valuations():
    graph = op(SAME["V4, a Split that undoes a Merge"][0])
    rows = [{"H": 5, "b": 2, "C": 3}, {"H": 7, "b": 3, "C": 4}]
    assert fingerprint(graph, valuations=rows) == fingerprint(graph, valuations=rows)
    assert fingerprint(graph, valuations=rows) != fingerprint(graph, valuations=rows[:1])
    assert fingerprint(graph) == fingerprint(graph, valuations=())
    grouped = OPERATORS["grouped_conv2d"]()
    whole = {"N": 2, "C_in": 4, "C_out": 6, "H": 5, "g": 2, "k": 3}
    broken = {**whole, "C_in": 5}
    assert fingerprint(grouped, valuations=[whole, broken]) == fingerprint(grouped, valuations=[whole])
    assert fingerprint(grouped, valuations=[broken]) == fingerprint(grouped)
    with pytest.raises(ValuationError, match='no value for "g"'):
        fingerprint(grouped, valuations=[{name: 4 for name in whole if name != "g"}])


def test_axes_that_do_not_exist_are_errors():
    graph = OPERATORS["conv2d"]()
    with pytest.raises(GraphError, match="has no output axis 4; its axes are 0 to 3"):
        fingerprint(graph, unordered_output=[4])
    with pytest.raises(GraphError, match="has no input axis -1"):
        fingerprint(graph, rolled_input=[-1])
    with pytest.raises(GraphError, match="axes 1 and 2 .*C_in and H"):
        fingerprint(graph, mirrors=[((2, 3), (1, 2))])


def test_tiny_valuations():
    for make in OPERATORS.values():
        graph = make()
        rows = tiny_valuations(graph.sizes)
        for row in rows:
            values = [row.integer(size) for size in graph.sizes]
            assert min(values) > 1
            assert len({row[name] for name in graph.variables}) == len(graph.variables)
        assert all(rows[0][name] != rows[1][name] for name in graph.variables)
    variables = VariableTable.parse("H, C; k, s")
    rows = tiny_valuations(variables.sizes("H, k^-3*C, s"), [(variables.size("H"), variables.size("k"))], count=3)
    assert len(rows) == 3 and all(row["k"] % 2 == 1 for row in rows)
    assert all(row["C"] % row["k"] ** 3 == 0 and 2 * row["H"] - 1 >= row["k"] for row in rows)


@pytest.mark.parametrize(
    ("coefficients", "windows"),
    [
        ("k, s", "k s"),
        ("k, s", "s k"),
        ("k, s", "k s, s k"),
        ("a, b, c", "a b, b c, c a"),
        ("a, b, c, d, e", "b a, c b, d b, e b"),
        ("k, s, t", "k s^2, s t"),
        ("k, s", "s^-1*H k, k s"),
    ],
)
def test_a_window_is_narrow_at_one_valuation_at_least(coefficients, windows):
    variables = VariableTable.parse(f"H; {coefficients}")
    pairs = [tuple(map(variables.size, pair.split())) for pair in windows.split(", ")]
    rows = tiny_valuations([variables.size("H"), *(size for pair in pairs for size in pair)], pairs)
    for axis, window in pairs:
        extents = [(row.integer(axis), row.integer(window)) for row in rows]
        assert any(not covers(*extent) for extent in extents), extents


def covers(axis: int, window: int) -> bool:
    """Whether a window covers the axis from either end of it."""
    return all({*range(axis)} <= {end + place - window // 2 for place in range(window)} for end in (0, axis - 1))


def test_spaces_compare_operators_at_sizes_that_fit_into_memory():
    """Windows of 2 positions, as those for text have, are not made odd: that took gigabytes."""
    text = OperatorSpec(**SEQUENCE_DEFAULTS, layers=[{"N": 1, "seq_len": 64, "H_in": 96}])
    for spec in (text, *(make() for make in PRESETS.values())):
        assert max(value for row in Space(spec)._comparison.usual for value in row.values()) <= 126


def test_an_operator_whose_windows_are_large_if_they_are_odd_is_compared_at_smaller_sizes():
    """It was found by a search for text, and took 22 GB."""
    graph = parse("""
        operator large
        variables H_in, N, seq_len; g=4, k=2, t=3
        output i0:N, i1:seq_len, i2:t*H_in
        r0:g^-1*k^-2*H_in = Reduce()
        r1:g^-2*t^-1*H_in = Reduce()
        d0:t, d1:H_in = Merge(i2, H_in)
        d2:g^-1*k^-2*H_in = Share(r0, w1[2])
        d3:g^-2*t^-1*H_in = Share(r1, w1[1])
        d4:t = Share(d0, w1[0])
        d5:H_in = Unfold(d1, d3)
        Expand(d4)
        d6:H_in = Unfold(d5, d2)
        input i0:N, i1:seq_len, d6:H_in
        weight w1[t, g^-2*t^-1*H_in, g^-1*k^-2*H_in]
    """)
    rows = own_valuations(graph)
    assert max(row.numel(dim.size for dim in (*graph.output, *graph.reduces)) for row in rows) <= 10**9
    assert fingerprint(graph) == fingerprint(normal_form(graph))


def test_the_same_in_every_process():
    code = "import syno; from syno.space.identity.fingerprint import *; print(fingerprint(syno.OPERATORS['operator_1']()))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == fingerprint(OPERATORS["operator_1"]())


# ---- published operators --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_published_operators(artifact: Path):
    operators = read_artifact(artifact)
    by_form = {}
    for operator in operators:
        by_form.setdefault(operator.graph.id, set()).add(fingerprint(operator.graph))
    assert all(len(found) == 1 for found in by_form.values())
    graphs = {operator.graph.name: operator.graph for operator in distinct(operators)}
    assert len({fingerprint(graph) for graph in graphs.values()}) == len(graphs) == 18
    pictures = {name: graph for name, graph in graphs.items() if len(graph.output) == 4}
    for free, same in ((CHANNELS, set()), ({**CHANNELS, **MIRRORED, **ROLLED}, {("published_07883", "published_07889")})):
        found = {name: fingerprint(graph, **free) for name, graph in pictures.items()}
        alike = {pair for pair in itertools.combinations(sorted(found), 2) if found[pair[0]] == found[pair[1]]}
        assert alike == same
    assert same_operator(graphs["published_07889"], OPERATORS["operator_1"]())
    assert same_operator(graphs["published_07754"], OPERATORS["operator_2"]())
