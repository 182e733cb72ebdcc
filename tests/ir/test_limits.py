"""Texts beyond the limits get one line at once; within them, everything that reads operators answers quickly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hostile_texts import ONE, REFUSED, axes, primitives, reductions, shifts, sums_with_weights, views, weights
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from syno.algebra.limits import LARGEST_NUMBER, LIMITS, MOST_HEIGHT
from syno.base.errors import GraphError, ParseError, SizeError, SynoError
from syno.cli import app
from syno.ir.dim import output_axis, shift
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.rewriting import _Numbering, normal_form
from syno.ir.text import parse
from syno.model.module import build

DOCUMENTED = Path(__file__).parents[2] / "docs" / "language.md"


@pytest.mark.parametrize("name", REFUSED)
def test_a_text_beyond_a_limit_is_one_clear_line(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(ParseError) as error:
        parse(text, "mine.txt")
    said = str(error.value)
    assert message in said and said.startswith("mine.txt")
    assert len(said) < 1_100 and said.isprintable()


@pytest.mark.parametrize(
    "name", ["300 Shifts", "40 reductions", "4 megabytes", "a name that leads elsewhere", "a name with NUL"]
)
@pytest.mark.parametrize("command", ["show", "get"])
def test_commands_say_it_in_one_line(command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(REFUSED[name][0], encoding="utf-8")
    result = CliRunner().invoke(app, [command, "mine.txt"])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "text",
    [shifts(MOST_HEIGHT), views(MOST_HEIGHT // 2), views(10, swapped=True), primitives(200), axes(6), reductions(6),
     weights(16), sums_with_weights(5)],
    ids=["shifts", "views", "swapped", "primitives", "axes", "reductions", "weights", "sums"],
)  # fmt: skip
def test_large_operators_within_the_limits_are_shown_and_taken_home(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(text, encoding="utf-8")
    for command in ("show", "get"):
        result = CliRunner().invoke(app, [command, "mine.txt"])
        assert result.exit_code == 0, result.output
    assert normal_form(parse(text)).input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (axes(32), "too large to be compared with its meaning"),
        (reductions(20), "too large to be compared with its meaning"),
        (sums_with_weights(15), "too large to be compared with its meaning"),
        (views(30, swapped=True), "written out, has more than 10000 terms"),
        ("operator e\nvariables H\noutput a:H^40\ninput a:H^40\n", "too large to be compared with its meaning"),
    ],
)
def test_operators_too_large_to_take_home_are_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["get", "mine.txt"])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert message in result.stderr


def test_limits_hold_for_operators_that_are_built_too() -> None:
    (size,) = {dim.size for dim in parse(ONE).output}
    dim = output_axis(0, size)
    for _ in range(MOST_HEIGHT):
        dim = shift(dim, 1)
    with pytest.raises(GraphError, match="at most 64 may lie above each other"):
        shift(dim, 1)
    many = tuple(output_axis(index, size) for index in range(33))
    with pytest.raises(GraphError, match="33 output axes and reductions; at most 32 are allowed"):
        PGraph(many, many)


def test_an_axis_has_a_largest_length() -> None:
    graph = parse("operator e\nvariables H, W\noutput a:H*W\ninput a:H*W\n")
    with pytest.raises(SizeError, match=f"larger than {LARGEST_NUMBER}"):
        build(graph, {"H": 2**16, "W": 2**16})


def test_reductions_of_shared_views_are_found_once_each() -> None:
    """As many ways lead down as there are powers of two; each dim is looked at once."""
    graph = parse(views(30).replace("output d0:H", "output o:H\nd0:H = Reduce()").replace("input ", "input o:H, "))
    assert [str(dim.size) for dim in graph.reduces] == ["H"]


ROWS = st.dictionaries(st.integers(0, 4), st.integers(1, 3), max_size=4)


@given(ROWS, ROWS)
def test_places_with_counts_compare_as_written_out(one: dict[int, int], other: dict[int, int]) -> None:
    """The order of weights' axes in the normal form, which ids of published operators depend on."""
    axis = [output_axis(index, next(iter(parse(ONE).output)).size) for index in range(5)]

    def place(row: dict[int, int]) -> object:
        order = _Numbering(parse(ONE))
        order.standing[axis[0]] = Counter({axis[index]: count for index, count in row.items()})
        return order._place(axis[0])

    def listed(row: dict[int, int]) -> list[int]:
        return sorted(index for index, count in row.items() for _ in range(count))

    assert (place(one) < place(other)) == (listed(one) < listed(other))  # type: ignore[operator]


def test_limits_are_documented() -> None:
    page = DOCUMENTED.read_text(encoding="utf-8")
    for what, most in LIMITS.items():
        assert f"| {what} | {most:,} |" in page


def test_known_operators_are_far_below_the_limits() -> None:
    for make in OPERATORS.values():
        graph = make()
        assert len(graph.operations) + len(graph.reduces) <= 50
        assert len(str(graph)) <= 5_000


@pytest.mark.parametrize("name", ["setup", "conftest"])
def test_a_file_of_the_users_own_is_not_replaced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives an operator away chooses its name."""
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(ONE.replace("shifts", name), encoding="utf-8")
    own = Path(f"{name}.py")
    own.write_text("print('mine')\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["get", "mine.txt"])
    assert (result.exit_code, result.stderr) == (
        2, f"error: {own} is there, and Syno did not write it; give the file to write with --output\n",
    )  # fmt: skip
    assert own.read_text(encoding="utf-8") == "print('mine')\n"
    own.unlink()
    for _ in range(2):  # what Syno wrote, it replaces
        assert CliRunner().invoke(app, ["get", "mine.txt"]).exit_code == 0


@pytest.mark.parametrize("to", ["module", pytest.param("te", marks=pytest.mark.slow)])
def test_a_batch_size_need_not_be_given(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if to == "te":
        pytest.importorskip("tvm")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["get", "conv2d", "--to", to, "--set", "C_in=64,C_out=64,H=4"])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["get", "conv2d", "--to", to, "--set", "C_in=64,C_out=64"])
    assert "no value for H" in result.stderr


@pytest.mark.parametrize("given", ["a" * 300, "a/" * 3_000, "a\0b"])
def test_a_path_that_no_system_takes_is_not_there(given: str) -> None:
    from syno.config.specs import find_spec
    from syno.ir.library import find_operator

    for find in (find_operator, find_spec):
        with pytest.raises(SynoError) as error:
            find(given)
        assert len(str(error.value)) < 1_000
