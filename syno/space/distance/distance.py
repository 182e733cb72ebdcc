"""Shape distance: how many more primitives a partial operator needs at least.

It looks at sizes only. Each live axis has one of five fates: it becomes part of an axis of the input (together with
others, by Splits; cut apart before, by Merges), it is taken in as the window of an Unfold, it is expanded as a repeat, a
weight ends it, or it is cut into pieces that end in several of these ways. One Contraction may end any number of axes. The
distance is the least cost over all choices of fates.
A choice that a rule forbids may be counted, a possible one never is left out: the distance is never above the truth.

Paper: section 5.4 (shape distance). The published system's differs: it charges a step for each axis that a contraction
ends, and forgets which axes a Merge may cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from syno.algebra import Kind, Size, Trait, product
from syno.space.distance.axes import UNREACHABLE, Axis, Grouping, Limits
from syno.space.distance.fates import Fates
from syno.space.distance.parting import Parting
from syno.space.rules.guarantees import Guarantees
from syno.space.sizes import SizeTable, Usage
from syno.space.spec import OperatorSpec


@dataclass
class Distance:
    """Distances under one spec, each found once."""

    spec: OperatorSpec
    sizes: SizeTable
    wanted: tuple[Size, ...]
    unordered: frozenset[Size]  # those of `wanted` that have no order of their own, whichever axis has the size
    least_flops: float  # of the replaced layers
    most_flops: float
    parting: Parting
    ensured: Guarantees
    _known: dict[tuple[tuple[Axis, ...], Limits], tuple[int, int]] = field(default_factory=dict)  # distance, searched up to
    _excess: dict[Size, tuple[bool, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = sorted(range(len(self.wanted)), key=lambda i: str(self.wanted[i]))
        self._goal = product(self.wanted)
        self.shift_pattern = self.spec.windows.shift_pattern if self.ensured.shifted_blocks_are_small else float("inf")
        self.largest_pooling = self.spec.reductions.largest_pooling if self.ensured.pooling_is_small else float("inf")
        partitions = [[tuple(self.wanted[i] for i in block) for block in partition] for partition in _partitions(tuple(order))]
        # with the number of Merges that part the axes of blocks, fewest first
        self._partitions = sorted(
            ((len(order) - len(partition), partition) for partition in partitions), key=lambda pair: pair[0]
        )

    def __call__(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> int:
        """The distance, or UNREACHABLE if it is above `most`. `axes` are sorted."""
        if most < 0:
            return UNREACHABLE
        key = (axes, limits)
        found = self._known.get(key)
        if found is not None and (found[0] <= found[1] or most <= found[1]):
            return found[0] if found[0] <= most else UNREACHABLE
        grouping = self.grouping(axes, limits, most)
        result = UNREACHABLE if grouping is None else grouping.steps
        self._known[key] = (result, most)
        return result

    def grouping(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> Grouping | None:
        """The cheapest choice of fates within `most` steps, or None."""
        best: Grouping | None = None
        excess = product(axis.size for axis in axes) / self._goal
        if excess.trait is Trait.UNDEFINED or excess.trait is Trait.ILLEGAL_COEFFICIENT or len(axes) < 1:
            return None
        for base, partition in self._partitions:
            if base > limits.merges:
                break
            best = Fates(self, axes, limits, partition, best.steps - 1 if best else most).run() or best
        return best

    def is_unordered(self, block: tuple[Size, ...]) -> bool:
        """Whether it is one axis of the input, without an order of its own."""
        return len(block) == 1 and block[0] in self.unordered

    def excess(self, rest: Size, coefficients: bool) -> bool:
        """Whether there is more of a primary variable than wanted, or, if asked for, of a coefficient."""
        found = self._excess.get(rest)
        if found is None:
            more = [v.kind for v, e in rest.exponents if e > 0]
            found = self._excess[rest] = (Kind.PRIMARY in more, bool(more))
        return found[coefficients]

    def fits(self, room: Usage, usage: Usage) -> bool:
        """Whether that many occurrences are left."""
        return all(used <= left for used, left in zip(usage, room, strict=True))


def _partitions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in _partitions(rest):
        yield [(first,), *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], (first, *block), *partition[i + 1 :]]
