"""Coordinate expressions, and the exact identities of div and mod that bring them to normal form.

An expression is a sum of terms `count * size * atom`, where an atom is an iterator, a quotient, a remainder, a guarded
index or the half of a size. Operators (`+`, `-`, `*`, `//`, `%`) simplify as they build, by identities that hold for
every valuation in which the sizes are positive integers; an identity whose side condition cannot be shown from the
exponents alone is not applied.

Paper: section 4.1, Table 1 (coordinate expressions), section 5.2 (simplification).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from syno.algebra.atoms import Atom, Guard, Half, Iterator, Quotient, Remainder, Term
from syno.algebra.size import ONE, Size
from syno.algebra.source_text import SizeText, source_text
from syno.algebra.variables import Valuation


@dataclass(frozen=True, slots=True)
class Expression:
    """A sum of terms, in order of first appearance. Build with `iterator`, `half` and the operators."""

    terms: tuple[Term, ...] = ()

    def __add__(self, other: Expression | int) -> Expression:
        return _sum(self.terms + _terms(other))

    __radd__ = __add__

    def __sub__(self, other: Expression | int) -> Expression:
        return self + _scaled(_terms(other), -1, ONE)

    def __mul__(self, size: Size) -> Expression:
        return _scaled(self.terms, 1, size)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Size) -> Expression:
        return _quotient(self, divisor)

    def __mod__(self, divisor: Size) -> Expression:
        return _remainder(self, divisor)

    def guarded(self, extent: Size) -> Expression:
        """This index, known to be read only where it lies in [0, extent)."""
        own = self.extent
        if own is not None and divides(own, extent):
            return self
        return Expression(((1, ONE, Guard(self, extent)),))

    @property
    def only_atom(self) -> Atom | None:
        """The atom that this is nothing more than, if it is one."""
        if len(self.terms) == 1:
            count, size, atom = self.terms[0]
            if count == 1 and size is ONE:
                return atom
        return None

    @property
    def extent(self) -> Size | None:
        """A size the value always stays below (it being at least 0), where one can be shown; else None."""
        return _extent(self.terms)

    @property
    def iterators(self) -> frozenset[str]:
        """The names of the loop variables in it."""
        return frozenset[str]().union(*(_iterators(atom) for _, _, atom in self.terms))

    def count_terms(self, most: int) -> int:
        """The number of terms, those inside of atoms included; counting ends beyond `most`."""
        count, pending = 0, [self]
        while pending and count <= most:
            terms = pending.pop().terms
            count += len(terms)
            for _, _, atom in terms:
                if isinstance(atom, Quotient | Remainder):
                    pending.append(atom.numerator)
                elif isinstance(atom, Guard):
                    pending.append(atom.index)
        return count

    def evaluate(self, iterators: Mapping[str, Any], valuation: Valuation) -> Any:
        """The value for iterators given as integers or integer arrays. Guards are not tested here."""
        value = 0
        for count, size, atom in self.terms:
            value = value + count * valuation.integer(size) * _evaluate(atom, iterators, valuation)
        return value

    def text(self, size_text: SizeText = str, divide: str = "//") -> str:
        """Source text. `size_text` writes a size; `divide` is "//" for Python, "/" for C.

        C rounds towards zero: where a numerator may be negative, its text calls `floor_div` and `floor_mod`.
        """
        return source_text(self, size_text, divide)

    def __str__(self) -> str:
        return self.text()


def iterator(name: str, extent: Size) -> Expression:
    """The loop variable `name`, with values in [0, extent)."""
    return Expression(((1, ONE, Iterator(name, extent)),))


def half(size: Size) -> Expression:
    """`size // 2`."""
    return Expression(((1, ONE, Half(size)),))


def divides(divisor: Size, size: Size) -> bool:
    """Whether `divisor` divides `size` whatever the values: no negative exponent in the quotient."""
    return (size / divisor).is_polynomial


def _terms(value: Expression | int) -> tuple[Term, ...]:
    if isinstance(value, Expression):
        return value.terms
    return ((value, ONE, None),) if value else ()


def _scaled(terms: Iterable[Term], count: int, size: Size) -> Expression:
    return Expression(tuple((count * n, size * s, atom) for n, s, atom in terms))


def _sum(terms: Iterable[Term]) -> Expression:
    """Collect like terms; then B*(x//B) + x%B = x."""
    counts: dict[tuple[Size, Atom | None], int] = {}
    for count, size, atom in terms:
        counts[size, atom] = counts.get((size, atom), 0) + count
    for (size, atom), count in list(counts.items()):
        if isinstance(atom, Remainder) and count:
            key = (size * atom.divisor, _quotient(atom.numerator, atom.divisor).only_atom)
            if counts.get(key) == count:
                counts[size, atom] = counts[key] = 0
                return _sum([*((n, s, a) for (s, a), n in counts.items()), *_scaled(atom.numerator.terms, count, size).terms])
    return Expression(tuple((count, size, atom) for (size, atom), count in counts.items() if count))


def _extent(terms: Iterable[Term]) -> Size | None:
    """Mixed radix: in B*i + j with i < G and j < B, the value stays below G*B."""
    bound = ONE
    remaining = list(terms)
    while remaining:
        for position, (count, size, atom) in enumerate(remaining):
            if count == 1 and size is bound and atom is not None:
                own = _atom_extent(atom)
                if own is None:
                    return None
                bound = bound * own
                del remaining[position]
                break
        else:
            return None
    return bound


def _atom_extent(atom: Atom) -> Size | None:
    match atom:
        case Iterator(_, extent) | Guard(_, extent) | Remainder(_, extent):
            return extent
        case Quotient(numerator, divisor):
            own = numerator.extent
            return own / divisor if own is not None and divides(divisor, own) else None
        case Half():
            return None


def _split_radix(value: Expression, radix: Size) -> tuple[Expression, Expression] | None:
    """(hi, lo) with value = radix*hi + lo and 0 <= lo < radix shown; None where it cannot be shown."""
    high = [term for term in value.terms if divides(radix, term[1])]
    low = tuple(term for term in value.terms if not divides(radix, term[1]))
    own = _extent(low)
    if own is None or not divides(own, radix):
        return None
    return Expression(tuple((n, s / radix, atom) for n, s, atom in high)), Expression(low)


def _common_radices(value: Expression, divisor: Size) -> list[Size]:
    """Sizes other than 1 by which terms are scaled and that divide `divisor`."""
    return list(dict.fromkeys(s for _, s, _ in value.terms if s is not ONE and divides(s, divisor)))


def _quotient(value: Expression, divisor: Size) -> Expression:
    if divisor is ONE or not value.terms:
        return value
    if parts := _split_radix(value, divisor):  # (B*i + j) // B = i
        return parts[0]
    for radix in _common_radices(value, divisor):  # (C*i + j) // (B*C) = i // B
        if parts := _split_radix(value, radix):
            return _quotient(parts[0], divisor / radix)
    match value.only_atom:
        case Quotient(numerator, inner):  # (x // A) // B = x // (A*B)
            return _quotient(numerator, inner * divisor)
        case Remainder(numerator, modulus) if divides(divisor, modulus):  # (x % (A*B)) // A = (x // A) % B
            return _remainder(_quotient(numerator, divisor), modulus / divisor)
    return Expression(((1, ONE, Quotient(value, divisor)),))


def _remainder(value: Expression, divisor: Size) -> Expression:
    if divisor is ONE:
        return Expression()
    if parts := _split_radix(value, divisor):  # (B*i + j) % B = j
        return parts[1]
    rest = tuple(term for term in value.terms if not divides(divisor, term[1]))
    if len(rest) < len(value.terms):  # (B*i + x) % B = x % B
        return _remainder(Expression(rest), divisor)
    for radix in _common_radices(value, divisor):  # (C*i + j) % (B*C) = C*(i % B) + j
        if parts := _split_radix(value, radix):
            return _remainder(parts[0], divisor / radix) * radix + parts[1]
    terms: list[Term] = []
    for count, size, atom in value.terms:  # (x % (A*B) + y) % B = (x + y) % B
        if isinstance(atom, Remainder) and divides(divisor, size * atom.divisor):
            terms += _scaled(atom.numerator.terms, count, size).terms
        else:
            terms.append((count, size, atom))
    if tuple(terms) != value.terms:
        return _remainder(_sum(terms), divisor)
    return Expression(((1, ONE, Remainder(value, divisor)),))


def _evaluate(atom: Atom | None, iterators: Mapping[str, Any], valuation: Valuation) -> Any:
    match atom:
        case None:
            return 1
        case Iterator(name, _):
            return iterators[name]
        case Half(size):
            return valuation.integer(size) // 2
        case Quotient(numerator, divisor):
            return numerator.evaluate(iterators, valuation) // valuation.integer(divisor)
        case Remainder(numerator, divisor):
            return numerator.evaluate(iterators, valuation) % valuation.integer(divisor)
        case Guard(index, _):
            return index.evaluate(iterators, valuation)


def _iterators(atom: Atom | None) -> frozenset[str]:
    match atom:
        case Iterator(name, _):
            return frozenset((name,))
        case Quotient(inner, _) | Remainder(inner, _) | Guard(inner, _):
            return inner.iterators
        case _:
            return frozenset()
