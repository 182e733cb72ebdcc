"""A quick look at Splits, before their state is made: of those that rules allow, forty are in vain for each that leads on.

Once no Merge is left, nothing can be cut off any more. Then no case but INPUT is left for what a Split joins, unless it is small
enough for a window: no weight ends it, and no Expand. Its group is an axis of the input exactly. So what it has more than that
axis must be cancelled: another live dim has the same variable in its denominator.

Paper: section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syno.algebra import Size, Variable
from syno.space.sizes import SizeTable
from syno.space.steps import CandidateStep


@dataclass
class Joins:
    """The test whether what a Split joins has a place in some operator.

    Attributes:
        sizes: facts about sizes.
        wanted: the sizes of the input's axes, those bound to the output's left out.
    """

    sizes: SizeTable
    wanted: tuple[Size, ...]
    _excess: dict[Size, tuple[frozenset[Variable], ...]] = field(default_factory=dict)
    _below: dict[Size, frozenset[Variable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._merges = self.sizes.spec.occurrences.merges
        self._depth = self.sizes.spec.depth

    def allow(self, split: CandidateStep) -> bool:
        """Return False only if the shape distance of the state after the Split is UNREACHABLE."""
        state, (major, minor) = split.state, split.dims
        is_last = state.steps + 1 >= self._depth
        if not is_last and (self._merges is None or state.ends.counts.merges < self._merges):
            return True
        size = major.size * minor.size
        excess = self._excess.get(size)
        if excess is None:
            excess = self._excess[size] = self._find_excess(size)
        if frozenset() in excess:
            return True
        cancelled = frozenset().union(*(self._denominator(d.size) for d in state.data if d is not major and d is not minor))
        return any(variables <= cancelled for variables in excess)

    def _find_excess(self, size: Size) -> tuple[frozenset[Variable], ...]:
        """Return the variables of which the size has more than an axis of the input, for each of these; none if it may be a window."""
        if self.sizes[size].can_be_window:
            return (frozenset(),)
        return tuple(self._denominator(wanted / size) for wanted in self.wanted)

    def _denominator(self, size: Size) -> frozenset[Variable]:
        """Return the variables in the denominator of a size."""
        found = self._below.get(size)
        if found is None:
            found = self._below[size] = frozenset(variable for variable, exponent in size.exponents if exponent < 0)
        return found
