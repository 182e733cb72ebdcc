"""Sizes: their order, and which of them are legal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sizes import TABLE, C, H, deterministic, exponent_rows, g, k, size, sizes

from syno.algebra import ONE, Size, Trait, Variable, VariableKind
from syno.base.errors import SizeError


class TestOrder:
    def test_lexicographic_primaries_first_never_by_value(self) -> None:
        ascending = [
            "H^-1",
            "c^-1",
            "1",
            "k",
            "c",
            "c*k",
            "c^2",
            "H*W^-1",
            "c^-1*H",
            "H",
            "c^5*H",
            "H*W",
            "H^2",
            "c^-9*C",
            "C",
            "C*H",
        ]
        shuffled = sorted(map(size, reversed(ascending)))
        assert list(map(str, shuffled)) == ascending

    @deterministic
    @given(st.lists(sizes, min_size=3, max_size=3))
    def test_total(self, three: list[Size]) -> None:
        one, two, last = three
        assert (one < two) + (two < one) + (one is two) == 1
        assert (one <= two) == (one < two or one is two)
        assert (one > two) == (two < one) and (one >= two) == (two <= one)
        if one < two < last:
            assert one < last

    @deterministic
    @given(exponent_rows, exponent_rows)
    def test_compares_the_rows_of_exponents(self, one: tuple[int, ...], other: tuple[int, ...]) -> None:
        """The table lists its variables primaries first, each class by name."""
        made = [Size(dict(zip(TABLE.values(), row, strict=True))) for row in (one, other)]
        assert (made[0] < made[1]) == (one < other)


class TestLegality:
    @pytest.mark.parametrize(
        ("text", "trait"),
        [
            ("1", Trait.ONE),
            ("H", Trait.GENERAL),
            ("c^-1*H*W", Trait.GENERAL),
            ("c^-2*H*W", Trait.GENERAL),
            ("c^3*H", Trait.GENERAL),
            ("c", Trait.COEFFICIENT),
            ("c^3*k", Trait.COEFFICIENT),
            ("c^-1", Trait.ILLEGAL_COEFFICIENT),
            ("c^-1*k^2", Trait.ILLEGAL_COEFFICIENT),
            ("H^-1", Trait.UNDEFINED),
            ("c^-3*H^-1*W", Trait.UNDEFINED),
            ("c*H^-1", Trait.UNDEFINED),
        ],
    )
    def test_traits(self, text: str, trait: Trait) -> None:
        assert size(text).trait is trait
        assert size(text).is_legal == (trait in (Trait.ONE, Trait.GENERAL, Trait.COEFFICIENT))

    def test_a_legal_size_passes_its_check(self) -> None:
        assert (C / g).check_legal("axis 2") is C / g
        assert ONE.check_legal("axis 2") is ONE

    def test_a_primary_in_a_denominator_is_an_error(self) -> None:
        with pytest.raises(SizeError, match=r"axis 2 has size C\^-1\*H: a primary variable may not be in a denominator"):
            (H / C).check_legal("axis 2")

    def test_a_lone_coefficient_in_a_denominator_is_an_error(self) -> None:
        message = r"axis 2 has size g\^-1\*k: coefficients may be in a denominator only beside a primary variable"
        with pytest.raises(SizeError, match=message):
            (k / g).check_legal("axis 2")

    @pytest.mark.parametrize("name", ["", "2C", "C-in", "_x", "class", "C in", "é"])
    def test_names_that_generated_code_could_not_use_are_errors(self, name: str) -> None:
        with pytest.raises(SizeError, match=f'"{re.escape(name)}" cannot name a variable: a name is a letter, then'):
            Variable(name, VariableKind.PRIMARY)
