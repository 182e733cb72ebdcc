"""Values at which operators are compared: as small as can be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, prod

from syno.algebra import Kind, Size, Valuation, Variable
from syno.ir.graph import PGraph
from syno.ir.primitives import UNFOLD

Window = tuple[Size, Size]  # the axis and the window of an Unfold
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
FACTORS = range(2, 24)  # of what divides a primary
MOST_SUMMANDS = 1_000_000_000  # of one operator, which are positions of all loops: arrays have an axis for some of these
LEAST = 5  # value of a primary: rotations by few positions, either way, differ


def tiny_valuations(sizes: Iterable[Size], windows: Iterable[Window] = (), count: int = 2) -> tuple[Valuation, ...]:
    """Values as small as can be told apart, at which every size is a whole number, and above 1 unless it is 1 itself.

    Coefficients are different primes, primaries are multiples of what divides them.

    Args:
        sizes: that must be whole; their variables get values.
        windows: axis and window of each Unfold there may be. If possible windows are odd, and each is narrow at one
            valuation at least: it does not reach over all of its axis from wherever it stands, as to sum over it would then
            be to sum over the axis.
        count: how many valuations. No variable has the same value in two of them, if possible.

    Source: this project; several valuations, because in one of them different sizes can have equal values.
    """
    sizes, windows = sorted({*sizes}), sorted({*windows})
    variables = sorted({variable for size in sizes for variable in size.variables}, key=lambda variable: variable.sort_key)
    rows: list[Valuation] = []
    for number in range(count):
        values = _coefficients(variables, sizes, windows, rows, in_windows_first=number % 2 == 1)
        for variable in variables:
            if variable.kind is Kind.PRIMARY:
                taken = {*values.values(), *(row[variable.name] for row in rows)}
                values[variable.name] = _multiple(variable, values, sizes, windows, taken)
        rows.append(Valuation(values))
    return tuple(rows)


def is_whole(graph: PGraph, rows: Sequence[Valuation], most: float = float("inf")) -> bool:
    """Whether all sizes of the operator are whole numbers at these valuations, and its summands at most that many."""
    if any(row.fraction(size).denominator != 1 for row in rows for size in graph.sizes):
        return False
    return all(row.numel(dim.size for dim in (*graph.output, *graph.reduces)) <= most for row in rows)


def windows_of(graph: PGraph) -> list[Window]:
    """Axis and window of each Unfold."""
    unfolds = (operation for operation in graph.operations if operation.primitive is UNFOLD)
    return [(operation.bottoms[0].size, operation.bottoms[1].size) for operation in unfolds]


def own_valuations(graph: PGraph) -> tuple[Valuation, ...]:
    """Those for one operator. Where windows that are odd and narrow make it too large, they may be what they like."""

    def summands(rows: Sequence[Valuation]) -> int:
        return max(row.numel(dim.size for dim in (*graph.output, *graph.reduces)) for row in rows)

    rows = tiny_valuations(graph.sizes, windows_of(graph))
    return rows if summands(rows) <= MOST_SUMMANDS else min(rows, tiny_valuations(graph.sizes), key=summands)


def _coefficients(
    variables: Sequence[Variable],
    sizes: Sequence[Size],
    windows: Sequence[Window],
    rows: Sequence[Valuation],
    *,
    in_windows_first: bool,
) -> dict[str, int]:
    """Primes for the coefficients: the smaller ones for those in windows if asked for, else for those that divide most.

    Where a window along coefficients was wide in all `rows` and would be again, its coefficients come before its axis's.
    """
    in_windows = {variable for _, window in windows for variable in window.variables}

    def key(variable: Variable) -> tuple[bool, int]:
        return not (in_windows_first and variable in in_windows), min(size.exponent(variable) for size in sizes)

    order = sorted((variable for variable in variables if variable.kind is Kind.COEFFICIENT), key=key)
    values = _primes(order, in_windows, rows, ())
    along = [pair for pair in windows if all(v.kind is Kind.COEFFICIENT for size in pair for v in size.variables)]
    wide = [pair for pair in along if all(is_wide(pair, row) for row in (*rows, Valuation(values)))]
    return _primes(_windows_first(order, wide), in_windows, rows, wide) if rows and wide else values


def _primes(
    order: Sequence[Variable], odd: set[Variable], rows: Sequence[Valuation], narrow: Sequence[Window]
) -> dict[str, int]:
    """The smallest primes that are not taken, in this order; larger ones where a window of `narrow` would else be wide."""
    values: dict[str, int] = {}
    for variable in order:
        taken = {*values.values(), *(row[variable.name] for row in rows)}
        free = [prime for prime in PRIMES if prime not in taken and not (prime == 2 and variable in odd)] or [PRIMES[-1]]
        known = {*values, variable.name}
        pairs = [pair for pair in narrow if known.issuperset(v.name for size in pair for v in size.variables)]
        tried = [{**values, variable.name: prime} for prime in free]
        values = min(tried, key=lambda some: sum(is_wide(pair, Valuation(some)) for pair in pairs))
    return values


def _windows_first(order: Sequence[Variable], windows: Sequence[Window]) -> list[Variable]:
    """What is in windows before what is in their axes alone, as far as windows do not contradict each other."""
    waiting, found = list(order), list[Variable]()
    while waiting:
        open_ = [pair for pair in windows if {*pair[1].variables} & {*waiting}]
        later = {variable for axis, window in open_ for variable in {*axis.variables} - {*window.variables}}
        found.append(next((variable for variable in waiting if variable not in later), waiting[0]))
        waiting.remove(found[-1])
    return found


def is_wide(pair: Window, row: Valuation) -> bool:
    """Whether the window reaches over all of the axis, from whichever position of it."""
    axis, window = (row.fraction(size) for size in pair)
    return window >= 2 * axis - window % 2


def _multiple(
    variable: Variable, values: Mapping[str, int], sizes: Sequence[Size], windows: Sequence[Window], taken: set[int]
) -> int:
    """A multiple of its divisors that leaves few windows too wide or even, and few sizes alike, and is small."""
    powers = dict.fromkeys(values, 0)
    for size in sizes:
        for below, exponent in size.exponents if size.exponent(variable) > 0 else ():
            if exponent < 0:
                powers[below.name] = max(powers[below.name], ceil(-exponent / size.exponent(variable)))
    divisor = int(prod(values[name] ** power for name, power in powers.items()))
    known = {*values, variable.name}
    seen = [size for size in sizes if known.issuperset(v.name for v in size.variables)]
    spans = [pair for pair in windows if known.issuperset(v.name for size in pair for v in size.variables)]

    def fault(factor: int) -> tuple[int, int]:
        row = Valuation({**values, variable.name: divisor * factor})
        wide = sum(is_wide(pair, row) or row.fraction(pair[1]) % 2 == 0 for pair in spans)
        alike = len(seen) - len({row.fraction(size) for size in seen})
        return wide, 2 * factor + 3 * alike + 6 * (divisor * factor in taken)

    least = max(LEAST, 3 * divisor if any(variable in axis.variables for axis, _ in windows) else 0)
    return divisor * min((factor for factor in FACTORS if divisor * factor >= least), key=fault)
