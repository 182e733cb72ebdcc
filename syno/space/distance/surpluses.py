"""The blocks of the input's axes, and what the axes that a block is made of have too much or too little of.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from syno.algebra import Kind, Size, Trait
from syno.space.sizes import SizeTable

Blocks = list[tuple[Size, ...]]  # the input's axes in blocks


class Surplus(NamedTuple):
    """Facts about the product of axes over the product of a block."""

    primaries: int  # 1 if a positive power of a primary variable is in it, else 0
    anything: int  # the same of any variable
    is_undefined: bool  # whether a primary variable is in its denominator
    lack: int  # the code of the part with primary variables in the denominator


class Surpluses(dict[int, Surplus]):
    """Facts about surpluses by the code of their size, each found once.

    The search multiplies more often than it does anything else. With codes that is an addition, and the facts are a look-up.
    """

    def __missing__(self, code: int) -> Surplus:
        size = Size.of_code(code)
        kinds = [variable.kind for variable, exponent in size.exponents if exponent > 0]
        lack = Size({v: e for v, e in size.exponents if e < 0 and v.kind is Kind.PRIMARY})
        found = self[code] = Surplus(int(Kind.PRIMARY in kinds), int(bool(kinds)), size.trait is Trait.UNDEFINED, lack.code)
        return found


class Legality(dict[int, bool]):
    """For the code of a surplus with all that may still be added to it, whether it is 1 or a size that may be cut off."""

    def __init__(self, sizes: SizeTable) -> None:
        super().__init__()
        self._sizes = sizes

    def __missing__(self, code: int) -> bool:
        facts = self._sizes[Size.of_code(code)]
        found = self[code] = facts.is_legal or facts.is_one
        return found


def different_partitions(items: list[Size]) -> list[Blocks]:
    """Return the partitions of the items into blocks, those with most blocks first; of those with equal blocks one."""
    found: dict[tuple[tuple[Size, ...], ...], Blocks] = {}
    for partition in partitions(items):
        found.setdefault(tuple(sorted(partition)), partition)
    return sorted(found.values(), key=len, reverse=True)


def partitions(items: list[Size]) -> Iterator[Blocks]:
    """Yield every partition of the items into blocks."""
    if not items:
        yield []
        return
    first = items[0]
    for partition in partitions(items[1:]):
        yield [(first,), *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], (first, *block), *partition[i + 1 :]]
