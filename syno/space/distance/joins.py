"""A test that refuses most Splits before their state is made: of forty that the rules allow, about one leads on.

If no Merge is left, the axis that a Split joins can only become part of an axis of the input (case INPUT), or a window if it is
small enough: no weight and no Expand ends it, and nothing can be cut off. So the axes of its group multiply to exactly one axis
of the input. If the joined axis has variables that this axis does not have, another live dim must have them in its denominator.
The narrow bound on what is read cuts nothing off a group either, but while Merges are left, they may cut the joined axis into
pieces.

Paper: section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syno.algebra import Size
from syno.space.distance.problem import UNREACHABLE, Goal
from syno.space.distance.reading import ReadingBound
from syno.space.steps import CandidateStep


@dataclass
class Joins:
    """The test whether what a Split joins has a place in some operator.

    Attributes:
        goal: of the distance.
        narrow: the narrow bound, in the space of guided walks.
    """

    goal: Goal
    narrow: ReadingBound | None
    _excess: dict[Size, tuple[int, ...]] = field(default_factory=dict)
    _below: dict[Size, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._merges = self.goal.spec.occurrences.merges
        self._depth = self.goal.spec.depth
        self._bits = {variable: 1 << place for place, variable in enumerate(self.goal.sizes.variables)}

    def allow(self, split: CandidateStep) -> bool:
        """Return False only if the shape distance of the state after the Split is UNREACHABLE."""
        state, (major, minor) = split.state, split.dims
        size = major.size * minor.size
        is_last = state.steps + 1 >= self._depth
        has_merges = not is_last and (self._merges is None or state.ends.counts.merges < self._merges)
        if has_merges and (self.narrow is None or self.goal.pieces(size).more < UNREACHABLE):
            return True
        excess = self._excess.get(size)
        if excess is None:
            excess = self._excess[size] = self._find_excess(size)
        if 0 in excess:
            return True
        cancelled = 0
        for dim in state.data:
            if dim is not major and dim is not minor:
                cancelled |= self._denominator(dim.size)
        return any(not variables & ~cancelled for variables in excess)

    def _find_excess(self, size: Size) -> tuple[int, ...]:
        """Return, for each axis of the input, the variables of which the size has more, as bits; 0 if it may be a window."""
        if self.goal.sizes[size].can_be_window:
            return (0,)
        alone = set[Size]() if self.narrow is None else self.narrow.named  # axes of the input that are one live dim as it is
        return tuple(self._denominator(wanted / size) for wanted in self.goal.wanted if wanted is size or wanted not in alone)

    def _denominator(self, size: Size) -> int:
        """Return the variables in the denominator of a size, as bits."""
        found = self._below.get(size)
        if found is None:
            found = self._below[size] = sum(self._bits[variable] for variable, exponent in size.exponents if exponent < 0)
        return found
