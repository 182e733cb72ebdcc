"""What the shape distance knows of a state: sizes, and what may still be done with each.

Paper: section 5.4.
"""

from __future__ import annotations

from typing import NamedTuple

from syno.algebra import Size
from syno.space.sizes import Usage

UNREACHABLE = 1_000


class Parts(NamedTuple):
    """What it takes to cut an axis into pieces that all end, beside contractions; UNREACHABLE if it cannot be."""

    without: int  # a contraction
    one: int
    more: int


NO_PARTS = Parts(UNREACHABLE, UNREACHABLE, UNREACHABLE)


class Axis(NamedTuple):
    """What the distance knows of a live dim."""

    size: Size
    slack: int  # how many more primitives may stand above it
    cuts: tuple[Size, ...]  # the pieces, blocks and quotients, that a Merge can cut it into now
    parts: Parts  # what it takes to end it in pieces
    shift: bool  # whether a Shift can go on it, so that a Merge can cut what is above
    fold: int  # contractions before a window can slide over it: 0, 1, or UNREACHABLE
    minor: bool  # whether a Shift can go above a Split with it as minor
    endings: int  # contractions after which a weight may have ended it: 1, 2, or UNREACHABLE
    window: int  # contractions before it can be a window by itself: 0, 1, or UNREACHABLE
    repeat: bool  # whether an Expand can end it
    widens: bool  # whether ending it counts towards the largest product of output-only axes
    shareable: bool  # whether a weight can be indexed by it
    must_weigh: bool  # whether it is a bare sum too large to stay without a weight
    fresh: bool  # whether it is above the newest weight, so that views may go on it
    only_sums: bool  # whether it stands on reductions alone
    pool: float  # the product of sums below that may stay without a weight, for the largest layer
    misordered: bool  # whether it cannot be part of an axis without order, by the rules on channels
    strided: bool  # whether it must end as a window or a repeat, because a Stride skips elements


class Limits(NamedTuple):
    """What may still be used; numbers above the depth left are cut to it."""

    merges: int
    splits: int
    shifts: int
    unfolds: int
    repeats: int
    weights: int
    needs_weight: bool  # at least one contraction must come
    weighted: int  # the weights so far
    iterations: int  # of all loops, summed over the layers: the FLOPs of a single stage with one weight
    elements: int  # of the output, summed over the layers: the FLOPs of a last view
    room: Usage  # occurrences left
    outer: Size  # the product of output-only axes so far
    copies: float  # the product of repeats and of windows that are pieces of the output so far, for the largest layer
    beside: tuple[tuple[int, int], ...]  # places of axes that one weight may not end together
    apart: tuple[tuple[int, int], ...]  # places of axes that no Split may join before another weight
    touching: tuple[tuple[int, int], ...]  # places of axes that no Split may join without a third


class Group(NamedTuple):
    """Axes of the input that are made together, and one way to do it: for `explain`."""

    wanted: tuple[Size, ...]
    axes: tuple[Size, ...]
    rest: Size  # what is too much, and has to be cut off and ended


class Grouping(NamedTuple):
    """The cheapest choice of fates."""

    steps: int
    contractions: int
    groups: tuple[Group, ...]
    windows: tuple[Size, ...]
    repeated: tuple[Size, ...]
    ended: tuple[Size, ...]  # by weights
