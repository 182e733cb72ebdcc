"""Sizes: one object each, and exact arithmetic on exponents."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sizes import TABLE, C, H, W, c, deterministic, exponent_rows, g, k, size, sizes

from syno.algebra import ONE, Size, Variable, VariableKind, product
from syno.algebra.size import EXPONENT_LIMIT
from syno.base.errors import SizeError


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
        assert Size.of(Variable("n", VariableKind.PRIMARY)) is not Size.of(Variable("n", VariableKind.COEFFICIENT))

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


def test_codes_do_not_depend_on_the_order_in_which_exponents_are_given() -> None:
    variables = [Variable(f"v{number}", VariableKind.PRIMARY) for number in range(12)]
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
