"""Sums of terms, and the exact identities of div and mod that bring them to normal form.

A term is `count * size * atom`, where an atom is an iterator, a quotient, a remainder, a guarded index or the half of a size.
The identities hold for every valuation in which the sizes are positive integers. An identity whose side condition cannot be
shown from the exponents alone is not applied.

Paper: section 4.1, Table 1 (coordinate expressions), section 5.2 (simplification).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syno.algebra.size import ONE, Size


@dataclass(frozen=True, slots=True)
class Iterator:
    """An atom: a loop variable with values in [0, extent)."""

    name: str
    extent: Size


@dataclass(frozen=True, slots=True)
class Quotient:
    """An atom: `numerator // divisor`, rounded down."""

    numerator: Terms
    divisor: Size


@dataclass(frozen=True, slots=True)
class Remainder:
    """An atom: `numerator % divisor`, in [0, divisor)."""

    numerator: Terms
    divisor: Size


@dataclass(frozen=True, slots=True)
class Guard:
    """An index that is read only where it lies in [0, extent); elsewhere the whole summand is zero.

    Whoever builds guards keeps the list of their conditions: simplification may drop an index, never a condition.
    """

    index: Terms
    extent: Size


@dataclass(frozen=True, slots=True)
class Half:
    """An atom: `size // 2`, a constant that is not a monomial."""

    size: Size


Atom = Iterator | Quotient | Remainder | Guard | Half
Term = tuple[int, Size, Atom | None]  # count * size * atom; without an atom: a constant
Terms = tuple[Term, ...]


def divides(divisor: Size, size: Size) -> bool:
    """Return whether `divisor` divides `size` for all values: no exponent of the quotient is negative."""
    return (size / divisor).is_polynomial


def only_atom(terms: Terms) -> Atom | None:
    """Return the atom of which a sum consists; None if it is not a single atom."""
    if len(terms) == 1:
        count, size, atom = terms[0]
        if count == 1 and size is ONE:
            return atom
    return None


def scaled(terms: Iterable[Term], count: int, size: Size) -> Terms:
    """Return the terms, each multiplied by `count * size`."""
    return tuple((count * n, size * s, atom) for n, s, atom in terms)


def collected(terms: Iterable[Term]) -> Terms:
    """Return the sum with like terms collected, in order of first appearance, and with x in place of B*(x//B) + x%B."""
    counts: dict[tuple[Size, Atom | None], int] = {}
    for count, size, atom in terms:
        counts[size, atom] = counts.get((size, atom), 0) + count
    for (size, atom), count in list(counts.items()):
        if isinstance(atom, Remainder) and count:
            key = (size * atom.divisor, only_atom(quotient(atom.numerator, atom.divisor)))
            if counts.get(key) == count:
                counts[size, atom] = counts[key] = 0
                return collected([*((n, s, a) for (s, a), n in counts.items()), *scaled(atom.numerator, count, size)])
    return tuple((count, size, atom) for (size, atom), count in counts.items() if count)


def extent_of(terms: Iterable[Term]) -> Size | None:
    """Return a size that the (non-negative) value of the sum always stays below; None if the terms do not show one.

    Mixed radix: in B*i + j with i < G and j < B, the value stays below G*B.
    """
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
            own = extent_of(numerator)
            return own / divisor if own is not None and divides(divisor, own) else None
        case Half():
            return None


def _split_radix(terms: Terms, radix: Size) -> tuple[Terms, Terms] | None:
    """Split a sum into (hi, lo) with sum = radix*hi + lo and 0 <= lo < radix; None if the exponents do not prove the bound."""
    high = tuple((n, s / radix, atom) for n, s, atom in terms if divides(radix, s))
    low = tuple(term for term in terms if not divides(radix, term[1]))
    own = extent_of(low)
    return (high, low) if own is not None and divides(own, radix) else None


def _common_radices(terms: Terms, divisor: Size) -> list[Size]:
    """Return the coefficients of terms, other than 1, that divide `divisor`."""
    return list(dict.fromkeys(s for _, s, _ in terms if s is not ONE and divides(s, divisor)))


def quotient(terms: Terms, divisor: Size) -> Terms:
    """Return the sum divided by `divisor`, rounded down, as terms."""
    if divisor is ONE or not terms:
        return terms
    if parts := _split_radix(terms, divisor):  # (B*i + j) // B = i
        return parts[0]
    for radix in _common_radices(terms, divisor):  # (C*i + j) // (B*C) = i // B
        if parts := _split_radix(terms, radix):
            return quotient(parts[0], divisor / radix)
    match only_atom(terms):
        case Quotient(numerator, inner):  # (x // A) // B = x // (A*B)
            return quotient(numerator, inner * divisor)
        case Remainder(numerator, modulus) if divides(divisor, modulus):  # (x % (A*B)) // A = (x // A) % B
            return remainder(quotient(numerator, divisor), modulus / divisor)
    return ((1, ONE, Quotient(terms, divisor)),)


def remainder(terms: Terms, divisor: Size) -> Terms:
    """Return the remainder of the sum modulo `divisor`, in [0, divisor), as terms."""
    if divisor is ONE:
        return ()
    if parts := _split_radix(terms, divisor):  # (B*i + j) % B = j
        return parts[1]
    rest = tuple(term for term in terms if not divides(divisor, term[1]))
    if len(rest) < len(terms):  # (B*i + x) % B = x % B
        return remainder(rest, divisor)
    for radix in _common_radices(terms, divisor):  # (C*i + j) % (B*C) = C*(i % B) + j
        if parts := _split_radix(terms, radix):
            return collected(scaled(remainder(parts[0], divisor / radix), 1, radix) + parts[1])
    inner: list[Term] = []
    for count, size, atom in terms:  # (x % (A*B) + y) % B = (x + y) % B
        if isinstance(atom, Remainder) and divides(divisor, size * atom.divisor):
            inner += scaled(atom.numerator, count, size)
        else:
            inner.append((count, size, atom))
    if tuple(inner) != terms:
        return remainder(collected(inner), divisor)
    return ((1, ONE, Remainder(terms, divisor)),)
