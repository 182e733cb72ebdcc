"""Declarations of variables, valuations, and the values of sizes under all of them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno.algebra import ONE, Valuation, Valuations, Variable, VariableKind, VariableTable
from syno.base.errors import ParseError, SizeError, ValuationError

TABLE = VariableTable.parse("N, C_in, H; k=3, g")


class TestTable:
    @pytest.mark.parametrize(
        ("given_text", "text"),
        [
            ("N, C, H; k=3", "C, H, N; k=3"),
            ("N,C", "C, N"),
            ("; k, g = 2", "; g=2, k"),
            ("N=4;", "N=4"),
            ("", ""),
            (" H , ,N ; ", "H, N"),
        ],
    )
    def test_reads_and_writes_declarations(self, given_text: str, text: str) -> None:
        table = VariableTable.parse(given_text)
        assert str(table) == text
        again = VariableTable.parse(text)
        assert list(again.items()) == list(table.items()) and again.defaults == table.defaults
        assert eval(repr(table), {"VariableTable": VariableTable}) == table

    def test_primaries_come_first_each_class_by_name(self) -> None:
        assert list(TABLE) == ["C_in", "H", "N", "g", "k"]
        assert [variable.kind for variable in TABLE.values()] == [VariableKind.PRIMARY] * 3 + [VariableKind.COEFFICIENT] * 2
        assert TABLE.defaults == {"k": 3}
        assert len(TABLE) == 5 and "k" in TABLE and "K" not in TABLE
        assert TABLE["H"] == Variable("H", VariableKind.PRIMARY)

    def test_reads_shapes(self) -> None:
        assert [str(size) for size in TABLE.sizes("N, g^-1*C_in,H ,")] == ["N", "g^-1*C_in", "H"]
        assert TABLE.sizes("") == []

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("N; k; g", 'has more than one ";": write "primaries; coefficients", as in "N, C, H; k=3"'),
            ("N C", '"N C" does not declare a variable: write "name" or "name=value"'),
            ("N; k=", '"k=" does not declare a variable'),
            ("N; k=a", '"k=a" does not declare a variable'),
            ("N; k=1.5", '"k=1.5" does not declare a variable'),
            ("N, N", 'variable "N" is declared twice in "N, N"'),
            ("N, k; k=3", 'variable "k" is declared twice in "N, k; k=3"'),
            ("N; k=0", "k = 0: the value of a variable is a positive integer"),
            ("N; k=-3", "k = -3: the value of a variable is a positive integer"),
            ("N; 3", '"3" cannot name a variable'),
            ("lambda", '"lambda" cannot name a variable'),
        ],
    )
    def test_other_declarations_are_errors(self, text: str, message: str) -> None:
        with pytest.raises(ValueError) as error:
            VariableTable.parse(text)
        assert message in str(error.value)

    def test_a_variable_is_primary_or_coefficient_not_both(self) -> None:
        with pytest.raises(ParseError, match="declared as primary and as coefficient: a; a variable is one or the other"):
            VariableTable([Variable("a", VariableKind.PRIMARY), Variable("a", VariableKind.COEFFICIENT)])

    def test_a_default_needs_its_variable(self) -> None:
        with pytest.raises(ParseError, match='a default for "z", which is not declared; declared are: a'):
            VariableTable([Variable("a", VariableKind.PRIMARY)], {"z": 1})


class TestValuationOfATable:
    def test_given_values_go_before_defaults(self) -> None:
        assert dict(TABLE.valuation({"N": 2, "C_in": 6, "H": 5, "g": 2})) == {"N": 2, "C_in": 6, "H": 5, "g": 2, "k": 3}
        assert TABLE.valuation({"N": 2, "C_in": 6, "H": 5, "g": 2}, k=5)["k"] == 5
        assert TABLE.valuation(N=2, C_in=6, H=5, g=2, k=1)["k"] == 1

    def test_all_missing_values_are_listed(self) -> None:
        with pytest.raises(ValuationError) as error:
            TABLE.valuation(N=2, H=4)
        assert str(error.value) == (
            "no value for C_in, g; given: k=3, N=2, H=4. Every variable without a default needs one: C_in, H, N, g, k"
        )

    def test_an_unknown_variable_is_an_error_with_a_suggestion(self) -> None:
        with pytest.raises(ValuationError) as error:
            TABLE.valuation({"N": 2, "Cin": 6, "H": 5, "g": 2})
        assert str(error.value) == 'no variable "Cin"; the operator has: C_in, H, N, g, k. Did you mean "C_in"?'

    @pytest.mark.parametrize("value", [0, -1, True, False, 2.0, "2", None])
    def test_a_value_is_a_positive_integer(self, value: object) -> None:
        with pytest.raises(ValuationError) as error:
            TABLE.valuation({"N": value, "C_in": 6, "H": 5, "g": 2})  # type: ignore[dict-item]
        assert str(error.value) == f"N = {value!r}: the value of a variable is a positive integer"


class TestValuation:
    VALUES = Valuation({"N": 2, "C_in": 12, "H": 5, "k": 3, "g": 4})

    def test_values_of_sizes(self) -> None:
        assert self.VALUES.integer(ONE) == 1
        assert self.VALUES.integer(TABLE.size("g^-1*C_in")) == 3
        assert self.VALUES.integer(TABLE.size("k^2*H*N^3")) == 9 * 5 * 8
        assert self.VALUES.fraction(TABLE.size("g^-1*H")) == Fraction(5, 4)
        assert self.VALUES.numel(TABLE.sizes("N, g^-1*C_in, H, H")) == 2 * 3 * 25
        assert self.VALUES.numel([]) == 1

    def test_a_size_that_is_no_integer_is_an_error(self) -> None:
        with pytest.raises(SizeError) as error:
            self.VALUES.integer(TABLE.size("g^-1*H"))
        assert str(error.value) == (
            "size g^-1*H is 5/4 for N=2, C_in=12, H=5, k=3, g=4: it must be a whole number; choose values that divide"
        )

    def test_a_missing_value_is_an_error(self) -> None:
        with pytest.raises(ValuationError, match=r'no value for "k" \(in size k\*H\); given: H=2$'):
            Valuation({"H": 2}).fraction(TABLE.size("k*H"))
        with pytest.raises(ValuationError, match="given: nothing$"):
            Valuation({}).integer(TABLE.size("k"))

    def test_is_a_mapping_that_prints_its_values(self) -> None:
        assert dict(self.VALUES) == {"N": 2, "C_in": 12, "H": 5, "k": 3, "g": 4}
        assert repr(Valuation({"H": 2, "k": 3})) == "Valuation(H=2, k=3)"

    @pytest.mark.parametrize("value", [0, -4, True, 1.0])
    def test_a_value_is_a_positive_integer(self, value: object) -> None:
        with pytest.raises(ValuationError, match="the value of a variable is a positive integer"):
            Valuation({"H": value})  # type: ignore[dict-item]


class TestValuations:
    ROWS = Valuations([{"C_in": 8, "H": 7}, {"C_in": 8, "H": 7}, {"C_in": 16, "H": 5, "k": 5}], {"k": 3, "g": 4, "N": 1})

    def test_one_per_layer_with_defaults(self) -> None:
        assert len(self.ROWS) == 3
        assert [row["k"] for row in self.ROWS] == [3, 3, 5]
        assert self.ROWS[2]["C_in"] == 16
        assert [row["H"] for row in self.ROWS[1:]] == [7, 5]

    def test_values_of_a_size_that_always_divides(self) -> None:
        values = self.ROWS.values(TABLE.size("g^-1*C_in"))
        assert values.values == (2, 2, 4)
        assert (values.lowest, values.highest, values.total) == (2, 4, 8)
        assert values.is_integer and not values.is_one

    def test_the_total_is_of_truncated_values(self) -> None:
        values = self.ROWS.values(TABLE.size("k^-1*C_in"))
        assert values.values == (Fraction(8, 3), Fraction(8, 3), Fraction(16, 5))
        assert (values.lowest, values.highest) == (Fraction(8, 3), Fraction(16, 5))
        assert values.total == 2 + 2 + 3
        assert not values.is_integer and not values.is_one

    def test_a_size_that_is_one_for_every_layer_is_one(self) -> None:
        assert self.ROWS.values(ONE).is_one
        assert self.ROWS.values(TABLE.size("N^2")).is_one
        mixed = Valuations([{"g": 1}, {"g": 2}]).values(TABLE.size("g"))
        assert not mixed.is_one and mixed.lowest == 1

    def test_sizes_are_remembered(self) -> None:
        size = TABLE.size("k^2*C_in")
        assert self.ROWS.values(size) is self.ROWS.values(size)

    def test_none_at_all_is_an_error(self) -> None:
        with pytest.raises(ValuationError, match="no valuation given: a spec needs at least one set of values"):
            Valuations([])

    @settings(deadline=None, derandomize=True, max_examples=40)
    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=4), st.integers(-2, 2))
    def test_values_agree_with_each_row(self, rows: list[tuple[int, int]], exponent: int) -> None:
        size = TABLE.size(f"H*g^{exponent}")
        values = Valuations([{"H": h, "g": g} for h, g in rows]).values(size)
        exact = [Fraction(h) * Fraction(g) ** exponent for h, g in rows]
        assert list(values.values) == exact
        assert (values.lowest, values.highest, values.total) == (
            min(exact),
            max(exact),
            sum(x.numerator // x.denominator for x in exact),
        )
        assert values.is_integer == all(x == int(x) for x in exact)
        assert values.is_one == (set(exact) == {1})
