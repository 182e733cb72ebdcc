"""Drawings that are too large, or written to take forever, are refused in time linear in their length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from published_dot import published_dot

import syno
from syno.algebra import VariableTable
from syno.base.errors import ParseError
from syno.ir.library import OPERATORS
from syno.ir.rewriting import renumbered
from syno.paper.artifact.dot_file import parse_dot, read_dot
from syno.paper.artifact.files import META
from syno.paper.artifact.published_operator import read_folder

TABLE = VariableTable.parse("N, C_in, C_out, H; g, k")
HEAD = "digraph kernel {\n"
MANY = {
    "braces": (HEAD + "{" * 500 + "}" * 501, "more than 3 braces inside each other"),
    "8 braces": (HEAD + "{" * 8 + "}" * 9, "more than 3 braces inside each other"),
    "subgraphs": (HEAD + "{ }\n" * 500 + "}", "more than 60 subgraphs"),
    "statements": (HEAD + "a;" * 9_000 + "}", "more than 400 names"),
    "edges": (HEAD + " -> ".join(f"op_{n}" for n in range(1_500)) + ";}", "more than 400 names"),
    "attributes": (HEAD + "a [" + "a=b," * 4_000 + "a=b];}", "more than 3000 words"),
    "semicolons": (HEAD + ";" * 19_000 + "}", "more than 3000 words"),
    "empty quotes": (HEAD + '"' * 9_000, "more than 400 names"),
    "megabytes": (HEAD + "a;" * 900_000 + "}", "a drawing has at most 20000"),
    "markup": (HEAD + "a [label=<" + "<b>" * 300 + ">];}", "not in the DOT language of drawings"),
    "ports": (HEAD + "a:b:c " * 3_000 + "}", "not in the DOT language of drawings"),
    "joined texts": (HEAD + 'a [label="x"' + '+"y"' * 4_000 + "];}", "not in the DOT language of drawings"),
    "NUL": (HEAD + "\0}", "not in the DOT language of drawings"),
    "a number in a name": (HEAD + f'in_0_{"9" * 5_000} [label="H(0)"];}}', "a node is named op_"),
    "the number of an axis": (HEAD + f'out_0 [label="H({"9" * 5_000})"];}}', "the label of an axis"),
    "an exponent": (HEAD + f'out_0 [label="H^{"9" * 5_000}(0)"];}}', "is not a size"),
    "a name": (HEAD + f'op_{"x" * 15_000} [label="Shft"];}}', "unknown primitive"),
    "nothing": ("", "not in the DOT language"),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_a_hostile_drawing_is_one_clear_line(name: str) -> None:
    text, message = MANY[name]
    with pytest.raises(ParseError) as error:
        parse_dot(text, TABLE, source="graph.dot")
    said = str(error.value)
    assert said.startswith("graph.dot: ") and message in said
    assert len(said) < 1_100 and said.isprintable()


def test_a_long_way_down_is_one_clear_line() -> None:
    nodes = "".join(f'op_{n} [label="Shift"];\n' for n in range(100))
    edges = "".join(f'op_{n} -> op_{n + 1} [label="H"];\n' for n in range(99))
    ends = 'out_0 [label="H(0)"];\nin_0_0 [label="H(0)"];\nin_0_0 -> op_0 [label="H"];\nop_99 -> out_0 [label="H"];\n'
    with pytest.raises(ParseError, match="more than 64 primitives lie below it"):
        parse_dot(f"{HEAD}{nodes}{edges}{ends}}}", TABLE)


def test_drawings_of_large_known_operators_are_within_the_limits() -> None:
    for name in ("operator_1", "nas_pte_sequence_3", "stacked_convolution"):
        graph = OPERATORS[name]()
        assert parse_dot(published_dot(graph, 1), graph.variables) == renumbered(graph)


def test_a_file_that_is_larger_than_memory_is_not_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "graph.dot"
    with file.open("wb") as opened:
        opened.truncate(10**12)  # without a byte on the disk
    with pytest.raises(ParseError, match="characters; a drawing has at most 20000"):
        read_dot(file, syno.parse("variables H\noutput a:H\ninput a:H").variables)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[" * 100_000, "too many lists and objects inside each other"), (f'{{"path": {"9" * 5_000}}}', "cannot be read as JSON"),
     (json.dumps({"path": "x" * 2_000_000}), "more than 1000000 bytes")],
    ids=["brackets", "digits", "megabytes"],
)  # fmt: skip
def test_hostile_records_beside_a_drawing(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / META).write_text(text, encoding="utf-8")
    with pytest.raises(ParseError, match=message) as error:
        read_folder(tmp_path)
    assert len(str(error.value).splitlines()) == 1
