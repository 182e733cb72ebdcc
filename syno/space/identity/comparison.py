"""Values at which the operators of one space are compared.

Most operators have sizes that are whole numbers at two tiny valuations. Another one is compared at those as well if it can
be written without its other sizes; else at two larger valuations, the same for all such operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from syno.algebra import Kind, Size, Valuation, product
from syno.ir.graph import PGraph
from syno.space.identity.fusing import fused
from syno.space.identity.tiny import Window, is_whole, tiny_valuations
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec

MOST_SUMMANDS = 10_000_000  # at the larger valuations, so that it takes no more than seconds


@dataclass
class Comparison:
    """Chooses the valuations for each operator.

    Attributes:
        spec, sizes: of the space.
        wanted: the sizes of the input's axes, those bound to the output's left out.
    """

    spec: OperatorSpec
    sizes: SizeTable
    wanted: tuple[Size, ...]

    def __call__(self, operator: PGraph) -> tuple[PGraph, tuple[Valuation, ...]]:
        """The operator, or an equal one with fewer sizes, and the valuations to compare it at.

        Where the larger valuations are too large, they are the tiny ones, of which some may not suit the operator.
        """
        if is_whole(operator, self.usual):
            return operator, self.usual
        operator = fused(operator)
        if not is_whole(operator, self.usual) and is_whole(operator, self.wide, MOST_SUMMANDS):
            return operator, self.wide
        return operator, self.usual

    @cached_property
    def usual(self) -> tuple[Valuation, ...]:
        """Tiny values at which the sizes that most operators have are whole numbers."""
        return tiny_valuations(*self._usual_sizes)

    @cached_property
    def wide(self) -> tuple[Valuation, ...]:
        """Values at which sizes of sums, and of pieces of the output's and input's axes, are whole numbers too."""
        usual, windows = self._usual_sizes
        pieces = {piece for axis in self._free for block, _ in self.sizes.divisors(axis) for piece in (block, axis / block)}
        sums = {size for size in self.sizes.sizes(self.sizes.none) if sum(v.kind is Kind.PRIMARY for v in size.variables) < 2}
        return tiny_valuations({*usual, *pieces, *sums}, windows)

    @cached_property
    def _free(self) -> set[Size]:
        bound = {axis for axis, _ in self.spec.bound_axes}
        return {size for axis, size in enumerate(self.spec.output_sizes) if axis not in bound} | set(self.wanted)

    @cached_property
    def _usual_sizes(self) -> tuple[list[Size], list[Window]]:
        """The sizes, and the windows that there may be, each with its axis."""
        coefficients = [Size.of(v) for v in self.sizes.variables if v.kind is Kind.COEFFICIENT]
        free = self._free
        given = {*self.spec.output_sizes, *free}  # whatever they are, as every operator has them
        sizes = {*given, *coefficients}
        for size in free:
            sizes |= {size / divisor for divisor in (*coefficients, *map(product, combinations(coefficients, 2)))}
        usual = [size for size in sizes if size in given or (self.sizes[size].is_legal and self.sizes[size].is_valid)]
        windows = [
            (axis, window)
            for window in coefficients
            if self.sizes[window].is_odd  # another is left as small as it may be
            for axis in (*free, *coefficients)
            if self.sizes[axis / window].lowest >= self.spec.windows.least_ratio
        ]
        return usual, windows
