"""Coordinate expressions: sums of terms, simplified as they are built, with their values and source text.

Paper: section 4.1, Table 1 (coordinate expressions), section 5.2 (simplification).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syno.algebra.size import ONE, Size
from syno.algebra.terms import (
    Atom,
    Guard,
    Half,
    Iterator,
    Quotient,
    Remainder,
    Terms,
    collected,
    divides,
    extent_of,
    only_atom,
    quotient,
    remainder,
    scaled,
)
from syno.algebra.variables import Valuation

SizeText = Callable[[Size], str]


@dataclass(frozen=True, slots=True)
class Expression:
    """A sum of terms, in the order of their first appearance. Build it with `iterator`, `half` and arithmetic operators."""

    terms: Terms = ()

    def __add__(self, other: Expression | int) -> Expression:
        return Expression(collected(self.terms + _terms(other)))

    __radd__ = __add__

    def __sub__(self, other: Expression | int) -> Expression:
        return Expression(collected(self.terms + scaled(_terms(other), -1, ONE)))

    def __mul__(self, size: Size) -> Expression:
        return Expression(scaled(self.terms, 1, size))

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Size) -> Expression:
        return Expression(quotient(self.terms, divisor))

    def __mod__(self, divisor: Size) -> Expression:
        return Expression(remainder(self.terms, divisor))

    def guarded(self, extent: Size) -> Expression:
        """Return this expression as a guarded index: where it lies outside of [0, extent), the whole summand is zero."""
        own = self.extent
        if own is not None and divides(own, extent):
            return self
        return Expression(((1, ONE, Guard(self.terms, extent)),))

    @property
    def only_atom(self) -> Atom | None:
        """The atom of which this expression consists; None if it is not a single atom."""
        return only_atom(self.terms)

    @property
    def extent(self) -> Size | None:
        """A size that the (non-negative) value of the expression always stays below; None if the terms do not show one."""
        return extent_of(self.terms)

    @property
    def iterators(self) -> frozenset[str]:
        """The names of the loop variables that occur in the expression."""
        names: set[str] = set()
        pending = [self.terms]
        while pending:
            for _, _, atom in pending.pop():
                if isinstance(atom, Iterator):
                    names.add(atom.name)
                pending += _inside(atom)
        return frozenset(names)

    def count_terms(self, most: int) -> int:
        """Return the number of terms, those inside of atoms included; counting stops beyond `most`."""
        count, pending = 0, [self.terms]
        while pending and count <= most:
            terms = pending.pop()
            count += len(terms)
            for _, _, atom in terms:
                pending += _inside(atom)
        return count

    def evaluate(self, iterators: Mapping[str, Any], valuation: Valuation) -> Any:
        """Return the value of the expression. `iterators` maps names to integers or integer arrays.

        Guards are not tested here.
        """
        return _value(self.terms, iterators, valuation)

    def text(self, size_text: SizeText = str, divide: str = "//") -> str:
        """Return the expression as source text.

        C rounds towards zero: where a numerator may be negative, its text calls `floor_div` and `floor_mod`.

        Args:
            size_text: function that writes a size as text.
            divide: "//" for Python, "/" for C.
        """
        return _ExpressionWriter(size_text, divide).sum(self.terms)

    def __str__(self) -> str:
        return self.text()


def iterator(name: str, extent: Size) -> Expression:
    """Return the loop variable `name`, with values in [0, extent), as an expression."""
    return Expression(((1, ONE, Iterator(name, extent)),))


def half(size: Size) -> Expression:
    """Return `size // 2` as an expression."""
    return Expression(((1, ONE, Half(size)),))


def _terms(value: Expression | int) -> Terms:
    if isinstance(value, Expression):
        return value.terms
    return ((value, ONE, None),) if value else ()


def _inside(atom: Atom | None) -> tuple[Terms, ...]:
    """Return the sum inside an atom as a tuple of one element; an empty tuple if the atom contains no sum."""
    match atom:
        case Quotient(inner, _) | Remainder(inner, _) | Guard(inner, _):
            return (inner,)
        case Iterator() | Half() | None:
            return ()


def _value(terms: Terms, iterators: Mapping[str, Any], valuation: Valuation) -> Any:
    def value(atom: Atom | None) -> Any:
        match atom:
            case None:
                return 1
            case Iterator(name, _):
                return iterators[name]
            case Half(size):
                return valuation.integer(size) // 2
            case Quotient(numerator, divisor):
                return _value(numerator, iterators, valuation) // valuation.integer(divisor)
            case Remainder(numerator, divisor):
                return _value(numerator, iterators, valuation) % valuation.integer(divisor)
            case Guard(index, _):
                return _value(index, iterators, valuation)

    total = 0
    for count, size, atom in terms:
        total = total + count * valuation.integer(size) * value(atom)
    return total


@dataclass(frozen=True)
class _ExpressionWriter:
    """Writes sums as source text, for Python (`divide` is "//") or for C ("/")."""

    size_text: SizeText
    divide: str

    def sum(self, terms: Terms) -> str:
        if not terms:
            return "0"
        if (only := only_atom(terms)) is not None:
            text = self._atom(only)
            return text[1:-1] if text.startswith("(") and not isinstance(only, Half) else text
        pieces: list[str] = []
        for count, size, atom in terms:
            piece = self._product(abs(count), size, atom)
            if count < 0 and not pieces and isinstance(atom, Half):  # -k//2 would be (-k)//2
                piece = f"({piece})"
            sign = "-" if count < 0 else "+"
            pieces.append(f" {sign} {piece}" if pieces else piece if count > 0 else f"-{piece}")
        return "".join(pieces)

    def _product(self, count: int, size: Size, atom: Atom | None) -> str:
        factors = [str(count)] if count != 1 else []
        if size is not ONE:
            factors.append(_parenthesized(self.size_text(size)))
        if atom is not None:
            inner = self._atom(atom)
            factors.append(f"({inner})" if factors and isinstance(atom, Half) else inner)
        return "*".join(factors) or "1"

    def _atom(self, atom: Atom) -> str:
        match atom:
            case Iterator(name, _):
                return name
            case Half(size):
                return f"{_parenthesized(self.size_text(size))}{self.divide}2"
            case Quotient(numerator, divisor):
                return self._division(numerator, self.divide, "floor_div", divisor)
            case Remainder(numerator, divisor):
                return self._division(numerator, "%", "floor_mod", divisor)
            case Guard(index, _):
                return f"({self.sum(index)})"

    def _division(self, numerator: Terms, sign: str, function: str, divisor: Size) -> str:
        if self.divide == "/" and _may_be_negative(numerator):
            return f"{function}({self.sum(numerator)}, {self.size_text(divisor)})"
        return f"({_parenthesized(self.sum(numerator))}{sign}{_parenthesized(self.size_text(divisor))})"


def _may_be_negative(terms: Terms) -> bool:
    return any(count < 0 or (isinstance(atom, Quotient) and _may_be_negative(atom.numerator)) for count, _, atom in terms)


def _parenthesized(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"
