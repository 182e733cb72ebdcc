"""Fingerprints: equal for one operator however it is written, different for different operators."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from syno.algebra import VariableTable
from syno.errors import GraphError, ValuationError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.normal_form import normal_form
from syno.ir.published import distinct, read_artifact
from syno.ir.text import parse
from syno.space.agreement import tiny_valuations
from syno.space.fingerprint import fingerprint, same_operator

CHANNELS = {"unordered_output": [1], "unordered_input": [1]}
ROLLED = {"rolled_output": [2, 3], "rolled_input": [2, 3]}
MIRRORED = {"mirrors": [((2, 3), (2, 3))]}


def op(body: str) -> PGraph:
    """An operator from its text, with lines separated by "; "."""
    return parse("operator test\nvariables N, C, D, H; b, c, k, s, t\n" + body.replace("; ", "\n"))


# ---- one operator, written in several ways --------------------------------------------------------------------------

SAME = {
    "V1, a Split below a Merge": (
        "output i:b*H, j:c; a:b*c*H = Split(i, j); q:H, r:b*c = Merge(a, b*c); input q:H, r:b*c",
        "output i:b*H, j:c; q:H, m:b = Merge(i, b); r:b*c = Split(m, j); input q:H, r:b*c",
    ),
    "V2, Merges chained on the quotient": (
        "output i:b*c*H; q:c*H, r:b = Merge(i, b); p:H, m:c = Merge(q, c); input p:H, m:c, r:b",
        "output i:b*c*H; p:H, q:b*c = Merge(i, b*c); m:c, r:b = Merge(q, b); input p:H, m:c, r:b",
    ),
    "V3, Splits chained on the major": (
        "output i:H, j:b, l:c; a:b*H = Split(i, j); d:b*c*H = Split(a, l); input d:b*c*H",
        "output i:H, j:b, l:c; a:b*c = Split(j, l); d:b*c*H = Split(i, a); input d:b*c*H",
    ),
    "V4, a Split that undoes a Merge": (
        "output i:b*H; q:H, r:b = Merge(i, b); a:b*H = Split(q, r); input a:b*H",
        "output i:b*H; input i:b*H",
    ),
    "V5, Shifts add": (
        "output i:H; a:H = Shift(i, 1); d:H = Shift(a, 2); input d:H",
        "output i:H; d:H = Shift(i, 3); input d:H",
    ),
    "V5, Shifts that cancel": (
        "output i:H; a:H = Shift(i, 1); d:H = Shift(a, -1); input d:H",
        "output i:H; input i:H",
    ),
    "V7, Strides multiply": (
        "output i:H; r:k = Reduce(); a:k*s = Stride(r, s); d:k*s*t = Stride(a, t); e:H = Unfold(i, d); input e:H",
        "output i:H; r:k = Reduce(); d:k*s*t = Stride(r, s*t); e:H = Unfold(i, d); input e:H",
    ),
    "V8, a Stride above a Split": (
        "output i:H; r:k = Reduce(); p:c = Reduce(); a:c*k = Split(r, p); d:c*k*s = Stride(a, s); "
        "e:H = Unfold(i, d); input e:H",
        "output i:H; r:k = Reduce(); p:c = Reduce(); a:c*s = Stride(p, s); d:c*k*s = Split(r, a); "
        "e:H = Unfold(i, d); input e:H",
    ),
    "V9, a Merge above a Stride that divides its block": (
        "output i:H, j:H; r:b*k = Reduce(); a:b*k*s = Stride(r, s); q:k, m:b*s = Merge(a, b*s); "
        "d:H = Unfold(i, q); e:H = Unfold(j, m); input d:H, e:H",
        "output i:H, j:H; r:b*k = Reduce(); q:k, p:b = Merge(r, b); m:b*s = Stride(p, s); "
        "d:H = Unfold(i, q); e:H = Unfold(j, m); input d:H, e:H",
    ),
    "V16, a Merge above a Share": (
        "output i:b*H; a:b*H = Share(i, w1[0]); q:H, r:b = Merge(a, b); input q:H, r:b; weight w1[b*H]",
        "output i:b*H; p:H, m:b = Merge(i, b); r:b = Share(m, w1[0]); q:H = Share(p, w1[1]); input q:H, r:b; weight w1[b, H]",
    ),
    "V16, a Shift above a Share": (
        "output i:H; a:H = Share(i, w1[0]); d:H = Shift(a, 1); input d:H; weight w1[H]",
        "output i:H; a:H = Shift(i, 1); d:H = Share(a, w1[0]); input d:H; weight w1[H]",
    ),
    "V17, a Merge of a Reduce": (
        "output i:H; r:b*C = Reduce(); q:C, m:b = Merge(r, b); input i:H, q:C, m:b",
        "output i:H; q:C = Reduce(); m:b = Reduce(); input i:H, q:C, m:b",
    ),
    "V17, a Split of Reduces": (
        "output i:H; q:C = Reduce(); m:b = Reduce(); r:b*C = Split(q, m); input i:H, r:b*C",
        "output i:H; r:b*C = Reduce(); input i:H, r:b*C",
    ),
    "V18, a Shift of a Reduce": (
        "output i:H; r:C = Reduce(); a:C = Shift(r, 1); input i:H, a:C",
        "output i:H; r:C = Reduce(); input i:H, r:C",
    ),
    "V21, a Split of two shared with one weight": (
        "output i:H; q:C = Reduce(); m:b = Reduce(); d:C = Share(q, w1[0]); e:b = Share(m, w1[1]); a:b*C = Split(d, e); "
        "input i:H, a:b*C; weight w1[C, b]",
        "output i:H; q:C = Reduce(); m:b = Reduce(); d:b*C = Split(q, m); a:b*C = Share(d, w1[0]); "
        "input i:H, a:b*C; weight w1[b*C]",
    ),
    "the order of weights": (
        "output i:H; r:C = Reduce(); a:H = Share(i, w1[0]); d:C = Share(r, w2[0]); e:H = Share(a, w2[1]); "
        "input e:H, d:C; weight w1[H]; weight w2[C, H]",
        "output i:H; r:C = Reduce(); d:C = Share(r, w1[0]); e:H = Share(i, w1[1]); a:H = Share(e, w2[0]); "
        "input a:H, d:C; weight w1[C, H]; weight w2[H]",
    ),
    "a weight's axes": (
        "output i:H; r:C = Reduce(); d:C = Share(r, w1[0]); e:H = Share(i, w1[1]); input e:H, d:C; weight w1[C, H]",
        "output i:H; r:C = Reduce(); e:H = Share(i, w1[0]); d:C = Share(r, w1[1]); input e:H, d:C; weight w1[H, C]",
    ),
}


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


# ---- different operators --------------------------------------------------------------------------------------------

DIFFERENT = {
    "V6, a Shift above or below a Merge": (
        "output i:b*H; a:b*H = Shift(i, 1); q:H, r:b = Merge(a, b); input q:H, r:b",
        "output i:b*H; q:H, m:b = Merge(i, b); r:b = Shift(m, 1); input q:H, r:b",
    ),
    "V11, zeros beyond the border, or beyond that of a block": (
        "output i:H, j:c; r:k = Reduce(); a:c*H = Split(i, j); d:c*H = Unfold(a, r); input d:c*H",
        "output i:H, j:c; r:k = Reduce(); a:c = Unfold(j, r); d:c*H = Split(i, a); input d:c*H",
    ),
    "V12, an Unfold below a Merge, or above it": (
        "output i:c*H; r:k = Reduce(); a:c*H = Unfold(i, r); q:H, m:c = Merge(a, c); input q:H, m:c",
        "output i:c*H; r:k = Reduce(); q:H, a:c = Merge(i, c); m:c = Unfold(a, r); input q:H, m:c",
    ),
    "V14, a Shift above or below an Unfold": (
        "output i:H; r:k = Reduce(); a:H = Shift(i, 1); d:H = Unfold(a, r); input d:H",
        "output i:H; r:k = Reduce(); a:H = Unfold(i, r); d:H = Shift(a, 1); input d:H",
    ),
    "one more Shift": ("output i:H, j:H; a:H = Shift(j, 1); input i:H, a:H", "output i:H, j:H; input i:H, j:H"),
    "Shifts either way": ("output i:H; a:H = Shift(i, 1); input a:H", "output i:H; a:H = Shift(i, -1); input a:H"),
    "transposed": ("output i:H, j:H; input i:H, j:H", "output i:H, j:H; input j:H, i:H"),
    "shuffled": (
        "output i:b*c*H; q:H, r:b*c = Merge(i, b*c); m:b, p:c = Merge(r, c); a:b*c = Split(p, m); d:b*c*H = Split(q, a); "
        "input d:b*c*H",
        "output i:b*c*H; input i:b*c*H",
    ),
    "windows of k and of c": (
        "output i:H; r:k = Reduce(); a:H = Unfold(i, r); input a:H",
        "output i:H; r:c = Reduce(); a:H = Unfold(i, r); input a:H",
    ),
    "a weight instead of a sum": (
        "output i:H; r:C = Reduce(); a:C = Share(r, w1[0]); input i:H, a:C; weight w1[C]",
        "output i:H; r:C = Reduce(); input i:H, r:C",
    ),
    "a factor": ("output i:H; r:C = Reduce(); Expand(r); input i:H", "output i:H; input i:H"),
    "a weight for each row or each column": (
        "output i:H, j:H; a:H = Share(i, w1[0]); input a:H, j:H; weight w1[H]",
        "output i:H, j:H; a:H = Share(j, w1[0]); input i:H, a:H; weight w1[H]",
    ),
    "two weights in place of one, with as many elements": (
        "output i:H; r:H = Reduce(); a:H = Share(i, w1[0]); d:H = Share(r, w1[1]); Expand(a); input d:H; weight w1[H, H]",
        "output i:H; r:H = Reduce(); a:H = Share(i, w1[0]); d:H = Share(r, w2[0]); Expand(a); input d:H; "
        "weight w1[H]; weight w2[H]",
    ),
    "one window read by two weights, or two windows": (
        "output i:H; r:k = Reduce(); p:k = Reduce(); a:k = Share(r, w1[0]); d:k = Share(a, w2[0]); Expand(p); "
        "e:H = Unfold(i, d); input e:H; weight w1[k]; weight w2[k]",
        "output i:H; r:k = Reduce(); p:k = Reduce(); a:k = Share(r, w1[0]); d:k = Share(p, w2[0]); Expand(a); "
        "e:H = Unfold(i, d); input e:H; weight w1[k]; weight w2[k]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_operators(name):
    first, second = map(op, DIFFERENT[name])
    assert not same_operator(first, second)


def known_pictures() -> list[PGraph]:
    """The known operators on pictures, with the same variable for the size of any window."""
    graphs = [make() for make in OPERATORS.values()]
    texts = [str(graph).split("\nid ")[0] for graph in graphs if len(graph.input) == len(graph.output) == 4]
    return [parse(text.replace("k_1", "k")) for text in texts]


@pytest.mark.parametrize(
    ("free", "alike"),
    [
        ({}, {"nas_pte_sequence_2 grouped_conv2d"}),  # the unrolled loop is an axis of the weight
        (CHANNELS, {"nas_pte_sequence_1 nas_pte_sequence_2 grouped_conv2d"}),  # the parts are interleaved channels
    ],
    ids=["ordered", "unordered"],
)
def test_known_operators_differ(free, alike):
    graphs = known_pictures()
    rows = tiny_valuations([size for graph in graphs for size in graph.sizes])
    names: dict[str, list[str]] = {}
    for graph in graphs:
        names.setdefault(fingerprint(graph, valuations=rows, **free), []).append(graph.name)
    assert {" ".join(same) for same in names.values() if len(same) > 1} == alike


def test_known_operators_differ_when_moved():
    graphs = known_pictures()
    assert len({fingerprint(graph, **CHANNELS, **MIRRORED) for graph in graphs}) == len(graphs)
    assert len({fingerprint(graph, **CHANNELS, **ROLLED) for graph in graphs}) == len(graphs)


def test_other_windows_and_transposed_pictures():
    conv2d = str(OPERATORS["conv2d"]()).split("\nid ")[0]
    transposed = parse(conv2d.replace("input i0:N, d1:C_in, d3:H, d5:H", "input i0:N, d1:C_in, d5:H, d3:H"))
    wider = parse(conv2d.replace("k=3", "k=5, l=3").replace("r2:k", "r2:l").replace("d4:k", "d4:l").replace("k, k]", "k, l]"))
    for other in (transposed, wider):
        assert not same_operator(parse(conv2d), other)
        assert not same_operator(parse(conv2d), other, **CHANNELS, **MIRRORED, **ROLLED)


# ---- unordered axes -------------------------------------------------------------------------------------------------

SHUFFLE = "output n:N, i:b*C, y:H; q:C, r:b = Merge(i, b); a:b*C = Split(r, q); input n:N, a:b*C, y:H"
PLAIN = "output n:N, i:b*C, y:H; input n:N, i:b*C, y:H"
CARRY = (  # the next channel, in the last row only
    "output n:N, i:b*C, y:H; a:b*C*H = Split(i, y); d:b*C*H = Shift(a, 1); q:b*C, r:H = Merge(d, H); input n:N, q:b*C, r:H"
)
ROLL = "output n:N, i:b*C, y:H; r:H = Shift(y, 1); input n:N, i:b*C, r:H"


@pytest.mark.parametrize("free", [{"unordered_output": [1]}, {"unordered_input": [1]}, CHANNELS], ids=str)
def test_channels_in_another_order(free):
    assert not same_operator(op(SHUFFLE), op(PLAIN))
    assert same_operator(op(SHUFFLE), op(PLAIN), **free)


def test_one_order_of_channels_for_all_positions():
    assert not same_operator(op(CARRY), op(ROLL), **CHANNELS)


def test_other_axes_stay_ordered():
    assert not same_operator(op(ROLL), op(PLAIN), **CHANNELS)
    assert not same_operator(op(SHUFFLE), op(PLAIN), unordered_output=[2])


def test_one_ring_of_channels_or_many():
    """Every element of both has the same neighbourhood: only marking tells them apart."""
    ring = op(
        "output i:s*C; r:s = Reduce(); d:s*C = Share(i, w1[0]); e:s = Share(r, w1[1]); a:s^2*C = Split(d, e); "
        "f:s^2*C = Shift(a, 1); q:s*C, m:s = Merge(f, s); Expand(m); input q:s*C; weight w1[s*C, s]"
    )
    groups = op(
        "output i:s*C; r:s = Reduce(); d:s*C = Share(i, w1[0]); e:s = Share(r, w1[1]); q:C, m:s = Merge(d, s); Expand(m); "
        "a:s*C = Split(q, e); input a:s*C; weight w1[s*C, s]"
    )
    assert not same_operator(ring, groups, unordered_output=[0], unordered_input=[0])


def test_every_channel_once_or_one_of_them_often():
    """As many summands for every element, whichever look alike; a weight's elements that do are fewer."""
    rest = "; r:C = Reduce(); p:k = Reduce(); q:s = Reduce(); d:k = Share(p, w1[0]); e:s = Share(q, w1[1]); Expand(e); "
    mixed = op("output i:C" + rest + "Expand(i); input d:k, r:C; weight w1[k, s]")
    kept = op("output i:C" + rest + "Expand(r); input d:k, i:C; weight w1[k, s]")
    assert not same_operator(mixed, kept, unordered_output=[0], unordered_input=[1])


# ---- rolled and mirrored pictures -----------------------------------------------------------------------------------


def moved_operator_1(mirrored: bool, rolled: bool) -> PGraph:
    """Operator 1, its rows and columns exchanged, or the input's rows rotated.

    Source: the published operators 07883 (rolled) and 07835 (both).
    """
    build = Builder("N, C_in, C_out, H; g=32, k_1=3, s=2")
    n, o, y, x = build.output("N, C_out, H, H")
    i, j = build.reduce("k_1, k_1")
    q, c, p = build.reduce("g, g^-1*C_in, g^-1*s^-1*C_out")
    q, i, j, p = build.contract(outer=[o], inner=[q, i, j, p])
    channel, j = build.contract(outer=[p], inner=[build.split(q, c), j])
    rows, columns = (build.unfold(y, j), build.unfold(x, i)) if mirrored else (build.unfold(y, i), build.unfold(x, j))
    return build.finish([n, channel, build.shift(rows, 1) if rolled else rows, columns])


@pytest.mark.parametrize(("mirrored", "rolled"), [(True, False), (False, True), (True, True)])
def test_moved_pictures(mirrored, rolled):
    plain, moved = OPERATORS["operator_1"](), moved_operator_1(mirrored, rolled)
    assert same_operator(plain, moved_operator_1(False, False), **CHANNELS)
    for with_mirrors, with_rolls in itertools.product([False, True], repeat=2):
        free = {**CHANNELS, **(MIRRORED if with_mirrors else {}), **(ROLLED if with_rolls else {})}
        assert same_operator(plain, moved, **free) == (mirrored <= with_mirrors and rolled <= with_rolls)


def test_a_shift_of_some_channels_stays():
    for name in ("shift_conv1x1", "shift_rows_conv1x1"):
        assert not same_operator(OPERATORS[name](), OPERATORS["conv1x1"](), **CHANNELS, **ROLLED)


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


def test_axes_that_are_not_there():
    graph = OPERATORS["conv2d"]()
    with pytest.raises(GraphError, match="has no output axis 4; its axes are 0 to 3"):
        fingerprint(graph, unordered_output=[4])
    with pytest.raises(GraphError, match="has no input axis -1"):
        fingerprint(graph, rolled_input=[-1])
    with pytest.raises(GraphError, match="input axes 1 and 2 are mirrored, but have sizes C_in and H"):
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


def test_the_same_in_every_process():
    code = "import syno; from syno.space.fingerprint import *; print(fingerprint(syno.OPERATORS['operator_1']()))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == fingerprint(OPERATORS["operator_1"]())


# ---- published operators --------------------------------------------------------------------------------------------


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
