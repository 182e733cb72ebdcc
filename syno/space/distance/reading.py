"""A bound on the number of input positions that an operator can read.

It excludes assignments that cannot meet the spec's `reads`.

Positions
    Only sums let an element of the output depend on several positions: every other primitive maps coordinates to coordinates.
    So for one output element, a coordinate of an input axis takes at most as many values as the live dims that form the axis
    take together (`syno.space.distance.sources`): the members of its group, and the windows that slide over it. In an
    assignment, each window slides over one group. A surplus, or an axis that ends in pieces, may contain a window over any
    group, so it counts in every group.

Applied twice
    If the operator is applied to its own output, the output axes on which an input axis depends are input axes of the first
    application. So the number of values is at most that of one application, times the numbers of the axes that it depends on.

Borders of blocks
    If neither a window nor a Shift follows, the coordinate of an input axis is a mixed-radix number whose digits are the
    members (or pieces of them), joined by Splits. If the size is a power of two, every digit of more than one value differs
    between the middle position, 100...0, and the position before it, 011...1. One of these two output elements must read both
    positions, so every member must take two values. An input axis that is formed together with others has at least one digit
    with its primary variable, from a member with this variable.

Guided walks
    The narrow bound is a heuristic, which also excludes some valid operators: it demands the usual ways to meet a requirement.
    No group has a surplus, each axis named in the requirement is a single live dim that depends on an axis of the output, and
    each window can slide over such an axis. Most random walks keep to the states that it allows, where operators are found
    much sooner; the other walks can reach every operator.

All numbers are upper bounds at one of the valuations at which the requirement is checked: it must hold at each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from itertools import product as combinations
from math import prod
from typing import NamedTuple

from syno.algebra import ONE, Size, Valuation, VariableKind, product
from syno.space.distance.assignment import Assignment, InputGroup
from syno.space.distance.problem import Axis
from syno.space.distance.sources import Source, Sources, joined
from syno.space.reads import least_positions
from syno.space.requirements import Requirements
from syno.space.sizes import SizeTable

MOST_PLACED = 3  # windows whose groups are enumerated; further windows count in every group
Member = tuple[Size, Source]


class Question(NamedTuple):
    """The part of an assignment that determines the number of positions read. It is the key of the cache."""

    groups: tuple[tuple[tuple[Size, ...], tuple[Member, ...]], ...]  # sizes of input axes, and the members that form them
    windows: tuple[Member, ...]  # each slides over one group
    anywhere: tuple[Source, ...]  # surpluses and pieces, which may contain windows
    only_digits: bool  # whether neither a Shift nor a Merge above a Split follows


@dataclass
class ReadingBound:
    """The reading bound for one requirement.

    Attributes:
        requirements, table: requirements and table of sizes of the space.
        is_narrow: whether this is the narrow bound, for guided walks.
        named: the sizes of the input axes that the requirement names.
    """

    requirements: Requirements
    table: SizeTable
    is_narrow: bool = False
    _answers: dict[Question, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bounds = self.requirements
        assert bounds.reads is not None
        self.spec, self.reads = bounds.spec, bounds.reads
        self._row = self._chosen_row()
        self.sources = Sources(self._row)
        bound = {into for _, into in self.spec.bound_axes}
        self._free = [axis for axis in range(len(self.spec.input_sizes)) if axis not in bound]
        self._sizes = self.spec.input_sizes
        everything = self.reads.channels == "all"
        self._least = {
            axis: self._row.integer(self._sizes[axis]) if everything and axis in self.spec.unordered_input else 1
            for axis in self._free
        }
        asked = [
            (least_positions(least, self._row.integer(self.spec.table.size(name))), bounds.asked[name])
            for name, least in self.reads.positions.items()
        ]
        self._asked = [(least, axes, all if self.reads.along == "every" else any) for least, axes in asked]
        self.named = {self._sizes[axis] for _, axes in asked for axis in axes}
        wide = {axis for least, axes in asked for axis in axes if least > 1 and self.reads.centred}
        self._centred = wide & bounds.own.keys()

    def _chosen_row(self) -> Valuation:
        """Return the valuation with the longest axes, of powers of two if possible, which "Borders of blocks" needs."""
        asked = [self.spec.table.size(name) for name in self.reads.positions]

        def key(row: Valuation) -> tuple[bool, bool, int]:
            lengths = [row.integer(size) for size in asked]  # an axis of length 1 has no requirement
            return all(length > 1 for length in lengths), all(map(_is_power_of_two, lengths)), row.numel(asked)

        return max(self.requirements.rows, key=key)

    def allows(self, assignment: Assignment) -> bool:
        """Return whether an operator with this assignment may meet the requirement."""
        if self.is_narrow and not self._is_usual(assignment):
            return False
        question = self._question(assignment)
        is_allowed = self._answers.get(question)
        if is_allowed is None:
            is_allowed = self._answers[question] = any(
                self._is_met(question, order, places) for order in self._orders(question) for places in self._places(question)
            )
        return is_allowed

    def may_join(self, group: InputGroup, axis: Axis) -> bool:
        """Return False only if the narrow bound excludes every assignment that adds the axis to this group."""
        return group.goal not in self.named or (not group.members and axis.size is group.goal and axis.source.outputs != 0)

    def _question(self, assignment: Assignment) -> Question:
        left, anywhere = assignment.limits.left, list[Source]()
        windows = tuple((axis.size, axis.source) for axis in assignment.windows)
        if left.unfolds and not self.is_narrow:
            for axis in assignment.parted:
                if self._may_hold_window(axis.size):
                    anywhere.append(axis.source)
            for group in assignment.groups:
                if group.surplus is not ONE and self._may_hold_window(group.surplus):
                    anywhere += [axis.source for axis in group.members]
        if len(windows) > MOST_PLACED:
            windows, anywhere = (), [*anywhere, *(axis.source for axis in assignment.windows)]
        groups = tuple((group.block, tuple((a.size, a.source) for a in group.members)) for group in assignment.groups)
        only_digits = not left.shifts and assignment.ensured.merges_below_joins
        return Question(groups, windows, tuple(anywhere), only_digits)

    def _is_usual(self, assignment: Assignment) -> bool:
        """Return whether the assignment meets the requirement in a usual way, which the narrow bound demands."""
        for group in assignment.groups:
            if not group.is_whole:
                return False
            if group.block[0] in self.named and (len(group.members) > 1 or not group.members[0].source.outputs):
                return False
        least = self.spec.windows.least_ratio
        return all(any(self.table[size / window.size].lowest >= least for size in self.named) for window in assignment.windows)

    def _may_hold_window(self, size: Size) -> bool:
        """Return whether a piece of this size may be an odd window of several positions; pieces of an even size may be odd."""
        value = self._row.fraction(size)
        if not self.spec.windows.odd or value.denominator != 1:
            return True
        return not _is_power_of_two(value.numerator)

    def _orders(self, question: Question) -> Iterator[dict[int, int]]:
        """Yield every assignment of groups to free axes of the input, as {axis: group}."""
        slots = [(size, number) for number, (block, _) in enumerate(question.groups) for size in block]
        seen = set()
        for order in permutations(slots):
            if all(self._sizes[axis] is size for axis, (size, _) in zip(self._free, order, strict=True)):
                numbers = tuple(number for _, number in order)
                if numbers not in seen:
                    seen.add(numbers)
                    yield dict(zip(self._free, numbers, strict=True))

    def _is_met(self, question: Question, order: dict[int, int], places: tuple[int, ...]) -> bool:
        """Return whether enough positions may be read.

        Groups form the input axes as in `order`, and windows slide over groups as in `places`.
        """
        over: list[list[Source]] = [[] for _ in question.groups]
        for (_, source), place in zip(question.windows, places, strict=True):
            over[place].append(source)
        wholes = [
            joined([*(source for _, source in members), *windows, *question.anywhere])
            for (_, members), windows in zip(question.groups, over, strict=True)
        ]
        once = {axis: wholes[group].positions for axis, group in order.items()} if self.reads.applied > 1 else {}

        def reached(source: Source) -> int:
            return source.positions * prod(number for axis, number in once.items() if source.outputs >> axis & 1)

        if any(reached(wholes[group]) < self._least[axis] for axis, group in order.items()):
            return False

        def is_fine(axis: int, least: int) -> bool:
            group = order[axis]
            if reached(wholes[group]) < least:
                return False
            if axis not in self._centred or over[group] or question.anywhere or not question.only_digits:
                return True
            block, members = question.groups[group]
            digits = self._digits(self._sizes[axis], len(block) == 1, members)
            needed = all if len(block) == 1 else any
            return not digits or needed(reached(source) > 1 for source in digits)

        return all(how(is_fine(axis, least) for axis in axes) for least, axes, how in self._asked)

    def _digits(self, size: Size, is_whole: bool, members: tuple[Member, ...]) -> list[Source]:
        """Return the members that are digits of an axis of this size (see "Borders of blocks" above).

        If `is_whole`, all of them must take two values; else (the axis is formed together with others), one of them. Empty if
        the digits cannot be determined.
        """
        if not _is_power_of_two(self._row.integer(size)):
            return []
        if is_whole:
            return [source for size_of, source in members if self._row.fraction(size_of) > 1]
        primary = next((v for v in size.variables if v.kind is VariableKind.PRIMARY), None)
        with_it = [(size_of, source) for size_of, source in members if primary in size_of.variables]
        alone = all(sum(v.kind is VariableKind.PRIMARY for v in size_of.variables) == 1 for size_of, _ in with_it)
        shortest = min(row.integer(size) for row in self.requirements.rows)
        if not alone or self._row.integer(size) <= shortest:  # a digit with the variable may be 1 here
            return []
        return [source for _, source in with_it]

    def _places(self, question: Question) -> Iterator[tuple[int, ...]]:
        """Yield the assignments of windows to the groups over which they slide.

        A group must be at least `least_ratio` times as long as its windows. The product of a group's members, an upper bound on
        its axes, is compared with the window.
        """
        least, sizes = self.spec.windows.least_ratio, self.table
        wholes = [product(size for size, _ in members) for _, members in question.groups]
        options = [
            [group for group, whole in enumerate(wholes) if sizes[whole / size].lowest >= least] for size, _ in question.windows
        ]
        return combinations(*options)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
