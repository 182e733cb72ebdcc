"""The search for the cheapest fates of a state's axes.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from syno.algebra import ONE, Size, Trait, product
from syno.space.axes import UNREACHABLE, Axis, Group, Grouping, Limits
from syno.space.sizes import Usage

if TYPE_CHECKING:
    from syno.space.distance import Distance

WINDOW, REPEAT = 100, 101  # fates by number: 0 ended, 1 and up a group


class Fates:
    """Branch and bound over the fates of the axes, for one partition of the input's axes into blocks made together."""

    def __init__(
        self, distance: Distance, axes: tuple[Axis, ...], limits: Limits, partition: list[tuple[Size, ...]], most: int
    ) -> None:
        self.distance, self.limits, self.partition = distance, limits, partition
        self.sizes, self.excess = distance.sizes, distance.excess
        self.given = axes
        self.axes = sorted(axes, key=_hardest_first)
        self.with_primaries = sum(axis.size.trait is Trait.GENERAL for axis in axes)
        self.base = sum(len(block) - 1 for block in partition)  # Merges that part the axes of a block
        self.goal = [product(block) for block in partition]
        self.most = most
        self.best: Grouping | None = None
        self.cuts, self.cuts_left = 0, limits.merges - self.base  # Merges that cut off what is too much; the most
        self.members: list[list[Axis]] = [[] for _ in partition]
        self.rest: list[Size] = [ONE / goal for goal in self.goal]
        self.windows: list[Axis] = []
        self.repeated: list[Axis] = []
        self.ended: list[Axis] = []
        self.contractions = 0

    def run(self) -> Grouping | None:
        """The cheapest choice of fates, if one is cheap enough."""
        if self.cuts_left >= 0 and len(self.axes) >= len(self.partition):
            self._assign(0, self.base, 0, 0)
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
            cuts = sum(self.excess(rest, True) for rest in self.rest)
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
        if len(self.axes) - index < sum(not members for members in self.members):
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
        if axis.repeat:
            self.repeated.append(axis)
            self._assign(index + 1, cost + 1, contractions, REPEAT)
            self.repeated.pop()

    def _join(self, index: int, group: int, cost: int, contractions: int) -> None:
        axis, members, rest = self.axes[index], self.members[group], self.rest[group]
        now = rest * axis.size
        late = index >= self.with_primaries
        cuts = self.excess(now, late) - self.excess(rest, late)
        if self.cuts + cuts > self.cuts_left:
            return
        self.cuts += cuts
        self.rest[group] = now
        members.append(axis)
        self._assign(index + 1, cost + (len(members) > 1) + cuts, contractions, group + 1)
        members.pop()
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
        if not all(self.members) or (self.windows and not limits.unfolds):
            return
        for group, rest in enumerate(self.rest):
            if rest is ONE:
                continue
            if not self.sizes[rest].is_legal or self.members[group][0].slack <= 0:
                return
        if self._weighed() is None:
            return
        for number in range(max(contractions, int(limits.needs_weight)), min(limits.weights, 2) + 1):
            self.contractions = number
            steps = self._steps(cost) if self._within_flops(limits.weighted + number) else None
            if steps is not None and steps + number <= self.most:
                self.most = steps + number - 1
                self.best = self._grouping(steps + number)

    def _within_flops(self, weights: int) -> bool:
        """Whether an operator with so many weights may be within the budget.

        No operator needs more than all in one stage. With one weight it needs no less, but for sums over unweighted
        elements, which come before.
        """
        iterations, distance = self.limits.iterations, self.distance
        if iterations * weights < distance.least_flops:
            return False
        if weights > 1:
            return True
        pool = 1.0
        for members in self.members:
            for axis in members:
                pool *= axis.pool
        largest = distance.spec.windows.largest
        for axis in self.windows:  # a bare sum may stay unweighted if it is joined with another window
            if not axis.window or any(
                o is not axis and self.sizes[o.size * axis.size].highest <= largest for o in self.windows
            ):
                pool *= axis.pool
        return iterations / min(pool, distance.spec.reductions.largest_pooling) <= distance.most_flops

    def _grouping(self, steps: int) -> Grouping:
        return Grouping(
            steps,
            self.contractions,
            tuple(
                Group(block, tuple(axis.size for axis in members), rest)
                for block, members, rest in zip(self.partition, self.members, self.rest, strict=True)
            ),
            tuple(axis.size for axis in self.windows),
            tuple(axis.size for axis in self.repeated),
            tuple(axis.size for axis in self.ended),
        )

    def _steps(self, cost: int) -> int | None:
        """What the fates need beside contractions, with this number of those; None if it cannot be."""
        limits = self.limits
        merges, unfolds, repeats, ended = self.base, len(self.windows), len(self.repeated), len(self.ended)
        outer = product((limits.outer, *(axis.size for axis in self.ended if axis.widens)))
        for group, rest in enumerate(self.rest):
            if rest is ONE and len(self.partition[group]) == 1:
                continue
            if rest is not ONE:
                merges += 1  # `cost` has it already
            fate, extra = self._rest_fate(group)
            if fate is None:
                return None
            merges += extra // 2
            cost += extra % 2 + extra // 2
            ended += fate == "ended"
            outer = outer * rest if fate == "ended" else outer
            unfolds += fate == "window"
            repeats += fate == "repeat"
            cost += fate in ("window", "repeat")
        if self.sizes[outer].highest > self.distance.spec.contractions.largest_outer:
            return None
        splits = sum(len(members) - 1 for members in self.members)
        if ended < self.contractions:  # a weight ends something, be it a piece that is cut off for it
            merges += self.contractions - ended
            cost += self.contractions - ended
        if merges > limits.merges or splits > limits.splits or repeats > limits.repeats:
            return None
        if unfolds > limits.unfolds and unfolds - limits.unfolds > limits.splits - splits:
            return None
        if self._conflict():
            if merges == limits.merges or splits == limits.splits or not self._may_exchange():
                return None
            cost += 2
        if self.contractions == 1 and limits.beside and self._ends_neighbours():
            return None
        if self.contractions and not self._weights_large_enough():
            if merges == limits.merges or not self._may_exchange():
                return None
            cost += 2  # only another piece of an axis could make the weights larger: it is cut off, and dealt with
        return cost

    def _conflict(self) -> bool:
        """Whether rules keep the axes as they are from these fates."""
        if self.windows and not self._windows_fit():
            return True
        if self.contractions == 1 and self._sums_left_apart():
            return True
        for block, rest, members in zip(self.partition, self.rest, self.members, strict=True):
            if rest is ONE and self.distance.is_unordered(block) and any(axis.misordered for axis in members):
                return True
        return not (self._inner_fit() if self.contractions else self._split_allowed())

    def _may_exchange(self) -> bool:
        """Whether a Merge that is not needed otherwise, and a Split, may put another axis in the place of one."""
        fresh = self.contractions or any(axis.fresh for axis in self.axes)
        if any(axis.cuts for axis in self.axes) or (self.limits.shifts and any(axis.shift for axis in self.axes)):
            return True
        if self.limits.shifts and fresh and any(axis.minor for axis in self.axes):
            return True
        return bool(self.windows) and any(axis.fold <= self.contractions for axis in self.axes)

    def _rest_fate(self, group: int) -> tuple[str | None, int]:
        """How what is too much in a group goes, and what it takes to cut it off (see `_cutting`)."""
        rest, spec = self.rest[group], self.distance.spec
        if rest is ONE:  # a block of several axes, to be parted
            extra = self._cutting(group, False)
            return (None if extra == UNREACHABLE else "parted"), extra
        facts = self.sizes[rest]
        fates = []
        if self.contractions and self.may_end(rest):
            fates.append("ended")
        if facts.highest <= spec.windows.largest and (facts.is_odd or not spec.windows.odd) and self.limits.unfolds:
            fates.append("window")
        if self.limits.repeats and facts.highest <= spec.repeats.largest:
            fates.append("repeat")
        costs = [(self._cutting(group, fate == "ended"), fate) for fate in fates]
        costs = [(extra, fate) for extra, fate in costs if extra < UNREACHABLE]
        if not costs:
            return None, 0
        extra, fate = min(costs, key=lambda pair: pair[0] + (pair[1] != "ended"))
        return fate, extra

    def _windows_fit(self) -> bool:
        """Whether each window has an axis to slide over; without another weight, bare sums have to join a window for it."""
        positions = {axis.size for members in self.members for axis in members if axis.fold <= self.contractions}
        for goal, rest, members in zip(self.goal, self.rest, self.members, strict=True):
            if self.contractions and len(members) > 1 and any(axis.fold <= 1 for axis in members):
                positions.add(goal)  # joined, weighted, then slid over
            if rest is not ONE:
                positions |= {rest, *(axis.size / rest for axis in members if self.sizes[axis.size / rest].is_legal)}
                if len(members) > 1 and (self.limits.shifts or self.contractions):
                    return True  # pieces of axes joined before
        for axis in self.windows:
            if self.contractions or not axis.window:
                sizes = [axis.size]
            else:
                sizes = [axis.size * other.size for other in self.windows if not other.window]
            if not any(self._slides(size, positions) for size in sizes):
                return False
        return True

    def _slides(self, window: Size, positions: set[Size]) -> bool:
        options = self.distance.spec.windows
        if self.sizes[window].highest > options.largest:
            return False
        return any(self.sizes[size / window].lowest >= options.least_ratio for size in positions)

    def _ends_neighbours(self) -> bool:
        ended = {id(axis) for axis in self.ended}
        return any(id(self.given[i]) in ended and id(self.given[j]) in ended for i, j in self.limits.beside)

    def _cutting(self, group: int, ended: bool) -> int:
        """What it takes to cut something off the group: 0, 1 for a Shift, 2 for another Merge, UNREACHABLE.

        `ended` says that a weight ends what is cut off.
        """
        members, rest = self.members[group], self.rest[group]
        if len(self.partition[group]) > 1:
            return 0 if any(axis.cuts or axis.shift or axis.fold <= self.contractions for axis in members) else UNREACHABLE
        parts = [axis for axis in members if self._divides(rest, axis.size)]
        if any(rest in axis.cuts for axis in parts):
            return 0
        if self.windows and any(self._cut_above_window(axis, rest, ended, len(members) == 1) for axis in members):
            return 0
        if self.limits.shifts and self._cut_above_shift(members, parts, rest):
            return 1
        return 2 if sum(bool(axis.cuts) or axis.fold <= self.contractions for axis in members) > 1 else UNREACHABLE

    def _divides(self, rest: Size, whole: Size) -> bool:
        if whole is rest:
            return False
        kept = whole / rest
        return self.sizes[kept].is_legal and self.distance.fits(self.limits.room, self.sizes.merged(rest, kept))

    def _cut_above_window(self, axis: Axis, rest: Size, ended: bool, single: bool) -> bool:
        """Whether a Merge may cut off the rest above an Unfold, where one of the two pieces is smaller than the window."""
        if axis.fold > self.contractions:
            return False
        if axis.fold and (not self.ended or (ended and self.contractions < 2)):
            return False  # the weight that comes first needs an axis to end, too
        whole = axis.size if single or not axis.fold else None
        if whole is not None and not self._divides(rest, whole):
            return False
        if not self.distance.small_blocks:
            return True
        blocks = [rest] if whole is None else [rest, whole / rest]
        if whole is None and axis.fold:
            return True  # several axes joined before
        return any(self.sizes[block / window.size].lowest < 1 for block in blocks for window in self.windows)

    def _cut_above_shift(self, members: list[Axis], parts: list[Axis], rest: Size) -> bool:
        """Whether a Merge may cut off the rest above a Shift, where one of the two pieces must be small."""
        if any(axis.shift and self._small_cut(axis.size, rest) for axis in parts):
            return True
        for minor in members:
            if not minor.minor:
                continue
            others = [axis.size for axis in members if axis is not minor]
            wholes = {minor.size}
            for size in others:
                wholes |= {whole * size for whole in wholes}
            wholes.discard(minor.size)
            if any(self._small_cut(whole, rest) for whole in wholes):
                return True
        return False

    def _small_cut(self, whole: Size, rest: Size) -> bool:
        kept = self.sizes[whole / rest]
        return kept.is_legal and min(kept.highest, self.sizes[rest].highest) <= self.distance.shift_pattern

    def may_end(self, size: Size) -> bool:
        """Whether a weight may end a piece of that size."""
        return (
            self.may_weigh(size)
            and self.sizes[self.limits.outer * size].highest <= self.distance.spec.contractions.largest_outer
        )

    def may_weigh(self, size: Size) -> bool:
        """Whether a weight may be indexed by a dim of that size."""
        return self.distance.fits(self.limits.room, self.sizes[size].shared)

    def _weights_large_enough(self) -> bool:
        """Whether the new weights may have the least number of elements each, in every layer.

        Together they have at most the product of all axes, each as often as occurrences allow, or once for each weight.
        """
        used = self._weighed()
        assert used is not None
        room = [limit - use for limit, use in zip(self.limits.room, used, strict=True)]
        ended = {id(axis) for axis in self.ended}
        total = ONE
        for axis in self.axes:
            if not axis.shareable:
                continue
            times = axis.endings if id(axis) in ended else int(axis.must_weigh)
            shared = self.sizes[axis.size].shared
            more = min((left // use for left, use in zip(room, shared, strict=True) if use), default=self.contractions)
            total = total * axis.size ** min(times + more, self.contractions)
        for rest, members in zip(self.rest, self.members, strict=True):
            if rest is not ONE:  # small pieces go into every weight, whatever they are cut off from
                pieces = {rest, *(axis.size / rest for axis in members)}
                small = [piece for piece in pieces if self.sizes[piece].is_legal and not any(self.sizes[piece].shared)]
                total = product((total, *(piece**self.contractions for piece in small)))
        return self.sizes[total].lowest >= self.distance.spec.contractions.least_elements**self.contractions

    def _weighed(self) -> Usage | None:
        """Occurrences that the axes use up that a weight must end or have; None if that is too much."""
        total = self.sizes.none
        for axis in self.ended:
            for _ in range(axis.endings):
                total = _sum(total, self.sizes[axis.size].shared)
        for axis in (*chain.from_iterable(self.members), *self.windows, *self.repeated):
            if axis.must_weigh:
                total = _sum(total, self.sizes[axis.size].shared)
        return total if self.distance.fits(self.limits.room, total) else None

    def _inner_fit(self) -> bool:
        """Whether each contraction finds a dim that the weight and the data both are indexed by."""
        need = self.contractions
        kept = [axis for axis in (*chain.from_iterable(self.members), *self.windows, *self.repeated) if axis.shareable]
        need -= any(axis.must_weigh for axis in kept)
        need -= any(axis.endings == 2 for axis in self.ended)
        if need <= 0:
            return True
        used = self._weighed()
        assert used is not None
        costs = {self.sizes[axis.size].shared for axis in kept}
        if len(self.ended) > 1 and self.contractions > 1:  # one that a later weight ends
            costs |= {self.sizes[axis.size].shared for axis in self.ended}
        for rest in self.rest:
            if rest is not ONE:
                return True  # pieces of what is cut may be such dims
        return any(self.distance.fits(self.limits.room, _times(need, cost, used)) for cost in costs)

    def _split_allowed(self) -> bool:
        """Whether Splits can make the groups although no weight comes any more."""
        fresh_window = any(axis.fresh for axis in self.windows)
        for i, j in self.limits.apart:
            a, b = self.given[i], self.given[j]
            if self._together(a, b) and not (self.windows and (a.fold == 0 or b.fold == 0)):
                return False
        for i, j in self.limits.touching:
            a, b = self.given[i], self.given[j]
            if self._together(a, b, alone=True) and not (self.windows and (a.fold == 0 or b.fold == 0)):
                return False
        return all(
            len(members) < 2
            or any(axis.fresh for axis in members)
            or (fresh_window and any(axis.fold == 0 for axis in members))
            for members in self._uncut()
        )

    def _sums_left_apart(self) -> bool:
        """Whether two sums are to be joined that need a weight both: the same one keeps them apart as well."""
        pairs = ((self.given[i], self.given[j]) for i, j in self.limits.touching)
        return any(a.must_weigh and b.must_weigh and self._together(a, b, alone=True) for a, b in pairs)

    def _uncut(self) -> list[list[Axis]]:
        """The groups from which nothing is cut off, so that their axes are joined as they are."""
        groups = zip(self.partition, self.rest, self.members, strict=True)
        return [members for block, rest, members in groups if rest is ONE and len(block) == 1]

    def _together(self, a: Axis, b: Axis, alone: bool = False) -> bool:
        """Whether they are joined just as they are, with nothing else if `alone`."""
        for members in self._uncut():
            if any(axis is a for axis in members) and any(axis is b for axis in members):
                return not alone or len(members) == 2
        return False


def _sum(a: Usage, b: Usage) -> Usage:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _times(number: int, a: Usage, b: Usage) -> Usage:
    return tuple(number * x + y for x, y in zip(a, b, strict=True))


def _hardest_first(axis: Axis) -> tuple[bool, int, int, int]:
    """Primaries decide most, then what no weight can end; equal axes side by side."""
    return (axis.size.trait is not Trait.GENERAL, -axis.endings, axis.size.code, len(axis.cuts))
