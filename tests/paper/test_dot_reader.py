"""Reading drawings in the published dialect: small ones written here, and random operators drawn in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from published_dot import published_dot
from strategies import pgraphs

from syno.algebra import VariableTable
from syno.base.errors import ParseError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.primitives import SHIFT
from syno.ir.rewriting import renumbered
from syno.paper.artifact.dot_file import parse_dot, read_dot

VARIABLES = "N, C_in, C_out, H; g, k"
TABLE = VariableTable.parse(VARIABLES)

CONVOLUTION = """digraph kernel {
newrank = true;
op_0x1 [label="Unfold"];
op_0x2 [label="Share"];
op_0x3 [label="Share"];
op_0x4 [label="Share"];
op_0x5 [label="Expand"];
reduce_0x6 [label="Sum", shape=box];
reduce_0x7 [label="Sum", shape=box];
subgraph cluster_out {
label = "Output";
out_0 [label="N(0)", shape=none];
out_1 [label="C_out(1)", shape=none];
out_2 [label="H(2)", shape=none];
}
{ rank = same;
reduce_0x6;
out_0;
}
subgraph cluster_in_0 {
in_0_0 [label="N(0)", shape=none];
in_0_1 [label="C_in(1)", shape=none];
in_0_2 [label="H(2)", shape=none];
}
subgraph cluster_in_1 {
in_1_0 [label="C_out(0)", shape=none];
in_1_1 [label="C_in(1)", shape=none];
in_1_2 [label="k(2)", shape=none];
}
in_0_0 -> out_0 [label="N"];
in_0_1 -> op_0x3 [label="C_in (->L)"];
in_0_2 -> op_0x1 [label="H"];
in_1_0 -> op_0x2 [label="C_out (->R)"];
in_1_1 -> op_0x3 [label="C_in (->R)"];
in_1_2 -> op_0x4 [label="k (->R)"];
op_0x5 -> op_0x2 [label="C_out (->L)"];
op_0x2 -> out_1 [label="C_out"];
op_0x1 -> out_2 [label="H (L->)"];
op_0x1 -> op_0x4 [label="k (R->L)"];
op_0x3 -> reduce_0x6 [label="C_in"];
op_0x4 -> reduce_0x7 [label="k"];
}
"""

VIEWS = """digraph kernel {
op_1 [label="Shift"]; op_2 [label="Merge"]; op_3 [label="Split"]; op_4 [label="Unfold"]; op_5 [label="Stride"];
reduce_1 [label="Sum"];
out_0 [label="g*H(0)"];
in_0_0 [label="g*H(0)"];
op_1 -> out_0 [label="g*H"];
op_2 -> op_1 [label="g*H"];
op_3 -> op_2 [label="H (R->L)"];
op_3 -> op_2 [label="g (L->R)"];
op_4 -> op_3 [label="g*H (L->)"];
op_4 -> op_5 [label="g*k (R->)"];
op_5 -> reduce_1 [label="k"];
in_0_0 -> op_4 [label="g*H"];
}
"""


def convolution() -> PGraph:
    build = Builder(VARIABLES)
    n, o, h = build.output("N, C_out, H")
    c, i = build.reduce("C_in, k")
    c, i = build.contract(outer=[o], inner=[c, i])
    return build.finish([n, c, build.unfold(h, i)])


def views() -> PGraph:
    build = Builder(VARIABLES)
    (i,) = build.output("g*H")
    (window,) = build.reduce("k")
    quotient, remainder = build.merge(build.shift(i, 1), "g")
    return build.finish([build.unfold(build.split(remainder, quotient), build.stride(window, "g"))])


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "graph.dot"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("text", "build"), [(CONVOLUTION, convolution), (VIEWS, views)])
def test_a_drawing_is_the_operator_it_draws(text, build, tmp_path, capfd):
    graph = read_dot(write(tmp_path, text), TABLE, "name")
    assert graph.id == build().id
    assert graph.name == "name"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["operator_1", "stacked_convolution", "gpt2_projection"])
def test_names_and_order_of_lines_mean_nothing(name):
    graph = OPERATORS[name]()
    read = {parse_dot(published_dot(graph, seed), graph.variables).id for seed in range(5)}
    assert read == {renumbered(graph).id}


@pytest.mark.slow
@given(pgraphs(), st.integers(0, 99))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_operator_is_read_back(graph, seed):
    assume(graph.input)
    assume(all(operation.parameter == 1 for operation in graph.operations if operation.primitive is SHIFT))
    assert parse_dot(published_dot(graph, seed), graph.variables).id == renumbered(graph).id


NOTHING_LEFT = 'digraph { reduce_1 [label="Sum"]; in_0_0 [label="H(0)"]; in_0_0 -> reduce_1 [label="H"]; }'
WEIGHT_TO_OUTPUT = 'in_1_3 [label="H(3)"]; out_3 [label="H(3)"]; in_1_3 -> out_3 [label="H"];'
SKIPPING = """digraph {
op_1 [label="Stride"]; out_0 [label="H(0)"]; in_0_0 [label="g*H(0)"];
op_1 -> out_0 [label="H"]; in_0_0 -> op_1 [label="g*H"];
}"""

# A good drawing, what is replaced in it, and what the message must hold.
BROKEN: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "brace missing": (CONVOLUTION, {"kernel {": "kernel"}, ["not in the DOT language: ", "line:2"]),
    "cut off": (CONVOLUTION, {'[label="k"];\n}\n': '[label="k"];'}, ["not in the DOT language: Expected"]),
    "undirected": (CONVOLUTION, {CONVOLUTION: "graph {}"}, ["one digraph", "of type graph"]),
    "two graphs": (CONVOLUTION, {CONVOLUTION: CONVOLUTION * 2}, ["one digraph", "has 2"]),
    "more behind": (CONVOLUTION, {CONVOLUTION: CONVOLUTION + "and more"}, ["one digraph and nothing after it"]),
    "group": (CONVOLUTION, {"in_0_0 -> out_0": "in_0_0 -> {out_0 out_1}"}, ["an edge from or to a subgraph"]),
    "unknown primitive": (
        CONVOLUTION,
        {"Unfold": "Unflod"},
        ['node op_0x1 [label="Unflod"]: unknown primitive "Unflod"; there are: Split, Merge, Shift', 'Did you mean "Unfold"?'],
    ),
    "Reduce as operation": (CONVOLUTION, {"Unfold": "Reduce"}, ['node op_0x1 [label="Reduce"]: unknown primitive']),
    "unknown reduction": (
        CONVOLUTION,
        {'6 [label="Sum"': '6 [label="Max"'},
        ['node reduce_0x6 [label="Max"]', "there is: Sum"],
    ),
    "unknown node": (
        CONVOLUTION,
        {"newrank = true;": 'loop_1 [label="Sum"];'},
        ['node loop_1 [label="Sum"]: a node is named op_'],
    ),
    "no label": (CONVOLUTION, {'op_0x1 [label="Unfold"];': "op_0x1;"}, ["node op_0x1: it has no label"]),
    "two labels": (
        CONVOLUTION,
        {"newrank = true;": 'op_0x1 [label="Share"];'},
        ["node op_0x1 [label=", "it already has the label"],
    ),
    "axis without number": (CONVOLUTION, {"C_out(1)": "C_out"}, ['node out_1 [label="C_out"]', 'as in "C_out(1)"']),
    "wrong number": (CONVOLUTION, {"C_out(1)": "C_out(2)"}, ['node out_1 [label="C_out(2)"]', 'as in "C_out(1)"']),
    "axis without size": (CONVOLUTION, {"C_out(1)": "7(1)"}, ['node out_1 [label="7(1)"]: "7" is not a size']),
    "other size of axis": (
        CONVOLUTION,
        {"C_out(1)": "H(1)"},
        ['edge op_0x2 -> out_1 [label="C_out"]', "its size is C_out", "is H"],
    ),
    "dangling target": (
        CONVOLUTION,
        {"-> out_1": "-> out_7"},
        ['op_0x2 -> out_7 [label="C_out"]: node "out_7" is not declared'],
    ),
    "dangling source": (CONVOLUTION, {"op_0x2 ->": "op_0x22 ->"}, ["op_0x22 -> out_1", 'not declared. Did you mean "op_0x2"']),
    "edge without label": (
        CONVOLUTION,
        {'-> out_0 [label="N"]': "-> out_0"},
        ["edge in_0_0 -> out_0", 'is "size" or "size (from->to)"'],
    ),
    "unknown side": (CONVOLUTION, {"(R->L)": "(R->X)"}, ['edge op_0x1 -> op_0x4 [label="k (R->X)"]', '"size (from->to)"']),
    "no size": (CONVOLUTION, {"k (R->L)": "3 (R->L)"}, ["edge op_0x1 -> op_0x4", '"3" is not a size']),
    "unknown variable": (CONVOLUTION, {"k (R->L)": "K (R->L)"}, ["edge op_0x1 -> op_0x4", 'unknown variable "K"']),
    "other size": (CONVOLUTION, {"k (R->L)": "H (R->L)"}, ["edge op_0x1 -> op_0x4", "its size is H", "data of Share:k"]),
    "Split, one output": (
        VIEWS,
        {'op_3 -> op_2 [label="g (L->R)': 'op_6 [label="Expand"]; op_6 -> op_2 [label="g (->R)'},
        ['node op_3 [label="Split"]: no edge leads out of it as its L (major); it needs: L (major) and R (minor)'],
    ),
    "Share, no weight": (
        CONVOLUTION,
        {'in_1_1 -> op_0x3 [label="C_in (->R)"];': ""},
        ["node op_0x3", "into it as its R (weight)"],
    ),
    "side missing": (
        CONVOLUTION,
        {"H (L->)": "H"},
        ['op_0x1 -> out_2 [label="H"]: nothing is before', "L (position) or R (window)"],
    ),
    "side too many": (CONVOLUTION, {"C_in (->L)": "C_in (L->L)"}, ["edge in_0_1 -> op_0x3", "L is before", "so write nothing"]),
    "same slot": (
        CONVOLUTION,
        {"C_in (->R)": "C_in (->L)"},
        ["edge in_0_1 -> op_0x3", "edge in_1_1 -> op_0x3", "already does"],
    ),
    "into an Expand": (CONVOLUTION, {"-> out_0": "-> op_0x5"}, ["in_0_0 -> op_0x5", "no edge may lead into node op_0x5"]),
    "out of an output": (CONVOLUTION, {"in_0_0 -> out_0": "out_0 -> out_0"}, ["no edge may lead out of node out_0"]),
    "gap in the weights": (CONVOLUTION, {"in_1_": "in_2_"}, ["there is no node in_1_0"]),
    "size of a Merge": (VIEWS, {"H (R->L)": "g*H (R->L)"}, ["edge op_3 -> op_2", "its size is g*H", "quotient of Merge:H"]),
    "block of 1": (VIEWS, {"g (L->R)": "1 (L->R)"}, ['node op_2 [label="Merge"]: Merge carries a block size']),
    "factor of 1": (VIEWS, {"g*k (R->)": "k (R->)"}, ['node op_5 [label="Stride"]: Stride carries a factor']),
    "illegal size": (VIEWS, {"g*k (R->)": "g^-1*k (R->)"}, ["node op_5", "only beside a primary"]),
    "cycle": (
        VIEWS,
        {
            "in_0_0 ->": """op_6 [label="Shift"]; op_7 [label="Shift"]; op_8 [label="Shift"];
            op_6 -> op_7 [label="H"]; op_7 -> op_8 [label="H"]; op_8 -> op_6 [label="H"]; in_0_0 ->"""
        },
        ["the edges form a cycle: op_", "op_6 -> op_7"],
    ),
    "gap in the axes": (CONVOLUTION, {"in_0_2": "in_0_3", "H(2)": "H(3)", "out_2": "out_3"}, ["there is no node out_2: axes"]),
    "axis twice": (CONVOLUTION, {"in_0_2": "in_0_02"}, ['node in_0_02 [label="H(2)"]: a node is named']),
    "no input": (VIEWS, {"in_0_0": "in_1_0"}, ["there is no node in_0_0"]),
    "no output": (NOTHING_LEFT, {}, ["there is no node out_0"]),
    "weight not shared": (
        CONVOLUTION,
        {"newrank = true;": WEIGHT_TO_OUTPUT},
        ["edge in_1_3 -> out_3", "into a Share, as its R (weight)"],
    ),
    "input as weight": (
        CONVOLUTION,
        {"in_0_1 ->": "in_1_1 =>", "in_1_1 ->": "in_0_1 ->", "=>": "->"},
        ['edge in_0_1 -> op_0x3 [label="C_in (->R)"]: the R (weight) of a Share must come from an axis of a weight'],
    ),
    "rule of the language": (SKIPPING, {}, ["axis of Stride:g*H indexes the input through a Stride"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_drawing_is_one_clear_error(name, tmp_path, capfd):
    text, replaced, wanted = BROKEN[name]
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    path = write(tmp_path, text)
    with pytest.raises(ParseError) as caught:
        read_dot(path, TABLE)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.count(str(path)) == 1
    assert [part for part in wanted if part not in message] == [], message
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "graph.dot").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "graph.dot", tmp_path / "absent.dot", tmp_path):
        with pytest.raises(ParseError, match="cannot be read as text") as caught:
            read_dot(path, TABLE)
        assert str(path) in str(caught.value)
