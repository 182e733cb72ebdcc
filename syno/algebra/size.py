"""Sizes: monomials over primary and coefficient variables.

A size such as `g^-1*C_in` is stored as one integer, whose digits in balanced base 256 are the exponents, one digit per
variable. So multiplying two sizes takes one integer addition and one look-up in the table of all sizes. Equal sizes are the
same object. A search spends most of its time on products and quotients of sizes.

Paper: section 5.1 (coordinate sizes).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any

from syno.algebra.code_names import code_name
from syno.algebra.limits import shortened
from syno.algebra.variable import Variable, VariableKind
from syno.base.errors import ParseError, SizeError, suggestion

EXPONENT_LIMIT = 63  # sums of two such digits are unique in base 256, so an overflow is noticed


class Trait(Enum):
    """How a size may be used, whatever the values of its variables."""

    ONE = "one"
    GENERAL = "general"  # holds a primary; coefficients may be in its denominator
    COEFFICIENT = "coefficient"  # coefficients only, none in the denominator
    ILLEGAL_COEFFICIENT = "illegal coefficient"  # coefficients only, some in the denominator
    UNDEFINED = "undefined"  # a primary in the denominator


_digit_of: dict[Variable, int] = {}
_sizes: dict[int, Size] = {}


class Size:
    """A monomial with integer exponents. Hash-consed: equal sizes are one object, so `==` is `is`.

    Build sizes from variables (`Size.of`), from text (`Size.parse`), or with `*`, `/` and `**`.
    """

    __slots__ = ("__dict__", "code", "exponents")

    code: (
        int  # digits are given out in order of first use, so that codes differ between processes: they are never part of an id
    )
    exponents: tuple[tuple[Variable, int], ...]  # non-zero ones, in order of `Variable.sort_key`

    def __new__(cls, exponents: Mapping[Variable, int] | None = None) -> Size:
        """Return the size with these exponents; equal sizes are one object. Raises SizeError beyond EXPONENT_LIMIT."""
        entries = tuple(sorted(((v, e) for v, e in (exponents or {}).items() if e), key=lambda entry: entry[0].sort_key))
        code = 0
        for variable, exponent in entries:
            if abs(exponent) > EXPONENT_LIMIT:
                raise SizeError(f"the exponent {exponent} of {variable.name} is beyond the limit of {EXPONENT_LIMIT}")
            code += exponent << (8 * _digit_of.setdefault(variable, len(_digit_of)))
        known = _sizes.get(code)
        if known is None:
            known = object.__new__(cls)
            known.code, known.exponents = code, entries
            known = _sizes.setdefault(code, known)
        return known

    @classmethod
    def of(cls, variable: Variable, exponent: int = 1) -> Size:
        """Return the size `variable ** exponent`."""
        return cls({variable: exponent})

    @classmethod
    def of_code(cls, code: int) -> Size:
        """Return the size with this code. The code of a product is the sum of its factors' codes."""
        known = _sizes.get(code)
        if known is not None:
            return known
        exponents = {}
        for variable in _digit_of:  # in the order of their digits
            exponents[variable] = (code + 128) % 256 - 128
            code = (code - exponents[variable]) // 256
        return cls(exponents)

    @classmethod
    def parse(cls, text: str, variables: Mapping[str, Variable]) -> Size:
        """Return the size of a text such as `g^-1*C_in`. Raises ParseError for other text, and for unknown variables."""
        exponents: Counter[Variable] = Counter()
        for factor in text.replace(" ", "").split("*"):
            if factor == "1":
                continue
            match = re.fullmatch(r"([A-Za-z]\w*)(?:\^(-?\d{1,4}))?", factor, re.ASCII)
            if not match:
                raise ParseError(
                    f'"{shortened(text)}" is not a size: "{shortened(factor)}" is not "name", "name^exponent" or "1" '
                    '(write k*C or g^-1*C; "+", "/" and other constants do not occur in sizes)'
                )
            name, exponent = match[1], int(match[2] or 1)
            if name not in variables:
                known = f"{', '.join(variables) or 'none'}.{suggestion(name, variables)}"
                raise ParseError(f'unknown variable "{shortened(name)}" in size "{shortened(text)}"; declared are: {known}')
            exponents[variables[name]] += exponent
        return cls(exponents)

    def __mul__(self, other: Size) -> Size:
        known = _sizes.get(self.code + other.code)
        return known if known is not None else self._combined(other, 1)

    def __truediv__(self, other: Size) -> Size:
        known = _sizes.get(self.code - other.code)
        return known if known is not None else self._combined(other, -1)

    def __pow__(self, exponent: int) -> Size:
        return Size({variable: e * exponent for variable, e in self.exponents})

    def _combined(self, other: Size, sign: int) -> Size:
        exponents = dict(self.exponents)
        for variable, exponent in other.exponents:
            exponents[variable] = exponents.get(variable, 0) + sign * exponent
        return Size(exponents)

    @cached_property
    def trait(self) -> Trait:
        """The trait of this size, which says how it may be used."""
        primary = [e for v, e in self.exponents if v.kind is VariableKind.PRIMARY]
        coefficient = [e for v, e in self.exponents if v.kind is VariableKind.COEFFICIENT]
        if any(e < 0 for e in primary):
            return Trait.UNDEFINED
        if primary:
            return Trait.GENERAL
        if not coefficient:
            return Trait.ONE
        return Trait.ILLEGAL_COEFFICIENT if any(e < 0 for e in coefficient) else Trait.COEFFICIENT

    @property
    def is_legal(self) -> bool:
        """Whether a coordinate may have this size: no primary variable, and no coefficient alone, in the denominator."""
        return self.trait in (Trait.ONE, Trait.GENERAL, Trait.COEFFICIENT)

    def check_legal(self, where: str) -> Size:
        """Return this size. Raises SizeError, whose message begins with `where`, if no coordinate may have this size."""
        if self.trait is Trait.UNDEFINED:
            raise SizeError(f"{where} has size {self}: a primary variable may not be in a denominator")
        if self.trait is Trait.ILLEGAL_COEFFICIENT:
            raise SizeError(f"{where} has size {self}: coefficients may be in a denominator only beside a primary variable")
        return self

    @cached_property
    def is_polynomial(self) -> bool:
        """Whether no exponent is negative, so that the value is a positive integer in every valuation."""
        return all(e > 0 for _, e in self.exponents)

    @cached_property
    def variables(self) -> frozenset[Variable]:
        """The variables that occur in the size."""
        return frozenset(variable for variable, _ in self.exponents)

    def exponent(self, variable: Variable) -> int:
        """Return the exponent of `variable` in the size; 0 if it does not occur."""
        return next((e for v, e in self.exponents if v == variable), 0)

    def __lt__(self, other: Size) -> bool:
        """Compare exponents in lexicographic order, primaries first, names in alphabetical order; never values."""
        variables = sorted(self.variables | other.variables, key=lambda variable: variable.sort_key)
        return [self.exponent(v) for v in variables] < [other.exponent(v) for v in variables]

    def __le__(self, other: Size) -> bool:
        return self is other or self < other

    @property
    def _as_written(self) -> list[tuple[Variable, int]]:
        """(variable, exponent) pairs in the order of printing: coefficients first, each kind by name."""
        return sorted(self.exponents, key=lambda entry: (entry[0].kind is VariableKind.PRIMARY, entry[0].name))

    @cached_property
    def _text(self) -> str:
        return "*".join(_power(v, e) for v, e in self._as_written) or "1"

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Size({self._text})"

    def integer_text(self, divide: str = "//", name: Callable[[str], str] = code_name) -> str:
        """Return source text of the integer value: `C_out // (g * s)` in Python; `divide="/"` for C.

        `name` returns the text for a variable's name, by default its name in generated code.
        """

        def factors(sign: int) -> list[str]:
            powers = [(name(v.name), sign * e) for v, e in self.exponents if sign * e > 0]
            if divide == "/":  # C has no power operator
                return [base for base, exponent in powers for _ in range(exponent)]
            return [base if exponent == 1 else f"{base}**{exponent}" for base, exponent in powers]

        above, below = " * ".join(factors(1)) or "1", factors(-1)
        if not below:
            return above
        return f"{above} {divide} " + (below[0] if len(below) == 1 else f"({' * '.join(below)})")

    @property
    def fraction_text(self) -> str:
        """The size as a short text for comments and labels: `C_out/(g*s)`."""
        above = "*".join(_power(v, e) for v, e in self._as_written if e > 0) or "1"
        below = [_power(v, -e) for v, e in self._as_written if e < 0]
        return above if not below else f"{above}/{below[0] if len(below) == 1 else '(' + '*'.join(below) + ')'}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (tuple((v.name, v.kind.value, e) for v, e in self.exponents),))


def _power(variable: Variable, exponent: int) -> str:
    return variable.name if exponent == 1 else f"{variable.name}^{exponent}"


def _rebuild(exponents: Iterable[tuple[str, str, int]]) -> Size:
    return Size({Variable(name, VariableKind(kind)): exponent for name, kind, exponent in exponents})


ONE = Size()


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of any number of sizes; ONE for none."""
    result, known = ONE, _sizes
    for size in sizes:
        result = known.get(result.code + size.code) or result * size  # the first is the second without a call
    return result
