"""Declarations of variables, and valuations that give them values.

`N, C_in, C_out, H; k=3` declares four primaries and one coefficient with a default value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import NamedTuple

from syno.algebra.limits import LARGEST_NUMBER, MOST_VARIABLES, shortened
from syno.algebra.size import Size
from syno.algebra.variable import Variable, VariableKind
from syno.base.errors import ParseError, SizeError, ValuationError, suggestion


class VariableTable(Mapping[str, Variable]):
    """The variables of an operator by name, primaries first, with default values where declared.

    >>> table = VariableTable.parse("N, C; k=3")
    >>> print(table.valuation(N=1, C=16))
    k=3, N=1, C=16
    """

    def __init__(self, variables: Iterable[Variable], defaults: Mapping[str, int] | None = None) -> None:
        ordered = sorted(set(variables), key=lambda variable: variable.sort_key)
        self._by_name = {variable.name: variable for variable in ordered}
        if len(self._by_name) < len(ordered):
            names = [variable.name for variable in ordered]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ParseError(f"declared as primary and as coefficient: {', '.join(twice)}; a variable is one or the other")
        self.defaults: dict[str, int] = {}
        for name, value in (defaults or {}).items():
            if name not in self._by_name:
                raise ParseError(f'a default for "{name}", which is not declared; declared are: {", ".join(self)}')
            self.defaults[name] = _positive(name, value)

    @classmethod
    def parse(cls, text: str) -> VariableTable:
        """Return the table for a text `primaries; coefficients`: names separated by commas, each with an optional `=value`.

        Raises ParseError if the text has another form.
        """
        variables: list[Variable] = []
        defaults: dict[str, int] = {}
        parts = text.split(";")
        if len(parts) > 2:
            raise ParseError(
                f'"{shortened(text)}" has more than one ";": write "primaries; coefficients", as in "N, C, H; k=3"'
            )
        for part, kind in zip(parts, (VariableKind.PRIMARY, VariableKind.COEFFICIENT), strict=False):
            for entry in filter(None, (piece.strip() for piece in part.split(","))):
                if len(variables) == MOST_VARIABLES:
                    raise ParseError(f"more than {MOST_VARIABLES} variables are declared; at most {MOST_VARIABLES} are allowed")
                match = re.fullmatch(r"(\w+)(?:\s*=\s*(-?\d{1,20}))?", entry, re.ASCII)
                if not match:
                    raise ParseError(f'"{shortened(entry)}" does not declare a variable: write "name" or "name=value"')
                if any(variable.name == match[1] for variable in variables):
                    raise ParseError(f'variable "{match[1]}" is declared twice in "{shortened(text)}"')
                variables.append(Variable(match[1], kind))
                if match[2]:
                    defaults[match[1]] = int(match[2])
        return cls(variables, defaults)

    def size(self, text: str) -> Size:
        """Return the size that `text` describes with these variables."""
        return Size.parse(text, self)

    def sizes(self, text: str) -> list[Size]:
        """Return the sizes of a shape such as `N, C_in, H, H`."""
        return [self.size(part.strip()) for part in text.split(",") if part.strip()]

    def valuation(self, values: Mapping[str, int] | None = None, **more: int) -> Valuation:
        """Return a valuation of all variables: the arguments, else the defaults.

        Raises ValuationError if a value is missing.
        """
        explicit = {**(values or {}), **more}
        for name in explicit:
            if name not in self._by_name:
                hint = suggestion(name, self)
                raise ValuationError(f'no variable "{name}"; the operator has: {", ".join(self)}.{hint}')
        valuation = Valuation({**self.defaults, **explicit})
        missing = [name for name in self if name not in valuation]
        if missing:
            raise ValuationError(
                f"no value for {', '.join(missing)}; given: {valuation}. "
                f"Every variable without a default needs one: {', '.join(self)}"
            )
        return valuation

    def __getitem__(self, name: str) -> Variable:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __str__(self) -> str:
        def declared(kind: VariableKind) -> str:
            names = (name for name, variable in self.items() if variable.kind is kind)
            return ", ".join(f"{name}={self.defaults[name]}" if name in self.defaults else name for name in names)

        coefficients = declared(VariableKind.COEFFICIENT)
        return declared(VariableKind.PRIMARY) + (f"; {coefficients}" if coefficients else "")

    def __repr__(self) -> str:
        return f'VariableTable.parse("{self}")'


class Valuation(Mapping[str, int]):
    """Positive integers for the variables of one layer, by name."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = {name: _positive(name, value) for name, value in values.items()}
        self._integers, self._fractions = _sizes_known(tuple(self._values.items()))

    def fraction(self, size: Size) -> Fraction:
        """Return the exact value of `size`, which may not be an integer."""
        known = self._fractions.get(size)
        if known is None:
            known = self._fractions[size] = self._fraction(size)
        return known

    def _fraction(self, size: Size) -> Fraction:
        above, below = 1, 1
        for variable, exponent in size.exponents:
            try:
                value = self._values[variable.name]
            except KeyError:
                raise ValuationError(f'no value for "{variable.name}" (in size {size}); given: {self}') from None
            if exponent > 0:
                above *= value**exponent
            else:
                below *= value**-exponent
        return Fraction(above, below)

    def integer(self, size: Size) -> int:
        """Return the value of `size`. Raises SizeError if it is not an integer."""
        known = self._integers.get(size)
        if known is not None:
            return known
        value = self.fraction(size)
        if value.denominator != 1:
            shown = f"{value} for {self}" if value.numerator <= LARGEST_NUMBER**2 else f"no whole number for {self}"
            raise SizeError(f"size {size} is {shown}: it must be a whole number; choose values that divide")
        self._integers[size] = value.numerator
        return value.numerator

    def numel(self, sizes: Iterable[Size]) -> int:
        """Return the number of elements of a tensor with these sizes."""
        return prod(self.integer(size) for size in sizes)

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._values.items()) or "nothing"

    def __repr__(self) -> str:
        return f"Valuation({self})"


class SizeValues(NamedTuple):
    """The values of one size, one value per valuation."""

    values: tuple[Fraction, ...]
    lowest: Fraction
    highest: Fraction
    total: int  # the sum over valuations, each truncated to an integer
    is_integer: bool  # whether the value is an integer in every valuation
    is_one: bool  # whether the value is 1 in every valuation; such an axis can be left out


class Valuations(Sequence[Valuation]):
    """One valuation for each replaced layer; a layer that occurs four times has four. Values of sizes are cached.

    >>> rows = Valuations([{"C": 16, "H": 32}, {"C": 32, "H": 16}], {"k": 3})
    >>> len(rows), dict(rows[1])
    (2, {'k': 3, 'C': 32, 'H': 16})
    """

    def __init__(self, rows: Iterable[Mapping[str, int]], defaults: Mapping[str, int] | None = None) -> None:
        self._rows = tuple(Valuation({**(defaults or {}), **row}) for row in rows)
        if not self._rows:
            raise ValuationError("no valuation given: a spec needs at least one set of values")
        self._values = _values_known(tuple(tuple(row.items()) for row in self._rows))

    def values(self, size: Size) -> SizeValues:
        """Return the values of `size` under all valuations. They are computed once per size."""
        known = self._values.get(size)
        if known is None:
            values = tuple(row.fraction(size) for row in self._rows)
            known = self._values[size] = SizeValues(
                values=values,
                lowest=min(values),
                highest=max(values),
                total=sum(int(value) for value in values),
                is_integer=all(value.denominator == 1 for value in values),
                is_one=all(value == 1 for value in values),
            )
        return known

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # Sequence's two overloads add nothing here
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)


@lru_cache(maxsize=4096)
def _sizes_known(values: tuple[tuple[str, int], ...]) -> tuple[dict[Size, int], dict[Size, Fraction]]:
    """Return the caches of sizes' values at these values of variables: integers, and fractions. Equal valuations share them."""
    return {}, {}


@lru_cache(maxsize=4096)
def _values_known(rows: tuple[tuple[tuple[str, int], ...], ...]) -> dict[Size, SizeValues]:
    """Return the cache of sizes' values under these valuations. Equal lists of valuations share it."""
    return {}


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValuationError(f"{name} = {value!r}: the value of a variable is a positive integer")
    if value > LARGEST_NUMBER:
        raise ValuationError(f"{name} is larger than {LARGEST_NUMBER}, which is the largest value that a variable may have")
    return value
