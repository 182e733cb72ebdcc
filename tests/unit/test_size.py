"""Sizes: one object each, exact arithmetic on exponents, order, legality, text."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import re
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from syno.algebra import ONE, Kind, Size, Trait, Valuation, Variable, VariableTable, product
from syno.algebra.size import EXPONENT_LIMIT
from syno.errors import ParseError, SizeError

TABLE = VariableTable.parse("C, H, W; c, g, k")
C, H, W, c, g, k = (Size.of(variable) for variable in TABLE.values())

exponent_rows = st.tuples(*[st.integers(-3, 3)] * len(TABLE))
sizes = exponent_rows.map(lambda row: Size(dict(zip(TABLE.values(), row, strict=True))))
deterministic = settings(deadline=None, derandomize=True, max_examples=60)


def size(text: str) -> Size:
    return TABLE.size(text)


class TestEqualSizesAreOneObject:
    def test_however_they_are_built(self) -> None:
        built = C * C / g
        assert built is C**2 / g
        assert built is Size({TABLE["g"]: -1, TABLE["C"]: 2})
        assert built is size("g^-1*C^2")
        assert built is C / g * C
        assert built is product([C, Size.of(TABLE["g"], -1), C])

    def test_zero_exponents_are_dropped(self) -> None:
        assert Size({TABLE["C"]: 0}) is ONE
        assert C / C is ONE
        assert C**0 is ONE
        assert product([]) is ONE

    def test_different_sizes_are_not_equal(self) -> None:
        seen = [ONE, C, H, C * H, C**2, C / g, C * g, g, k, g * k]
        assert len(set(seen)) == len(seen)
        assert all(one != other for one, other in itertools.combinations(seen, 2))

    def test_kind_is_part_of_a_variable(self) -> None:
        assert Size.of(Variable("n", Kind.PRIMARY)) is not Size.of(Variable("n", Kind.COEFFICIENT))

    @deterministic
    @given(sizes)
    def test_after_pickling_and_copying(self, value: Size) -> None:
        assert pickle.loads(pickle.dumps(value)) is value
        assert copy.deepcopy(value) is value
        assert copy.copy(value) is value

    def test_after_pickling_in_a_process_that_knows_other_variables(self) -> None:
        code = """
import pickle, sys
from syno.algebra import Size, VariableTable
table = VariableTable.parse("{first}")
table.sizes("{first}")
made = pickle.loads(bytes.fromhex(sys.argv[1]))
assert made is VariableTable.parse("C, H, W; c, g, k").size(sys.argv[2]), made
print(made)
"""
        value = C**2 * H / g
        for first in ("zebra", "k, g, W, H, C"):
            command = [sys.executable, "-c", code.format(first=first), pickle.dumps(value).hex(), str(value)]
            assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == str(value)


class TestArithmetic:
    @deterministic
    @given(exponent_rows, exponent_rows)
    def test_product_and_quotient_add_and_subtract_exponents(self, one: tuple[int, ...], other: tuple[int, ...]) -> None:
        def of(row: list[int]) -> Size:
            return Size(dict(zip(TABLE.values(), row, strict=True)))

        assert of(list(one)) * of(list(other)) is of([a + b for a, b in zip(one, other, strict=True)])
        assert of(list(one)) / of(list(other)) is of([a - b for a, b in zip(one, other, strict=True)])

    @deterministic
    @given(sizes, st.integers(-4, 4))
    def test_a_power_is_repeated_multiplication(self, value: Size, exponent: int) -> None:
        repeated = product([value] * abs(exponent))
        assert value**exponent is (repeated if exponent >= 0 else ONE / repeated)

    @deterministic
    @given(sizes)
    def test_exponents_and_variables_tell_what_occurs(self, value: Size) -> None:
        assert product(Size.of(v, e) for v, e in value.exponents) is value
        assert all(value.exponent(v) == e != 0 for v, e in value.exponents)
        assert value.variables == {v for v, _ in value.exponents}
        assert {v for v in TABLE.values() if value.exponent(v)} == value.variables
        assert value.is_polynomial == all(e > 0 for _, e in value.exponents)

    def test_exponents_are_ordered_primaries_first(self) -> None:
        assert [v.name for v, _ in size("k*W*c*C").exponents] == ["C", "W", "c", "k"]


class TestOverflow:
    """Digits of one number hold the exponents: one that grows too large must not flow over into its neighbour."""

    def test_an_exponent_beyond_the_limit_is_an_error(self) -> None:
        for make in (
            lambda: C**64,
            lambda: C**63 * C,
            lambda: C**63 * C**63,
            lambda: C**-63 / C,
            lambda: C**-63 / C**63,
            lambda: (C * g) ** 32 * (C * g) ** 32,
            lambda: Size({TABLE["C"]: 200}),
            lambda: size("C^60*C^4"),
        ):
            with pytest.raises(SizeError, match=r"the exponent -?\d+ of \w+ is beyond the limit of 63"):
                make()

    def test_all_exponents_up_to_the_limit_are_right_and_different(self) -> None:
        values = [Size({TABLE["C"]: a, TABLE["H"]: b}) for a in range(-63, 64) for b in (-63, -1, 0, 1, 63)]
        assert len(set(values)) == 127 * 5
        for value in (EXPONENT_LIMIT, -EXPONENT_LIMIT):
            assert (C**value).exponents == ((TABLE["C"], value),)
            assert (C**value * H**-value).exponents == ((TABLE["C"], value), (TABLE["H"], -value))

    @deterministic
    @given(st.lists(st.tuples(st.sampled_from([C, H, W, c, g, k]), st.integers(-40, 40)), max_size=6), st.booleans())
    def test_a_product_is_right_or_an_error(self, factors: list[tuple[Size, int]], divide: bool) -> None:
        exponents: dict[Variable, int] = {}
        made: Size | None = ONE
        for factor, exponent in factors:
            variable = factor.exponents[0][0]
            exponents[variable] = exponents.get(variable, 0) + (-exponent if divide else exponent)
            fits = abs(exponents[variable]) <= EXPONENT_LIMIT
            try:
                made = made / factor**exponent if divide else made * factor**exponent
            except SizeError:
                assert not fits
                return
            assert fits
        assert dict(made.exponents) == {v: e for v, e in exponents.items() if e}


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
            Variable(name, Kind.PRIMARY)


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
        names |= {name: 6**4 * number for name, number in names.items() if TABLE[name].kind is Kind.PRIMARY}
        exact = Valuation(names).fraction(value)
        assert eval(value.fraction_text.replace("^", "**"), {}, names) == pytest.approx(float(exact))
        assume(exact.denominator == 1)
        assert eval(value.integer_text(), {}, names) == exact == Valuation(names).integer(value)
        assert eval(value.integer_text("/").replace("/", "//"), {}, names) == exact


def test_codes_do_not_depend_on_the_order_in_which_exponents_are_given() -> None:
    variables = [Variable(f"v{number}", Kind.PRIMARY) for number in range(12)]
    exponents = {variable: number - 6 for number, variable in enumerate(variables)}
    made = Size(exponents)
    assert Size(dict(reversed(exponents.items()))) is made
    assert made / Size.of(variables[3], -3) is Size({**exponents, variables[3]: 0})


def test_nothing_depends_on_the_seed_of_hashes() -> None:
    code = 'from syno.algebra import *; t = VariableTable.parse("C, H; g, k")\nprint(sorted(t.sizes("k, C, g^-1*H, g")))'
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        texts.add(
            subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        )
    assert texts == {"[Size(k), Size(g), Size(g^-1*H), Size(C)]\n"}
