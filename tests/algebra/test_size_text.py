"""Sizes as text and as source."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from small_sizes import TABLE, deterministic, size, sizes

from syno.algebra import Size, Valuation, VariableKind, VariableTable
from syno.base.errors import ParseError


class TestText:
    @pytest.mark.parametrize(
        ("given_text", "text"),
        [
            ("1", "1"),
            ("C", "C"),
            ("C*g^-1*k", "g^-1*k*C"),
            ("W*H*C", "C*H*W"),
            ("C*C*C", "C^3"),
            ("C^2 * C^-1", "C"),
            (" k ^ 2*1 *c", "c*k^2"),
            ("C^0", "1"),
        ],
    )
    def test_coefficients_first_each_class_by_name(self, given_text: str, text: str) -> None:
        assert str(size(given_text)) == text
        assert repr(size(given_text)) == f"Size({text})"

    @deterministic
    @given(sizes)
    def test_parses_back(self, value: Size) -> None:
        assert size(str(value)) is value

    @pytest.mark.parametrize("text", ["", "C*", "C/g", "C+1", "2", "C^", "C^g", "(C)", "C**2", "-C", "C^1.5", "3*C"])
    def test_other_text_is_an_error_that_says_what_a_size_is(self, text: str) -> None:
        with pytest.raises(
            ParseError, match=rf'^"{re.escape(text)}" is not a size: ".*" is not "name", "name\^exponent" or "1"'
        ):
            size(text)

    def test_an_unknown_variable_is_an_error_with_a_suggestion(self) -> None:
        table = VariableTable.parse("C_in, C_out, H; k")
        with pytest.raises(ParseError) as error:
            table.size("k*C_ou")
        assert str(error.value) == (
            'unknown variable "C_ou" in size "k*C_ou"; declared are: C_in, C_out, H, k. Did you mean "C_out"?'
        )
        with pytest.raises(ParseError, match='unknown variable "C" in size "C"; declared are: none.$'):
            Size.parse("C", {})

    @pytest.mark.parametrize(
        ("text", "python", "c_source", "fraction"),
        [
            ("1", "1", "1", "1"),
            ("C", "C", "C", "C"),
            ("k*C", "C * k", "C * k", "k*C"),
            ("g^-1*C", "C // g", "C / g", "C/g"),
            ("g^-1*k^-1*C", "C // (g * k)", "C / (g * k)", "C/(g*k)"),
            ("g^-2*C^2*H", "C**2 * H // g**2", "C * C * H / (g * g)", "C^2*H/g^2"),
            ("g^-1", "1 // g", "1 / g", "1/g"),
        ],
    )
    def test_source_and_label(self, text: str, python: str, c_source: str, fraction: str) -> None:
        assert size(text).integer_text() == python
        assert size(text).integer_text("/") == c_source
        assert size(text).fraction_text == fraction

    @deterministic
    @given(st.tuples(*[st.integers(0, 2)] * 3, *[st.integers(-2, 2)] * 3), st.tuples(*[st.integers(1, 3)] * len(TABLE)))
    def test_sources_evaluate_to_the_value(self, exponents: tuple[int, ...], row: tuple[int, ...]) -> None:
        value = Size(dict(zip(TABLE.values(), exponents, strict=True)))
        names = dict(zip(TABLE, row, strict=True))
        names |= {name: 6**4 * number for name, number in names.items() if TABLE[name].kind is VariableKind.PRIMARY}
        exact = Valuation(names).fraction(value)
        assert eval(value.fraction_text.replace("^", "**"), {}, names) == pytest.approx(float(exact))
        assume(exact.denominator == 1)
        assert eval(value.integer_text(), {}, names) == exact == Valuation(names).integer(value)
        assert eval(value.integer_text("/").replace("/", "//"), {}, names) == exact
