"""Facts about sizes under the valuations of all layers, and the sizes that steps may have.

Source: the published system's size enumeration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations
from operator import add

from syno.algebra import Size, Trait, Variable, VariableKind, product
from syno.space.spec import OperatorSpec

LEGAL = (Trait.GENERAL, Trait.COEFFICIENT)  # of the sizes that coordinates may have, beside 1
Usage = tuple[int, ...]  # occurrences used up so far, one number per variable of the spec


def added(usage: Usage, more: Usage) -> Usage:
    """Return the sum of two usages, for each variable."""
    return tuple(map(add, usage, more))


@dataclass(slots=True, init=False, eq=False, repr=False)
class SizeFacts:
    """Facts about one size under the valuations of the spec's layers."""

    lowest: float  # over the layers
    highest: float
    total: int  # the sum over the layers, each truncated
    is_one: bool  # whether it is 1 for every layer
    is_odd: bool  # whether it is a whole and odd number for every layer
    is_legal: bool  # whether a coordinate may have it, and it is at least 1 for every layer
    can_be_window: bool  # whether it is small enough for the window of an Unfold, and odd if the options ask for that
    is_valid: bool  # whether it is within the options on sizes, and a whole number if they ask for it
    is_coefficient: bool  # whether it has coefficients only, none in the denominator
    exponents: Usage  # the exponents of the spec's variables
    shared: Usage  # occurrences that a weight's axis of this size uses up
    joined: Usage  # the least of these occurrences once the axis is joined with others: coefficients may cancel


class SizeTable(dict[Size, SizeFacts]):
    """Facts about sizes, each computed once, and the possible sizes of reductions, strides and merges.

    It is a dict, whose look-ups run no Python code, since nothing is looked up more often.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__()
        self.spec = spec
        self.variables = tuple(spec.table.values())
        self.limits: Usage = tuple(spec.limits[variable] for variable in self.variables)
        self.none: Usage = (0,) * len(self.variables)
        self._sizes: dict[Usage, tuple[Size, ...]] = {}
        self._divisors: dict[Size, tuple[tuple[Size, Usage], ...]] = {}
        distinct = Counter(tuple(row[name] for name in spec.table) for row in spec.valuations)
        self._rows = [(dict(zip(self.variables, row, strict=True)), count) for row, count in distinct.items()]

    def __missing__(self, size: Size) -> SizeFacts:
        facts = self[size] = self._find(size)
        return facts

    def _find(self, size: Size) -> SizeFacts:
        options, facts = self.spec.sizes, SizeFacts()
        values = [self._value(size, row) for row, _ in self._rows]
        facts.lowest, facts.highest = (above / below for above, below in (min(values, key=_ratio), max(values, key=_ratio)))
        facts.total = sum(above // below * count for (above, below), (_, count) in zip(values, self._rows, strict=True))
        facts.is_one = all(above == below for above, below in values)
        whole = all(above % below == 0 for above, below in values)
        facts.is_odd = whole and all(above // below % 2 for above, below in values)
        facts.is_legal = (
            size.trait in LEGAL and all(above >= below for above, below in values) and not (options.drop_ones and facts.is_one)
        )
        facts.is_valid = (
            len(size.exponents) <= options.variables
            and sum(abs(exponent) for _, exponent in size.exponents) <= options.powers
            and (whole or not options.exact_division)
        )
        windows = self.spec.windows
        facts.can_be_window = facts.highest <= windows.largest and (facts.is_odd or not windows.odd)
        facts.is_coefficient = size.trait in (Trait.COEFFICIENT, Trait.ONE)
        exponents = dict(size.exponents)
        facts.exponents = tuple(exponents.get(variable, 0) for variable in self.variables)
        facts.joined = tuple(
            abs(exponent) if variable.kind is VariableKind.PRIMARY else 0
            for variable, exponent in zip(self.variables, facts.exponents, strict=True)
        )
        facts.shared = tuple(map(abs, facts.exponents)) if options.count_coefficients_in_weights else facts.joined
        return facts

    def _value(self, size: Size, row: dict[Variable, int]) -> tuple[int, int]:
        """Return the numerator and the denominator of a size's value in one layer."""
        above = below = 1
        for variable, exponent in size.exponents:
            if exponent > 0:
                above *= row[variable] ** exponent
            else:
                below *= row[variable] ** -exponent
        return above, below

    def reduced(self, size: Size) -> Usage:
        """Return the occurrences of variables that a reduction or stride of this size uses."""
        return tuple(map(abs, self[size].exponents))

    def merged(self, block: Size, quotient: Size) -> Usage:
        """Return the occurrences of variables that a cut into these two sizes uses.

        Only powers of variables that the axis itself does not have count.
        """
        pairs = zip(self[block].exponents, self[quotient].exponents, strict=True)
        return tuple((abs(a) + abs(b) - abs(a + b)) // 2 for a, b in pairs)

    def fits(self, usage: Usage, more: Usage) -> bool:
        """Return whether `usage` plus `more` stays within the limit of each variable."""
        for used, added, limit in zip(usage, more, self.limits, strict=True):  # noqa: SIM110  (all() is slower)
            if added and used + added > limit:
                return False
        return True

    def sizes(self, usage: Usage) -> tuple[Size, ...]:
        """Return the sizes that a reduction or stride may have after the occurrences `usage`."""
        sizes = self._sizes.get(usage)
        if sizes is None:
            width = self.spec.sizes.enumerations_per_variable
            windows = []
            for variable, limit, used in zip(self.variables, self.limits, usage, strict=True):
                room = limit - used
                if variable.kind is VariableKind.PRIMARY:
                    windows.append(range(0, min(room, width - 1) + 1))
                else:
                    windows.append(range(max(width // 2 - width + 1, -room), min(width // 2, room) + 1))
            sizes = self._sizes[usage] = tuple(s for s in self._combined(windows) if self[s].is_legal and self[s].is_valid)
        return sizes

    def divisors(self, size: Size) -> tuple[tuple[Size, Usage], ...]:
        """Return the blocks into which an axis of this size may be cut, each with the occurrences that the cut uses."""
        divisors = self._divisors.get(size)
        if divisors is None:
            width = self.spec.sizes.enumerations_per_variable
            windows = []
            for variable, limit, exponent in zip(self.variables, self.limits, self[size].exponents, strict=True):
                middle = int(exponent / 2)  # towards zero
                low, high = middle + width // 2 - width + 1, middle + width // 2
                if variable.kind is VariableKind.PRIMARY:
                    rise = max(0, -low)
                    windows.append(range(low + rise, min(high + rise, exponent) + 1))
                else:
                    windows.append(range(max(low, min(exponent, 0) - limit), min(high, max(exponent, 0) + limit) + 1))
            blocks = [block for block in self._combined(windows) if self._divides(block, size)]
            divisors = self._divisors[size] = tuple((block, self.merged(block, size / block)) for block in blocks)
        return divisors

    def _divides(self, block: Size, size: Size) -> bool:
        sizes = (block, size / block)
        if not all(piece.trait in LEGAL for piece in sizes):  # cheaper than the facts, which most do not need then
            return False
        return all(facts.is_legal and facts.is_valid for facts in (self[piece] for piece in sizes))

    def _combined(self, windows: list[range]) -> Iterator[Size]:
        """Yield the sizes whose exponents are in these ranges, with at most `sizes: variables` variables.

        The exponent of the first variable changes fastest.
        """
        options, last = self.spec.sizes, len(self.variables) - 1
        primaries = [variable.kind is VariableKind.PRIMARY for variable in self.variables]
        powers = [{e: Size.of(v, e) for e in window} for v, window in zip(self.variables, windows, strict=True)]
        for reverse in combinations(*reversed(windows)):
            used = [i for i, exponent in enumerate(reverse) if exponent]
            if not used or len(used) > options.variables:
                continue
            if any(reverse[i] < 0 for i in used) and not any(primaries[last - i] for i in used):
                continue
            yield product(powers[last - i][reverse[i]] for i in used)


def _ratio(value: tuple[int, int]) -> float:
    return value[0] / value[1]
