"""Valuations at which operators are compared: the smallest that distinguish them.

Most operators of a space have sizes that are whole numbers at two tiny valuations. The other operators are compared at these,
too, if they can be rewritten without their other sizes; else at two larger valuations, the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, permutations
from math import ceil, prod

from syno.algebra import Size, Valuation, Variable, VariableKind, product
from syno.ir.dim import Dim, Operation, reduce
from syno.ir.graph import PGraph
from syno.ir.primitives import MERGE, SHARE, SPLIT, UNFOLD
from syno.ir.structure import Rebuilt, numbered
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec

# Operators with fewer sizes: pieces of an axis that are only used together become one axis again.
#
# Two pieces of one Merge, or two sums, can be one dim if the same weights are indexed by both, and if then both are expanded or
# a Split joins them in their order. The sizes of the pieces do not matter for what the operator computes: without them it can
# be evaluated at more valuations.


def fused(graph: PGraph) -> PGraph:
    """Return an equal operator in which pieces of an axis that are only used together are joined, also as axes of weights."""
    while (pair := next(_pairs(graph), None)) is not None:
        graph = _fuse_pair(graph, *pair)
    return graph


@dataclass(frozen=True)
class _Chain:
    """A dim and the chain of Shares above it: the weights' axes, the dim at the top, and the Split on that dim, if any."""

    begin: Dim
    axes: Mapping[int, Dim]
    end: Dim
    split: Operation | None
    is_expanded: bool


def _pairs(graph: PGraph) -> Iterator[tuple[Dim | None, _Chain, _Chain]]:
    """Yield pairs of dims that can be joined.

    Each is (the dim below, None for sums; the chain on the major piece; the chain on the minor piece).
    """
    above = {dim: operation for operation in graph.operations for dim in operation.bottoms}
    expanded = set(graph.expansions)

    def chain(dim: Dim) -> _Chain:
        axes, end = {}, dim
        while (operation := above.get(end)) is not None and operation.primitive is SHARE:
            assert isinstance(operation.parameter, int)
            end, axes[operation.parameter] = operation.tops
        split = operation if operation is not None and operation.primitive is SPLIT else None
        return _Chain(dim, axes, end, split, end in expanded)

    pieces: list[tuple[Dim | None, Dim, Dim]] = [
        (operation.bottoms[0], operation.tops[0], operation.tops[1])
        for operation in graph.operations
        if operation.primitive is MERGE
    ]
    pieces += [(None, first, second) for first, second in permutations(graph.reduces, 2)]
    for below, major, minor in pieces:
        first, second = chain(major), chain(minor)
        together = first.split is not None and first.split.bottoms == (first.end, second.end)
        if first.axes.keys() == second.axes.keys() and (together or (first.is_expanded and second.is_expanded)):
            yield below, first, second


def _fuse_pair(graph: PGraph, below: Dim | None, major: _Chain, minor: _Chain) -> PGraph:
    pair = (major.begin, minor.begin)
    loops = [dim for dim in graph.reduces if dim not in pair]
    new = Rebuilt(numbered(loops))
    size = major.begin.size * minor.begin.size
    same = sum(dim.size is size for dim in loops)  # reductions of one size are numbered without a gap
    data = new[below] if below is not None else reduce(size, same)
    for weight, axis in major.axes.items():
        data, new[axis] = Operation(SHARE, weight, (data,)).tops
    new[major.end] = data
    if major.split is not None:
        new[major.split.tops[0]] = data
    gone = {minor.end, *minor.axes.values()}
    return graph.mapped(
        new,
        weights=[[dim for dim in weight if dim not in gone] for weight in graph.weights],
        expansions=[dim for dim in graph.expansions if dim not in gone],
    )


Window = tuple[Size, Size]  # the axis and the window of an Unfold
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
FACTORS = range(2, 24)  # a primary is one of these times its divisor
LEAST = 5  # the smallest value of a primary: rotations by few positions, in either direction, differ
MOST_SUMMANDS = 1_000_000_000  # summands of one operator: positions of all its loops
MOST_WIDE_SUMMANDS = 10_000_000  # at the larger valuations of a space, so that a comparison takes seconds at most


@dataclass
class ComparisonValuations:
    """Chooses the valuations at which each operator of a space is compared.

    Attributes:
        spec, sizes: spec and table of sizes of the space.
        wanted: the sizes of the input's axes, without those bound to the output's.
    """

    spec: OperatorSpec
    sizes: SizeTable
    wanted: tuple[Size, ...]

    def __call__(self, operator: PGraph) -> tuple[PGraph, tuple[Valuation, ...]]:
        """Return the operator, or an equal one with fewer sizes, and the valuations to compare it at.

        If the larger valuations are too large for it, the tiny ones are returned; some of its sizes may not be whole numbers
        there.
        """
        if is_whole(operator, self.usual):
            return operator, self.usual
        operator = fused(operator)
        if not is_whole(operator, self.usual) and is_whole(operator, self.wide, MOST_WIDE_SUMMANDS):
            return operator, self.wide
        return operator, self.usual

    @cached_property
    def usual(self) -> tuple[Valuation, ...]:
        """Tiny valuations at which the usual sizes, those of most operators, are whole numbers."""
        return tiny_valuations(*self._usual_sizes)

    @cached_property
    def wide(self) -> tuple[Valuation, ...]:
        """Valuations at which the sizes of sums, and of pieces of the output's and input's axes, are whole numbers as well."""
        usual, windows = self._usual_sizes
        pieces = {piece for axis in self._free for block, _ in self.sizes.divisors(axis) for piece in (block, axis / block)}
        sums = {
            size
            for size in self.sizes.sizes(self.sizes.none)
            if sum(v.kind is VariableKind.PRIMARY for v in size.variables) < 2
        }
        return tiny_valuations({*usual, *pieces, *sums}, windows)

    @cached_property
    def _free(self) -> set[Size]:
        bound = {axis for axis, _ in self.spec.bound_axes}
        return {size for axis, size in enumerate(self.spec.output_sizes) if axis not in bound} | set(self.wanted)

    @cached_property
    def _usual_sizes(self) -> tuple[list[Size], list[Window]]:
        """The usual sizes, and the possible windows with their axes."""
        coefficients = [Size.of(v) for v in self.sizes.variables if v.kind is VariableKind.COEFFICIENT]
        free = self._free
        shape_sizes = {*self.spec.output_sizes, *free}  # every operator has these, legal or not
        sizes = {*shape_sizes, *coefficients}
        for size in free:
            sizes |= {size / divisor for divisor in (*coefficients, *map(product, combinations(coefficients, 2)))}
        usual = [size for size in sizes if size in shape_sizes or (self.sizes[size].is_legal and self.sizes[size].is_valid)]
        windows = [
            (axis, window)
            for window in coefficients
            if self.sizes[window].is_odd  # an even window may have the smallest value
            for axis in (*free, *coefficients)
            if self.sizes[axis / window].lowest >= self.spec.windows.least_ratio
        ]
        return usual, windows


def tiny_valuations(sizes: Iterable[Size], windows: Iterable[Window] = (), count: int = 2) -> tuple[Valuation, ...]:
    """Return small valuations at which every size is a whole number, above 1 unless the size is 1 itself.

    Coefficients are distinct primes, primaries are multiples of the sizes that divide them. Several valuations are needed,
    since different sizes can have equal values at one of them.

    Args:
        sizes: the sizes that must be whole; their variables get values.
        windows: (axis, window) of each possible Unfold. If possible, windows are odd, and each is narrow in at least one
            valuation: from some position, it does not cover its whole axis. (A sum over a wide window equals a sum over the
            axis.)
        count: number of valuations. If possible, no variable has the same value in two of them.
    """
    return _tiny(tuple(sorted({*sizes})), tuple(sorted({*windows})), count)


@lru_cache(maxsize=256)  # glance and fingerprint of an operator use the same valuations
def _tiny(sizes: tuple[Size, ...], windows: tuple[Window, ...], count: int) -> tuple[Valuation, ...]:
    variables = sorted({variable for size in sizes for variable in size.variables}, key=lambda variable: variable.sort_key)
    rows: list[Valuation] = []
    for number in range(count):
        values = _coefficients(variables, sizes, windows, rows, in_windows_first=number % 2 == 1)
        for variable in variables:
            if variable.kind is VariableKind.PRIMARY:
                taken = {*values.values(), *(row[variable.name] for row in rows)}
                values[variable.name] = _multiple(variable, values, sizes, windows, taken)
        rows.append(Valuation(values))
    return tuple(rows)


def is_whole(graph: PGraph, rows: Sequence[Valuation], most: float = float("inf")) -> bool:
    """Return whether all sizes of the operator are whole numbers at these valuations, with at most `most` summands."""
    if any(row.fraction(size).denominator != 1 for row in rows for size in graph.sizes):
        return False
    return _summands(graph, rows) <= most


def windows_of(graph: PGraph) -> list[Window]:
    """Return the (axis, window) pair of each Unfold of the operator."""
    unfolds = (operation for operation in graph.operations if operation.primitive is UNFOLD)
    return [(operation.bottoms[0].size, operation.bottoms[1].size) for operation in unfolds]


def own_valuations(graph: PGraph) -> tuple[Valuation, ...]:
    """Return tiny valuations for one operator. If odd and narrow windows would make it too large, windows may be even or
    wide.
    """
    rows = tiny_valuations(graph.sizes, windows_of(graph))
    if _summands(graph, rows) <= MOST_SUMMANDS:
        return rows
    return min(rows, tiny_valuations(graph.sizes), key=lambda rows: _summands(graph, rows))


def _summands(graph: PGraph, rows: Sequence[Valuation]) -> int:
    """Return the number of summands (positions of all loops) at the largest valuation."""
    return max(row.numel(dim.size for dim in (*graph.output, *graph.reduces)) for row in rows)


def _coefficients(
    variables: Sequence[Variable],
    sizes: Sequence[Size],
    windows: Sequence[Window],
    rows: Sequence[Valuation],
    *,
    in_windows_first: bool,
) -> dict[str, int]:
    """Return primes for the coefficients: the smallest for those that divide most often, or for those in windows.

    If a window along coefficients is wide in all `rows` and would be wide again, its coefficients come before those of its
    axis.
    """
    in_windows = {variable for _, window in windows for variable in window.variables}

    def key(variable: Variable) -> tuple[bool, int]:
        return not (in_windows_first and variable in in_windows), min(size.exponent(variable) for size in sizes)

    order = sorted((variable for variable in variables if variable.kind is VariableKind.COEFFICIENT), key=key)
    values = _primes(order, in_windows, rows, ())
    along = [pair for pair in windows if all(v.kind is VariableKind.COEFFICIENT for size in pair for v in size.variables)]
    wide = [pair for pair in along if all(is_wide(pair, row) for row in (*rows, Valuation(values)))]
    return _primes(_windows_first(order, wide), in_windows, rows, wide) if rows and wide else values


def _primes(
    order: Sequence[Variable], odd: set[Variable], rows: Sequence[Valuation], narrow: Sequence[Window]
) -> dict[str, int]:
    """Return primes for the coefficients in this order: the smallest free ones, or larger ones for windows that must be narrow.

    `narrow` has the windows that would otherwise cover their axis.
    """
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
    """Return the variables, those in windows before those only in the windows' axes, unless windows contradict each other."""
    waiting, ordered = list(order), list[Variable]()
    while waiting:
        open_ = [pair for pair in windows if {*pair[1].variables} & {*waiting}]
        later = {variable for axis, window in open_ for variable in {*axis.variables} - {*window.variables}}
        ordered.append(next((variable for variable in waiting if variable not in later), waiting[0]))
        waiting.remove(ordered[-1])
    return ordered


def is_wide(pair: Window, row: Valuation) -> bool:
    """Return whether a window covers its whole axis from every position."""
    # At such a valuation a sum over the window is a sum over the axis, so that two operators that differ elsewhere would
    # be equal.
    axis, window = (row.fraction(size) for size in pair)
    return window >= 2 * axis - window % 2


def _multiple(
    variable: Variable, values: Mapping[str, int], sizes: Sequence[Size], windows: Sequence[Window], taken: set[int]
) -> int:
    """Return a small multiple of the variable's divisors at which few windows are wide or even, and few sizes are equal."""
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
