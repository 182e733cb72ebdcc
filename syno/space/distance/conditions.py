"""Conditions that an assignment must meet: possible Splits and Unfolds, possible weights, and FLOPs.

Each condition is necessary: an assignment that fails it stands for no operator, unless a Merge and a Split exchange parts of
axes first.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from syno.algebra import ONE, Size, product
from syno.space.distance.assignment import Assignment, fits, total
from syno.space.distance.problem import Axis
from syno.space.sizes import Usage


def windows_fit(assignment: Assignment) -> bool:
    """Return whether each window has an axis to slide over. If no weight follows, Splits must first join sums to windows."""
    sizes, ensured, weights = assignment.sizes, assignment.ensured, assignment.contractions
    positions = {axis.size for group in assignment.groups for axis in group.members if axis.cuts.above_window <= weights}
    for group in assignment.groups:
        members, rest = group.members, group.surplus
        if weights and len(members) > 1 and any(axis.cuts.above_window <= 1 for axis in members):
            positions.add(group.goal)  # joined, weighted, then slid over
        if not ensured.unfolds_below_splits and len(members) > 1:
            positions.add(group.goal)
        if rest is not ONE:
            positions |= {rest, *(axis.size / rest for axis in members if sizes[axis.size / rest].is_legal)}
            if len(members) > 1 and (assignment.limits.left.shifts or weights):
                return True  # a window may slide over pieces of joined axes
    for axis in assignment.windows:
        if weights or not axis.endings.window:
            windows = [axis.size]
        elif assignment.parted:
            continue
        else:
            others = (o for o in assignment.windows if o is not axis and not (ensured.adjacent_stay_apart and o.endings.window))
            windows = [axis.size * size for size in (*assignment.surpluses, *(o.size for o in others))]
        if not any(_slides(assignment, window, positions) for window in windows):
            return False
    return True


def _slides(assignment: Assignment, window: Size, positions: set[Size]) -> bool:
    sizes, options = assignment.sizes, assignment.spec.windows
    if sizes[window].highest > options.largest:
        return False
    return any(sizes[size / window].lowest >= options.least_ratio for size in positions)


def splits_allowed(assignment: Assignment) -> bool:
    """Return whether rules allow the Splits that form the groups, if no weight follows."""
    conflicts = assignment.limits.conflicts
    for pairs, alone in ((conflicts.joined, False), (conflicts.joined_alone, True)):
        for a, b in _axes(assignment, pairs):
            may_slide = assignment.windows and not (a.cuts.above_window and b.cuts.above_window)
            if not may_slide and _joins(assignment, a, b, alone):
                return False
    fresh_window = any(axis.is_fresh for axis in assignment.windows)
    return all(
        len(group.members) < 2
        or any(axis.is_fresh for axis in group.members)
        or (fresh_window and any(not axis.cuts.above_window for axis in group.members))
        for group in assignment.whole_groups
    )


def joins_two_large_sums(assignment: Assignment) -> bool:
    """Return whether a group joins two sums that both need a weight. If they share the weight, rules forbid that, too."""
    pairs = _axes(assignment, assignment.limits.conflicts.joined_alone)
    return any(a.needs_weight and b.needs_weight and _joins(assignment, a, b, True) for a, b in pairs)


def _axes(assignment: Assignment, pairs: tuple[tuple[int, int], ...]) -> Iterator[tuple[Axis, Axis]]:
    return ((assignment.axes[i], assignment.axes[j]) for i, j in pairs)


def _joins(assignment: Assignment, a: Axis, b: Axis, alone: bool) -> bool:
    """Return whether a whole group contains all axes that equal `a` or `b`; with `alone`, without a third axis."""
    numbers = (a.number, b.number)
    alike = sum(axis.number in numbers for axis in assignment.axes)
    return any(
        sum(axis.number in numbers for axis in group.members) == alike and (not alone or len(group.members) == 2)
        for group in assignment.whole_groups
    )


def may_end(assignment: Assignment, size: Size) -> bool:
    """Return whether a weight may end a piece of this size."""
    sizes, most = assignment.sizes, assignment.spec.contractions.largest_outer
    return assignment.has_room(sizes[size].shared) and sizes[assignment.limits.outer * size].highest <= most


def ended_usage(assignment: Assignment) -> Usage | None:
    """Return the occurrences of variables with which weights end the axes of the case WEIGHT; None if they exceed the limit."""
    sizes = assignment.sizes
    shared = (sizes[axis.size].shared for axis in assignment.ended for _ in range(axis.endings.weight))
    usage = total(sizes.none, *shared)
    return usage if assignment.has_room(usage) else None


def weighted_usage(assignment: Assignment) -> Usage | None:
    """Return the occurrences of variables in all axes that weights must end or index; None if they exceed the limit.

    Axes that are cut, or that a window slides over, may be weighted in pieces or together with the window, so they are not
    counted.
    """
    ended, windows = ended_usage(assignment), assignment.windows
    assert ended is not None
    members = chain.from_iterable(group.members for group in assignment.whole_groups)
    axes = (*members, *(windows if len(windows) == 1 else ()), *assignment.repeated)
    usage = total(ended, *(assignment.sizes[axis.size].joined for axis in axes if axis.needs_weight))
    return usage if assignment.has_room(usage) else None


def weights_large_enough(assignment: Assignment) -> bool:
    """Return whether each remaining weight may have the least number of elements, in every layer.

    All weights together have at most the product of all axes, each as often as occurrences allow, but at most once per weight.
    """
    sizes, number = assignment.sizes, assignment.contractions
    if assignment.parted or not assignment.ensured.weights_are_large:
        return True
    used = weighted_usage(assignment) or sizes.none
    room = tuple(limit - use for limit, use in zip(assignment.limits.room, used, strict=True))
    ended = {id(axis) for axis in assignment.ended}
    elements = ONE
    for axis in assignment.axes:
        if not axis.is_shareable:
            continue
        times = axis.endings.weight if id(axis) in ended else int(axis.needs_weight)
        joined = sizes[axis.size].joined
        more = min((left // use for left, use in zip(room, joined, strict=True) if use), default=number)
        elements = elements * axis.size ** min(times + more, number)
    for group in assignment.groups:
        pieces: set[Size] = set()
        if group.surplus is not ONE:
            pieces = {group.surplus, *(axis.size / group.surplus for axis in group.members)}
        if len(group.block) > 1:
            pieces.update(group.block, *(axis.cuts.now for axis in group.members))
        whole = all(axis.is_shareable for axis in group.members)
        # An upper bound on the elements: pieces count in every weight, even where two of them could not be cut at once.
        for piece in pieces:  # small pieces may index every weight
            usage = sizes[piece].joined
            if sizes[piece].is_legal and (not any(usage) or (not whole and fits(room, usage))):
                elements = elements * piece**number
    return sizes[elements].lowest >= float(assignment.spec.contractions.least_elements) ** number


def shared_axes_fit(assignment: Assignment) -> bool:
    """Return whether each contraction has an axis that indexes both the weight and the data."""
    sizes = assignment.sizes
    members = chain.from_iterable(group.members for group in assignment.groups)
    kept = [axis for axis in (*members, *assignment.windows, *assignment.repeated) if axis.is_shareable]
    need = assignment.contractions
    need -= any(axis.needs_weight for axis in kept)
    need -= any(axis.endings.weight == 2 for axis in assignment.ended)
    if need <= 0 or not assignment.ensured.weights_are_matmuls:
        return True
    if assignment.parted or len(assignment.whole_groups) < len(assignment.groups):
        return True  # pieces of cut axes may index weight and data
    usages = {sizes[axis.size].joined for axis in kept}
    if len(assignment.ended) > 1 and assignment.contractions > 1:  # an axis of one weight that a later weight ends
        usages |= {sizes[axis.size].shared for axis in assignment.ended}
    used = weighted_usage(assignment) or sizes.none
    return any(assignment.has_room(total(used, *[usage] * need)) for usage in usages)


def ends_adjacent(assignment: Assignment) -> bool:
    """Return whether one weight ends two axes that rules keep apart, for every choice among equal axes."""
    ended = {id(axis) for axis in assignment.ended}
    pairs = [(a.number, b.number) for a, b in _axes(assignment, assignment.limits.conflicts.ended)]
    return any(all(id(axis) in ended for axis in assignment.axes if axis.number in pair) for pair in pairs)


def within_flops(assignment: Assignment) -> bool:
    """Return whether an operator with this number of weights may be within the budget of FLOPs.

    Upper bound: one stage over all loops for each weight, and a last view (strides make axes above them longer, so then there
    is no bound). Lower bound, with one weight: one stage over all loops, except that sums over unweighted elements come before
    it, and repeats and windows that are pieces of the output come after it.
    """
    goal, spec, limits = assignment.goal, assignment.spec, assignment.limits
    weights = limits.weights + assignment.contractions
    if limits.iterations * weights + goal.elements < goal.least_flops and spec.occurrences.strides == 0:
        return False
    if weights > 1:
        return True
    return limits.iterations / (min(_pool(assignment), goal.largest_pooling) * _copies(assignment)) <= goal.most_flops


def _pool(assignment: Assignment) -> float:
    """Return the product of the sums that may be taken over elements that no weight multiplies (pooling)."""
    pool, largest = 1.0, assignment.spec.windows.largest
    for group in assignment.groups:
        for axis in group.members:
            pool *= axis.pool
    for axis in assignment.windows:  # a sum may stay unweighted if it is joined with another window
        others = (other for other in assignment.windows if other is not axis)
        if not axis.endings.window or any(assignment.sizes[o.size * axis.size].highest <= largest for o in others):
            pool *= axis.pool
    return pool


def _copies(assignment: Assignment) -> float:
    """Return the factor by which repeats, and windows that are pieces of the output, enlarge the data after the sums."""
    sizes, spec = assignment.sizes, assignment.spec
    after = (*assignment.repeated, *(axis for axis in assignment.windows if not axis.only_sums))
    copies = assignment.limits.copies * sizes[product(axis.size for axis in after)].highest
    for surplus in assignment.surpluses:
        if sizes[surplus].can_be_window:
            copies *= sizes[surplus].highest
        elif assignment.limits.left.repeats:
            copies *= min(sizes[surplus].highest, spec.repeats.largest)
    return copies * float(max(spec.windows.largest, spec.repeats.largest)) ** len(assignment.parted)
