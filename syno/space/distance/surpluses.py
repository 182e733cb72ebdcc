"""The blocks of the input's axes, and what the axes that a block is made of have too much or too little of.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator

from syno.algebra import Kind, Size

Blocks = list[tuple[Size, ...]]  # the input's axes in blocks


class Surpluses:
    """Facts about the product of axes over the product of a block, each found once."""

    def __init__(self) -> None:
        self._any: dict[Size, tuple[bool, bool]] = {}  # of primaries, and of any variables
        self._lack: dict[Size, Size] = {}

    def is_any(self, size: Size, coefficients: bool) -> bool:
        """Return whether a positive power of a primary variable, or of any if `coefficients`, is in the size."""
        found = self._any.get(size)
        if found is None:
            kinds = [variable.kind for variable, exponent in size.exponents if exponent > 0]
            found = self._any[size] = (Kind.PRIMARY in kinds, bool(kinds))
        return found[coefficients]

    def lack(self, size: Size) -> Size:
        """Return the part of the size that has primary variables in the denominator."""
        found = self._lack.get(size)
        if found is None:
            found = self._lack[size] = Size({v: e for v, e in size.exponents if e < 0 and v.kind is Kind.PRIMARY})
        return found


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
