"""The relaxed problem that the shape distance solves: axes, limits, and the goal.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from syno.algebra import Size, Trait, product
from syno.space.distance.sources import UNKNOWN, Source
from syno.space.rules.guarantees import Guarantees
from syno.space.sizes import SizeTable, Usage
from syno.space.spec import OperatorSpec

UNREACHABLE = 1_000  # more primitives than any operator has: the distance of a state that cannot become an operator
MOST_CUTS = 2  # Merges on one axis that are considered when it ends in pieces


class PieceCosts(NamedTuple):
    """The number of Merges, Unfolds and Expands that end an axis in pieces, by the number of contractions to come, or
    UNREACHABLE.
    """

    without_contraction: int
    one_contraction: int
    more_contractions: int

    def with_contractions(self, contractions: int) -> int:
        """Return the cost for this number of contractions to come."""
        return self[min(contractions, 2)]


NO_PIECES = PieceCosts(UNREACHABLE, UNREACHABLE, UNREACHABLE)


class Cuts(NamedTuple):
    """The places at which Merges may cut an axis."""

    now: tuple[Size, ...]  # pieces (blocks and quotients) of the Merges that rules allow directly on the axis
    above_shift: bool  # whether a Shift can act on the axis, and then a Merge above the Shift
    above_split: bool  # whether a Split can take the axis as minor, then a Shift, then a Merge
    above_window: int  # contractions before an Unfold can act on the axis, with a Merge above: 0, 1 or UNREACHABLE


class Endings(NamedTuple):
    """The ways in which an axis may end without becoming part of the input."""

    weight: int  # contractions after which a weight may have ended it: 1, 2, or UNREACHABLE
    window: int  # contractions before it can be a window uncut: 0, 1 or UNREACHABLE
    repeat: bool  # whether an Expand can end it
    pieces: PieceCosts


@dataclass(slots=True, eq=False)
class Axis:
    """A live dim in the relaxed problem. Axes of equal properties have equal numbers, which are keys of caches."""

    size: Size
    is_open: bool  # whether another primitive may stand above it
    cuts: Cuts
    endings: Endings
    is_outer: bool  # whether ending it by a weight counts towards the largest product of output-only axes
    is_shareable: bool  # whether a weight can be indexed by it
    needs_weight: bool  # whether it is a sum too large to stay without a weight
    is_fresh: bool  # whether it stands on the newest weight, so that views may go on it
    only_sums: bool  # whether it stands on reductions alone
    pool: float  # the product of the sums below that may stay without a weight, for the largest layer
    is_misordered: bool  # whether the rules on channels keep it from being part of an unordered axis
    is_strided: bool  # whether it must end as a window or a repeat, because a Stride skips elements
    source: Source = UNKNOWN
    number: int = 0  # set by `Relaxation`: key of caches
    order: tuple[Any, ...] = field(init=False, repr=False)  # sort key of a state's axes; equal for equal axes
    hardness: tuple[bool, int, int, int] = field(init=False, repr=False)  # sort key in `search`

    def __post_init__(self) -> None:
        facts = (self.is_outer, self.is_shareable, self.needs_weight, self.is_fresh, self.only_sums, self.pool)
        last = (self.is_misordered, self.is_strided, self.source, *(size.code for size in self.cuts.now), self.is_open)
        self.order = (self.size.code, self.cuts, self.endings, *facts, *last)
        # The search decides the hard axes first, where most assignments fail: those with primaries, then those that no
        # weight can end; equal axes side by side
        self.hardness = (self.size.trait is not Trait.GENERAL, -self.endings.weight, self.size.code, len(self.cuts.now))


class Allowance(NamedTuple):
    """The remaining number of primitives of each kind, at most the remaining depth."""

    merges: int
    splits: int
    shifts: int
    unfolds: int
    repeats: int
    contractions: int


Pairs = tuple[tuple[int, int], ...]  # indices of axes


class Conflicts(NamedTuple):
    """Pairs of axes that rules keep apart, as indices into the sorted list of a state's axes."""

    ended: Pairs  # one weight may not end both
    joined: Pairs  # no Split may join them before another contraction
    joined_alone: Pairs  # no Split may join them without a third axis


class Limits(NamedTuple):
    """The remaining allowances of a state, and the amounts used so far."""

    left: Allowance
    room: Usage  # occurrences of variables left
    needs_weight: bool  # whether at least one contraction must come
    weights: int  # contractions so far
    iterations: int  # product of all loops, summed over the layers: the FLOPs of a single stage with one weight
    outer: Size  # the product of output-only axes so far
    copies: float  # the product of repeats and of windows that are pieces of the output so far, for the largest layer
    conflicts: Conflicts


@dataclass
class DistanceGoal:
    """The goal of the relaxed problem: the sizes that the axes of every state in a space must become, and the bounds of the
    spec.

    Attributes:
        spec, sizes: spec and table of sizes of the space.
        ensured: the facts that active rules guarantee.
        wanted: the sizes of the input's axes, without those bound to the output's.
        unordered: the sizes in `wanted` that only unordered axes of the input have.
        least_flops, most_flops: bounds on the FLOPs of the replaced layers.
    """

    spec: OperatorSpec
    sizes: SizeTable
    ensured: Guarantees
    wanted: tuple[Size, ...]
    unordered: frozenset[Size]
    least_flops: float
    most_flops: float
    _pieces: dict[tuple[Size, tuple[Size, ...] | None], PieceCosts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shift_pattern = self.spec.windows.shift_pattern if self.ensured.shifted_blocks_are_small else inf
        self.largest_pooling = self.spec.reductions.largest_pooling if self.ensured.pooling_is_small else inf
        self.elements = self.sizes[product(self.spec.output_sizes)].total  # elements of the output: the FLOPs of a last view

    def pieces(self, size: Size, first: tuple[Size, ...] | None = None) -> PieceCosts:
        """Return the costs of ending an axis of this size in pieces: as windows, as repeats, or by weights.

        Args:
            size: size of the axis.
            first: the pieces that the first Merge may cut; None for any.
        """
        costs = self._pieces.get((size, first))
        if costs is None:
            least = list(NO_PIECES)
            for pieces in self._cuts(size, first, MOST_CUTS):
                taken = [self._may_be_taken(piece) for piece in pieces]
                ended = [self._may_be_ended(piece) for piece in pieces]
                cuts, others = len(pieces) - 1, ended.count(False)
                if all(taken):
                    least[0] = min(least[0], cuts + len(pieces))
                if all(a or b for a, b in zip(taken, ended, strict=True)):
                    # One weight cannot end all pieces if rules forbid it to end adjacent ones.
                    uncovered = max(others, int(self.ensured.outer_not_adjacent))
                    if others or any(taken) or not uncovered:
                        least[1] = min(least[1], cuts + uncovered)
                    least[2] = min(least[2], cuts + others)
            costs = self._pieces[size, first] = PieceCosts(*least)
        return costs

    def _cuts(self, size: Size, first: tuple[Size, ...] | None, most: int) -> Iterator[tuple[Size, ...]]:
        for block, _ in self.sizes.divisors(size):
            other = size / block
            if first is not None and block not in first:
                continue
            yield block, other
            if most > 1:
                yield from ((block, *pieces) for pieces in self._cuts(other, None, most - 1))
                yield from ((other, *pieces) for pieces in self._cuts(block, None, most - 1))

    def _may_be_ended(self, piece: Size) -> bool:
        """Return whether a weight may end a piece of this size."""
        facts = self.sizes[piece]
        return facts.highest <= self.spec.contractions.largest_outer and self.sizes.fits(self.sizes.none, facts.shared)

    def _may_be_taken(self, piece: Size) -> bool:
        """Return whether a piece of this size may be a window or a repeat."""
        facts = self.sizes[piece]
        return facts.can_be_window or 1 < self.spec.repeats.largest >= facts.highest
