"""Tables of named things, and the family of exceptions."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import pytest

from syno.base import errors
from syno.base.errors import SpecError, SynoError, UnknownNameError, suggestion
from syno.base.registry import Registry


@pytest.fixture
def shapes() -> Registry[str]:
    table: Registry[str] = Registry("shape")
    assert table.register("square")("four corners") == "four corners"
    table.register("circle")("none")
    return table


class TestRegistry:
    @pytest.mark.parametrize(
        ("kind", "shown"), [("policy", "policies"), ("way", "ways"), ("recipe of training", "recipes of training")]
    )
    def test_it_prints_its_names(self, kind: str, shown: str) -> None:
        table: Registry[int] = Registry(kind)
        table.register("a")(1)
        assert repr(table) == f"<1 {kind}: a>"
        table.register("b")(2)
        assert repr(table) == f"<2 {shown}: a, b>"

    def test_is_a_mapping_in_order_of_registration(self, shapes: Registry[str]) -> None:
        assert list(shapes) == ["square", "circle"]
        assert len(shapes) == 2
        assert shapes["square"] == "four corners"
        assert dict(shapes) == {"square": "four corners", "circle": "none"}
        assert "circle" in shapes and "triangle" not in shapes
        assert shapes.get("triangle") is None

    def test_decorating_leaves_the_function_as_it_is(self) -> None:
        table: Registry[object] = Registry("thing")

        @table.register("one")
        def function() -> int:
            return 1

        assert function() == 1 and table["one"] is function

    def test_an_unknown_name_is_an_error_that_lists_what_there_is(self, shapes: Registry[str]) -> None:
        with pytest.raises(UnknownNameError) as error:
            shapes["sqare"]
        assert str(error.value) == 'unknown shape "sqare"; there are: square, circle. Did you mean "square"?'
        assert error.value.__cause__ is None and error.value.__suppress_context__

    def test_no_suggestion_where_nothing_is_close(self, shapes: Registry[str]) -> None:
        with pytest.raises(UnknownNameError, match="there are: square, circle.$"):
            shapes["xyz"]

    def test_a_name_is_given_once(self, shapes: Registry[str]) -> None:
        with pytest.raises(ValueError, match='shape "square" is registered already'):
            shapes.register("square")("again")
        assert shapes["square"] == "four corners"

    def test_two_tables_share_nothing(self, shapes: Registry[str]) -> None:
        assert len(Registry[str]("shape")) == 0
        assert len(shapes) == 2


class TestErrors:
    def test_all_are_of_one_family(self) -> None:
        own = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
        assert len(own) >= 8
        assert all(issubclass(kind, SynoError) for kind in own)

    def test_bad_values_are_value_errors_and_unknown_names_key_errors(self) -> None:
        """So that callers who know nothing of Syno catch what they expect."""
        for kind in (errors.SizeError, errors.ValuationError, errors.GraphError, errors.ParseError, errors.ShapeError):
            assert issubclass(kind, ValueError)
        assert issubclass(errors.UnknownNameError, KeyError)
        assert issubclass(errors.LoweringError, RuntimeError)

    def test_suggestions_name_the_closest_or_nothing(self) -> None:
        assert suggestion("Splt", ["Merge", "Split"]) == ' Did you mean "Split"?'
        assert suggestion("Splt", iter(["Merge", "Split"])) == ' Did you mean "Split"?'
        assert suggestion("Splt", []) == suggestion("Splt", ["Merge"]) == ""


class TestFind:
    def test_a_name_or_what_can_be_imported(self, shapes: Registry[str]) -> None:
        assert shapes.find("circle") == "none"
        assert shapes.find("string:digits") == "0123456789"

    def test_the_folder_where_the_command_runs_is_looked_in(
        self, shapes: Registry[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "my_own_shapes.py").write_text("star = 'five'", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        assert shapes.find("my_own_shapes:star") == "five"

    @pytest.mark.parametrize("given", ["string:", ":digits", "strings_there_are_not:x", "string:there_is_none"])
    def test_what_cannot_be_imported(self, shapes: Registry[str], given: str) -> None:
        with pytest.raises(SpecError, match=f'the shape is "{given}"'):
            shapes.find(given)


class TestOwnEntry:
    """An entry by its path; the modules of these tests stand for a user's."""

    whole: Registry[type] = Registry("kind of number", accepts=lambda found: isinstance(found, type), needed="a class")

    def test_is_found_by_its_path(self) -> None:
        assert self.whole.find("fractions:Fraction") is Fraction

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("fractions:gcd", 'has no "gcd"'),
            ("no_such_module:Number", 'the kind of number is "no_such_module:Number", which cannot be imported'),
            ("fractions:", "it must be something that can be imported"),
            ("math:pi", 'the kind of number is "math:pi", which is 3.14159.*; it must be a class'),
            ("complex", 'unknown kind of number "complex"; .* Your own is "package.module:name"'),
        ],
    )
    def test_a_mistake_is_one_clear_error(self, given: str, message: str) -> None:
        with pytest.raises(errors.SynoError, match=message):
            self.whole.find(given)
