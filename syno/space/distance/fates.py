"""The search for the cheapest fates of a state's axes.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from syno.algebra import ONE, Size, Trait
from syno.space.distance import verdict
from syno.space.distance.axes import UNREACHABLE, Axis, Grouping, Limits
from syno.space.distance.choice import Choice
from syno.space.distance.weighing import ended_usage, within_flops

if TYPE_CHECKING:
    from syno.space.distance.distance import Distance

WINDOW, REPEAT, PARTED = 100, 101, 102  # fates by number: 0 ended, 1 and up a group


class Fates:
    """Branch and bound over the fates of the axes, for one partition of the input's axes into blocks made together."""

    def __init__(
        self, distance: Distance, axes: tuple[Axis, ...], limits: Limits, partition: list[tuple[Size, ...]], most: int
    ) -> None:
        self.choice = choice = Choice(distance, axes, limits, partition)
        self.distance, self.limits, self.partition = distance, limits, partition
        self.sizes, self.excess = distance.sizes, distance.excess
        self.axes = sorted(axes, key=_hardest_first)
        self.with_primaries = sum(axis.size.trait is Trait.GENERAL for axis in axes)
        self.most = most
        self.best: Grouping | None = None
        self.empty = len(partition)  # groups without members
        self.cuts, self.cuts_left = 0, limits.merges - choice.base  # Merges that cut off what is too much; the most
        self.goal, self.members, self.rest = choice.goal, choice.members, choice.rest
        self.windows, self.repeated, self.ended, self.parted = choice.windows, choice.repeated, choice.ended, choice.parted

    def run(self) -> Grouping | None:
        """The cheapest choice of fates, if one is cheap enough."""
        if self.cuts_left >= 0 and len(self.axes) >= len(self.partition):
            self._assign(0, self.choice.base, 0, 0)
        return self.best

    # ---- choosing -----------------------------------------------------------------------------------------------

    def _assign(self, index: int, cost: int, contractions: int, last: int) -> None:
        """Choose the fate of axis `index`.

        `cost` and `contractions` are what the fates chosen so far need; `last` is the fate of the axis before, which an
        equal axis does not go below.
        """
        if cost + contractions > self.most:
            return
        if index == self.with_primaries:  # what follows are coefficients, which only make a rest larger
            if any(rest.trait is Trait.UNDEFINED for rest in self.rest):
                return
            cuts = sum(self.excess(rest, True) for rest in self.rest) + len(self.parted)
            if cuts > self.cuts_left:
                return
            before, self.cuts = self.cuts, cuts
            self._choose(index, cost + cuts - before, contractions, last)
            self.cuts = before
            return
        self._choose(index, cost, contractions, last)

    def _choose(self, index: int, cost: int, contractions: int, last: int) -> None:
        if index == len(self.axes):
            self._complete(cost, contractions)
            return
        axis = self.axes[index]
        if len(self.axes) - index < self.empty:
            return
        if index == 0 or axis != self.axes[index - 1]:
            last = 0
        if not last and axis.endings <= self.limits.weights:
            self.ended.append(axis)
            self._assign(index + 1, cost, max(contractions, axis.endings), 0)
            self.ended.pop()
        for group in self._groups(axis):
            if group + 1 >= last:
                self._join(index, group, cost, contractions)
        if axis.window <= 1 and last <= WINDOW and len(self.windows) < self.limits.unfolds + self.limits.splits:
            self.windows.append(axis)
            self._assign(index + 1, cost + 1, contractions, WINDOW)
            self.windows.pop()
        if axis.repeat and last <= REPEAT:
            self.repeated.append(axis)
            self._assign(index + 1, cost + 1, contractions, REPEAT)
            self.repeated.pop()
        if axis.parts.more < UNREACHABLE and self.cuts < self.cuts_left:
            self.cuts += 1
            self.parted.append(axis)
            self._assign(index + 1, cost + axis.parts.more, contractions, PARTED)
            self.parted.pop()
            self.cuts -= 1

    def _join(self, index: int, group: int, cost: int, contractions: int) -> None:
        axis, members, rest = self.axes[index], self.members[group], self.rest[group]
        now = rest * axis.size
        late = index >= self.with_primaries
        cuts = self.excess(now, late) - self.excess(rest, late)
        if self.cuts + cuts > self.cuts_left:
            return
        self.cuts += cuts
        self.rest[group] = now
        self.empty -= not members
        members.append(axis)
        self._assign(index + 1, cost + (len(members) > 1) + cuts, contractions, group + 1)
        members.pop()
        self.empty += not members
        self.rest[group] = rest
        self.cuts -= cuts

    def _groups(self, axis: Axis) -> Iterator[int]:
        if axis.strided:
            return
        seen = set()
        for group, members in enumerate(self.members):
            if not members:
                if self.goal[group] in seen:  # an equal group is as empty
                    continue
                seen.add(self.goal[group])
            if axis.slack > 0:
                if not members or members[0].slack > 0:
                    yield group
            elif not members and len(self.partition[group]) == 1 and axis.size is self.goal[group]:
                yield group

    # ---- all chosen ---------------------------------------------------------------------------------------------

    def _complete(self, cost: int, contractions: int) -> None:
        limits = self.limits
        if self.empty or (self.windows and not limits.unfolds):
            return
        for group, rest in enumerate(self.rest):
            if rest is ONE:
                continue
            if not self.sizes[rest].is_legal or self.members[group][0].slack <= 0:
                return
        if ended_usage(self.choice) is None:
            return
        for number in range(max(contractions, int(limits.needs_weight)), limits.weights + 1):
            self.choice.contractions = number
            total = verdict.steps(self.choice, cost, self.most - number) if within_flops(self.choice) else None
            if total is not None and total + number <= self.most:
                self.most = total + number - 1
                self.best = verdict.grouping(self.choice, total + number)


def _hardest_first(axis: Axis) -> tuple[bool, int, int, int]:
    """Primaries decide most, then what no weight can end; equal axes side by side."""
    return (axis.size.trait is not Trait.GENERAL, -axis.endings, axis.size.code, len(axis.cuts))
