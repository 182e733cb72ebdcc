"""What coordinate expressions are made of: iterators, quotients, remainders, guarded indices, halves of sizes.

Paper: section 4.1, Table 1 (coordinate expressions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno.algebra.size import Size

if TYPE_CHECKING:
    from syno.algebra.expression import Expression


@dataclass(frozen=True, slots=True)
class Iterator:
    """A loop variable with values in [0, extent)."""

    name: str
    extent: Size


@dataclass(frozen=True, slots=True)
class Quotient:
    """`numerator // divisor`, rounded down."""

    numerator: Expression
    divisor: Size


@dataclass(frozen=True, slots=True)
class Remainder:
    """`numerator % divisor`, in [0, divisor)."""

    numerator: Expression
    divisor: Size


@dataclass(frozen=True, slots=True)
class Guard:
    """An index that is read only where it lies in [0, extent); elsewhere the whole summand is zero.

    Whoever builds guards keeps the list of their conditions: simplification may drop an index, never a condition.
    """

    index: Expression
    extent: Size


@dataclass(frozen=True, slots=True)
class Half:
    """`size // 2`: a constant that is no monomial."""

    size: Size


Atom = Iterator | Quotient | Remainder | Guard | Half
Term = tuple[int, Size, Atom | None]  # count * size * atom; no atom: a constant
