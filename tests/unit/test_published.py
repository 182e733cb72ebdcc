"""Reading the published operators: small files written here, and the artifact itself where it is at hand."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from published_dot import published_dot
from strategies import pgraphs

from syno.algebra import VariableTable
from syno.errors import ParseError
from syno.ir.builder import Builder
from syno.ir.dot_reader import parse_dot, read_dot
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.normal_form import normal_form, renumbered
from syno.ir.primitives import SHIFT
from syno.ir.published import GRAPH_FILE, LAYERS_FILE, META_FILE, PublishedOperator, distinct, read_artifact, read_folder
from syno.ir.text import parse
from syno.lower.interpreter import check_sizes, interpret, shapes

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


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# ---- drawings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "build"), [(CONVOLUTION, convolution), (VIEWS, views)])
def test_a_drawing_is_the_operator_it_draws(text, build, tmp_path, capfd):
    graph = read_dot(write(tmp_path / "graph.dot", text), TABLE, "name")
    assert graph.id == build().id
    assert graph.name == "name"
    assert capfd.readouterr() == ("", "")


def test_names_and_order_of_lines_mean_nothing():
    for seed in range(20):
        dot = published_dot(OPERATORS["operator_1"](), seed)
        assert parse_dot(dot, OPERATORS["operator_1"]().variables).id == OPERATORS["operator_1"]().id


@given(pgraphs(), st.integers(0, 99))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_operator_is_read_back(graph, seed):
    assume(graph.input)
    assume(all(operation.parameter == 1 for operation in graph.operations if operation.primitive is SHIFT))
    assert parse_dot(published_dot(graph, seed), graph.variables).id == renumbered(graph).id


BROKEN = {
    "no dot": (CONVOLUTION, "digraph kernel {", "digraph kernel", "not in the DOT language: Expected '{'"),
    "cut off": (CONVOLUTION, 'op_0x4 -> reduce_0x7 [label="k"];\n}\n', "", "not in the DOT language"),
    "empty": (CONVOLUTION, CONVOLUTION, "", "not in the DOT language"),
    "undirected": (CONVOLUTION, CONVOLUTION, "graph {}", "one digraph .* of type graph"),
    "two graphs": (CONVOLUTION, CONVOLUTION, CONVOLUTION * 2, "one digraph .* it has 2"),
    "more behind": (CONVOLUTION, CONVOLUTION, CONVOLUTION + "and more", "one digraph and nothing after it"),
    "edge to a group": (CONVOLUTION, "in_0_0 -> out_0", "in_0_0 -> {out_0 out_1}", "an edge from or to a subgraph"),
    "unknown primitive": (
        CONVOLUTION,
        'op_0x1 [label="Unfold"]',
        'op_0x1 [label="Unflod"]',
        'node op_0x1 [label="Unflod"]: unknown primitive "Unflod"; there are: Split, .* Did you mean "Unfold"',
    ),
    "primitive Reduce": (CONVOLUTION, '[label="Unfold"]', '[label="Reduce"]', 'node op_0x1 .* unknown primitive "Reduce"'),
    "unknown reduction": (CONVOLUTION, '6 [label="Sum"', '6 [label="Max"', 'node reduce_0x6 .* unknown reduction "Max"; there is: Sum'),
    "unknown node": (CONVOLUTION, "subgraph cluster_out {", '{ loop_1 [label="Sum"];', "node loop_1 .* a node is named op_"),
    "no label": (CONVOLUTION, 'op_0x1 [label="Unfold"];', "op_0x1;", "node op_0x1: it has no label"),
    "two labels": (CONVOLUTION, "newrank = true;", 'op_0x1 [label="Share"];', 'node op_0x1 .* it already has the label "'),
    "no number": (CONVOLUTION, 'label="H(2)"', 'label="H"', 'node (out|in_0)_2 [label="H"]: the label of an axis'),
    "wrong number": (CONVOLUTION, 'label="C_out(1)"', 'label="C_out(2)"', r'node out_1 .* as in "C_out(1)"'),
    "no size of an axis": (CONVOLUTION, 'label="C_out(1)"', 'label="7(1)"', 'node out_1 .* "7" is not a size'),
    "other size of an axis": (CONVOLUTION, 'label="C_out(1)"', 'label="H(1)"', "edge op_0x2 -> out_1 .* size is C_out, .* is H"),
    "dangling target": (CONVOLUTION, "-> out_1", "-> out_7", 'edge op_0x2 -> out_7 [label="C_out"]: node "out_7" is not declared'),
    "dangling source": (CONVOLUTION, "op_0x2 -> out_1", "op_0x22 -> out_1", 'node "op_0x22" is not declared. Did you mean "op_0x2"'),
    "edge without label": (CONVOLUTION, '-> out_0 [label="N"]', "-> out_0", 'edge in_0_0 -> out_0 [label=""]: the label of an edge'),
    "odd side": (CONVOLUTION, '"k (R->L)"', '"k (R->X)"', "edge op_0x1 -> op_0x4 .* the label of an edge is"),
    "no size": (CONVOLUTION, '"k (R->L)"', '"3 (R->L)"', 'edge op_0x1 -> op_0x4 .* "3" is not a size'),
    "unknown variable": (CONVOLUTION, '"k (R->L)"', '"K (R->L)"', 'edge op_0x1 -> op_0x4 .* unknown variable "K"'),
    "other size": (CONVOLUTION, '"k (R->L)"', '"H (R->L)"', "edge op_0x1 -> op_0x4 .* its size is H, .* data of Share:k"),
    "missing output": (VIEWS, 'op_3 -> op_2 [label="g (L->R)"];', "", "node op_3 .* no edge leads out of it as its L .major"),
    "missing input": (CONVOLUTION, 'in_1_1 -> op_0x3 [label="C_in (->R)"];', "", "node (in_1_1|op_0x3) .* no edge leads"),
    "missing side": (CONVOLUTION, "H (L->)", "H", 'edge op_0x1 -> out_2 .* "" is before the arrow .* L .position. or R .window.'),
    "needless side": (CONVOLUTION, "C_in (->L)", "C_in (L->L)", 'edge in_0_1 -> op_0x3 .* "L" is before .* write nothing'),
    "same slot": (CONVOLUTION, "C_in (->R)", "C_in (->L)", "edge in_1_1 -> op_0x3 .* leads into node op_0x3 .* edge in_0_1 -> .*already"),
    "into an Expand": (CONVOLUTION, "-> out_0", "-> op_0x5", "edge in_0_0 -> op_0x5 .* no edge may lead into node op_0x5"),
    "out of the output": (CONVOLUTION, "in_0_0 -> out_0", "out_0 -> out_0", "no edge may lead out of node out_0"),
    "cycle": (
        VIEWS,
        'in_0_0 -> op_4 [label="g*H"]',
        'op_6 [label="Shift"]; op_7 [label="Shift"]; op_6 -> op_7 [label="H"]; op_7 -> op_6 [label="H"]; in_0_0 -> op_4 [label="g*H"]',
        "the edges form a cycle: op_(6|7) -> op_",
    ),
    "gap in an input": (CONVOLUTION, "in_0_2", "in_0_3", "there is no node in_0_2|as in"),
    "gap in the weights": (CONVOLUTION, "in_1_", "in_2_", "there is no node in_1_0"),
    "no input": (VIEWS, 'in_0_0 [label="g*H(0)"]', 'op_8 [label="Expand"]', 'node "in_0_0" is not declared'),
    "weight at the data side": (CONVOLUTION, "in_0_2 -> op_0x1", "in_1_3 -> op_0x1", "edge in_1_3 -> op_0x1 .* into a Share, as its R"),
    "input at the weight side": (VIEWS, "op_1", "op_1", ""),
    "wrong size of a Merge": (VIEWS, '"H (R->L)"', '"g*H (R->L)"', "edge op_3 -> op_2 .* its size is g.H, .* quotient of Merge:H"),
    "block of 1": (VIEWS, '"g (L->R)"', '"1 (L->R)"', "node op_2 .* Merge carries a block size; given: 1"),
    "stride of 1": (VIEWS, "g*k (R->)", "k (R->)", "node op_5 .* Stride carries a factor"),
    "illegal size": (VIEWS, "g*k (R->)", "g^-1*k (R->)", "node op_5 .* g.-1.k: coefficients may be in a denominator only"),
    "rule of the language": (VIEWS, "(L->)", "(R->)", "x"),
}  # fmt: skip
