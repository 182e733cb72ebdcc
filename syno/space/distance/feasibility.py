"""Feasibility: whether a state may still become an operator, by the shape distance and by lower and upper bounds on FLOPs.

Paper: section 5.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from syno.algebra import Size, product
from syno.ir import dim as dims
from syno.ir.dim import Dim
from syno.ir.primitives import MERGE, REDUCE, SHIFT, SPLIT, UNFOLD
from syno.space.candidates import Candidates
from syno.space.complete import Completion
from syno.space.distance import DISTANCES, OtherDistance
from syno.space.distance.assignment import total
from syno.space.distance.problem import (
    NO_PIECES,
    UNREACHABLE,
    Allowance,
    Axis,
    Conflicts,
    Cuts,
    DistanceGoal,
    Endings,
    Limits,
    PieceCosts,
)
from syno.space.distance.reading import ReadingBound
from syno.space.distance.search import CheapestAssignment, ShapeDistance
from syno.space.distance.sources import UNKNOWN
from syno.space.facts import DimFacts, Origin, Role, adjacent
from syno.space.options import DistanceKind
from syno.space.rules.guarantees import Guarantees, is_blocked, may_be_unordered
from syno.space.rules.order import pools_much
from syno.space.sizes import SizeTable, Usage
from syno.space.spec import OperatorSpec
from syno.space.state import Ends, State
from syno.space.steps import CandidateStep, StepKind

# From a state to its relaxed problem: the possible cuts, windows and endings of axes, and the remaining allowances.
#
# Active rules exclude possibilities; what an inactive rule forbids counts as possible.
#
# Paper: section 5.4.


class Apart(NamedTuple):
    """Whether rules keep two dims apart: an answer for each field of `Conflicts`."""

    ended: bool
    joined: bool
    joined_alone: bool


NOT_APART = Apart(False, False, False)


@dataclass
class Relaxation:
    """Converts states of one spec to axes and limits of the relaxed problem; an axis is computed once per dim."""

    goal: DistanceGoal
    candidates: Candidates
    reading: ReadingBound | None = None
    _axes: dict[int, dict[Dim, Axis]] = field(default_factory=lambda: defaultdict(dict))  # by the number of weights
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)  # of axes, by their sort key
    _apart: dict[tuple[Dim, Dim], Apart] = field(default_factory=dict)
    _iterations: dict[tuple[Dim, ...], int] = field(default_factory=dict)  # by the sums

    def __post_init__(self) -> None:
        self.spec, self.sizes, self.ensured = self.goal.spec, self.goal.sizes, self.goal.ensured
        self.facts, self.rules = self.candidates.facts, self.candidates.rules

    def __call__(self, state: State, left: int) -> tuple[tuple[Axis, ...], Limits]:
        """Return the axes of a state, sorted, and the limits with `left` primitives left."""
        ends, counts, most = state.ends, state.ends.counts, self.spec.occurrences

        def remaining(used: int, limit: int | None) -> int:
            return left if limit is None else min(left, limit - used)

        known = self._axes[counts.weights]
        for dim in state.data:
            if dim not in known:
                self.axis(dim, state)
        dims = sorted(state.data, key=lambda dim: known[dim].order)
        iterations = self._iterations.get(ends.sums)
        if iterations is None:
            loops = product((*self.spec.output_sizes, *(dim.size for dim in ends.sums)))
            iterations = self._iterations[ends.sums] = self.sizes[loops].total
        limits = Limits(
            left=Allowance(
                merges=remaining(counts.merges, most.merges),
                splits=remaining(counts.splits, most.splits),
                shifts=remaining(counts.shifts, most.shifts),
                unfolds=remaining(counts.unfolds, most.unfolds),
                repeats=remaining(counts.repeats, most.expands) if self.spec.repeats.largest > 1 else 0,
                contractions=remaining(counts.weights, most.tensors - 1),
            ),
            room=tuple(limit - used for limit, used in zip(self.sizes.limits, ends.usage, strict=True)),
            needs_weight=not counts.weights or (self.ensured.pooling_is_small and pools_much(state, self.facts, self.spec)),
            weights=counts.weights,
            iterations=iterations,
            outer=ends.outer,
            copies=self.sizes[ends.copies].highest,
            conflicts=self._conflicts(dims),
        )
        return tuple([known[dim] for dim in dims]), limits

    def _conflicts(self, dims: list[Dim]) -> Conflicts:
        """Return the pairs of axes that rules keep apart, for a state's dims."""
        ended, joined, joined_alone = [], [], []
        tied = [(place, dim) for place, dim in enumerate(dims) if self.facts[dim].is_tied]
        for (place, first), (number, second) in combinations(tied, 2):
            apart = self._apart.get((first, second))
            if apart is None:
                apart = self._apart[first, second] = self._find_apart(first, second)
            if apart is not NOT_APART:
                if apart.ended:
                    ended.append((place, number))
                if apart.joined:
                    joined.append((place, number))
                if apart.joined_alone:
                    joined_alone.append((place, number))
        return Conflicts(tuple(ended), tuple(joined), tuple(joined_alone))

    def _find_apart(self, first: Dim, second: Dim) -> Apart:
        a, b, ensured = self.facts[first], self.facts[second], self.ensured
        before, after = adjacent(a, b), adjacent(b, a)
        both_end = all(self._ended_after(dim, facts) == 1 for dim, facts in ((first, a), (second, b)))
        apart = Apart(
            ended=ensured.outer_not_adjacent and both_end and (before or after),
            joined=ensured.shared_stay_apart and not {*a.shared_by}.isdisjoint(b.shared_by),
            joined_alone=ensured.adjacent_stay_apart and before and after,
        )
        return apart if any(apart) else NOT_APART

    def axis(self, dim: Dim, state: State) -> Axis:
        """Return the axis of a dim in a state, with its number."""
        known = self._axes[state.ends.counts.weights]
        axis = known.get(dim)
        if axis is None:
            axis = known[dim] = self._find_axis(dim, state)
            axis.number = self._numbers.setdefault(axis.order, len(self._numbers))
        return axis

    def _find_axis(self, dim: Dim, state: State) -> Axis:
        facts, spec, ensured, weights = self.facts[dim], self.spec, self.ensured, state.ends.counts.weights
        above = self._above(facts)
        pooling = spec.reductions.largest_pooling
        is_shareable = self.sizes.fits(self.sizes.none, facts.size.joined)
        is_sum = facts.origin is REDUCE
        window = int(is_sum and ensured.no_sum_as_window) if above > 0 and facts.size.can_be_window else UNREACHABLE
        above_window = UNREACHABLE  # contractions before an Unfold can go on it
        if above > 0 and not self._is_blocked(UNFOLD, dim, state):
            above_window = 0
        elif above > 1 and is_shareable and not (facts.only_sums and ensured.no_window_over_sums):
            above_window = 1
        cuts = Cuts(
            now=self._cuts(dim, state) if above > 0 else (),
            above_shift=above > 1 and not self._is_blocked(SHIFT, dim, state),
            above_split=above > 2
            and (facts.size.highest <= spec.windows.shift_pattern or not ensured.shifted_blocks_are_small),
            above_window=above_window,
        )
        weight = self._ended_after(dim, facts)
        return Axis(
            size=dim.size,
            is_open=above > 0,
            cuts=cuts,
            endings=Endings(
                weight=weight,
                window=window,
                repeat=spec.repeats.largest > 1 and facts.origin in (Origin.QUOTIENT, Origin.REMAINDER),
                pieces=self._pieces(dim.size, cuts, weight) if above > 0 else NO_PIECES,
            ),
            is_outer=facts.role is Role.OUTER,
            is_shareable=above > 0 and is_shareable and not facts.discards,
            needs_weight=is_sum and ensured.pooling_is_small and facts.size.highest > pooling,
            is_fresh=not (weights and ensured.views_before_weights) or bool(facts.tags >> weights & 1),
            only_sums=facts.only_sums,
            pool=self._pool(facts),
            is_misordered=not may_be_unordered(self.rules, dim),
            is_strided=facts.discards,
            source=UNKNOWN if self.reading is None else self.reading.sources[dim],
        )

    def _above(self, facts: DimFacts) -> int:
        """Return the number of primitives that may stand above the dim."""
        return self.spec.occurrences.chain_length - facts.height if self.ensured.chains_are_short else self.spec.depth

    def _ended_after(self, dim: Dim, facts: DimFacts) -> int:
        """Return the number of contractions by which a weight can have ended the dim: 1, 2 or UNREACHABLE."""
        options, above = self.spec.contractions, self._above(facts)
        if above > 0 and self.sizes.fits(self.sizes.none, facts.size.shared):
            if self.candidates.may_be_outer(facts, dim.size):
                return 1
            low_rank = options.least_low_rank <= facts.size.highest <= options.most_low_rank
            if facts.origin is REDUCE and above > 1 and low_rank:  # one weight is indexed by it, and a later one ends it
                return 2
        return UNREACHABLE

    def _pool(self, facts: DimFacts) -> float:
        """Return the product of the sums below the dim that may stay unweighted (pooling), in the largest layer."""
        small = [dim.size for dim in facts.pooled if self.sizes[dim.size].highest <= self.goal.largest_pooling]
        return self.sizes[product(small)].highest

    def _cuts(self, dim: Dim, state: State) -> tuple[Size, ...]:
        """Return the sizes of the pieces into which Merges may cut the dim, under the active rules."""
        if self._is_blocked(MERGE, dim, state):
            return ()
        pieces: set[Size] = set()
        for block, _ in self.sizes.divisors(dim.size):
            step = CandidateStep(self.spec, self.sizes, self.facts, state, MERGE, (dim,), block)
            if not any(row.rejects(step) for row in self.rules.of(MERGE)):
                pieces |= {block, dim.size / block}
        return tuple(sorted(pieces, key=lambda size: size.code))

    def _pieces(self, size: Size, cuts: Cuts, weight: int) -> PieceCosts:
        """Return the costs of ending an axis of this size in pieces; NO_PIECES if ending it as a whole costs no more."""
        anything = not self.ensured.merges_below_joins
        slides = cuts.above_window < UNREACHABLE
        if not (cuts.now or anything or cuts.above_shift or slides):
            return NO_PIECES
        pieces = self.goal.pieces(size, cuts.now if cuts.now and not anything else None)
        if pieces.more_contractions == UNREACHABLE or (weight == 1 and pieces.one_contraction == UNREACHABLE):
            return NO_PIECES
        if not cuts.now and not anything and not slides:  # above a Shift
            return PieceCosts(*(min(number + 1, UNREACHABLE) for number in pieces))
        return pieces

    def _is_blocked(self, kind: StepKind, dim: Dim, state: State) -> bool:
        """Return whether rules reject every step of this kind on the dim."""
        return is_blocked(self.rules, CandidateStep(self.spec, self.sizes, self.facts, state, kind, (dim,)))


# A lower bound on the FLOPs that any completion of a state needs.
#
# Data flows from the input to the output. Windows and weights' own axes widen it, sums narrow it, and each round of sums
# costs as many multiply-adds as the data has elements at that time. A sum comes after the increases above it, and all sums
# under one weight come after all increases above any axis of that weight. The bound is the cheapest order of the sums that the
# state has; what is yet to come is free.
#
# Source: the published system's bound on FLOPs.

T = TypeVar("T")


@dataclass
class FlopsBound:
    """Lower bounds on the FLOPs of states of one spec, summed over all layers."""

    spec: OperatorSpec
    sizes: SizeTable
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)  # by the arguments of `cheapest`

    def __post_init__(self) -> None:
        self._input = product(self.spec.input_sizes)

    def lower_bound(self, state: State) -> int:
        """Return a lower bound on the multiply-adds of the replaced layers, for one batch."""
        ends = state.ends
        if not ends.increases or not ends.sums:
            return 0
        key = (
            tuple([dim.size for dim in ends.sums]),
            tuple([increase.size for increase in ends.increases]),
            tuple(waits(ends)),
            self._input / ends.strides,  # as if strides dropped their elements at the start, for a lower bound
        )
        flops = self._known.get(key)
        if flops is None:
            flops = self._known[key] = self.cheapest(*key)
        return flops

    def cheapest(self, sums: Sequence[Size], increases: Sequence[Size], waits: Sequence[int], start: Size) -> int:
        """Return the multiply-adds of the cheapest order in which to take the sums.

        Args:
            sums: sizes of the sums.
            increases: factors by which weights, windows and repeats widen the data.
            waits: for each sum, the increases that must come before it, as a bit mask.
            start: number of elements of the input, as a size.
        """
        # A dynamic program over sets of sums, as bits: the cost of the rest depends on which sums are done, not on their order.
        everything = (1 << len(sums)) - 1

        def elements(done: int, chosen: int) -> int:
            """Return the elements of the data after the sums `done` (a bit mask), widened as far as the sums `chosen` need
            it.
            """
            widened = 0
            for wait in _items_of_bits(waits, done | chosen):
                widened |= wait
            return self.sizes[product((start, *_items_of_bits(increases, widened))) / product(_items_of_bits(sums, done))].total

        @cache
        def rest(done: int) -> int:
            """Return the least multiply-adds of the sums that are not in `done` (a bit mask)."""
            best, pending = -1, everything & ~done
            chosen = pending
            while chosen:
                now = elements(done, chosen)
                if best < 0 or now < best:
                    later = now + rest(done | chosen)
                    best = later if best < 0 else min(best, later)
                chosen = (chosen - 1) & pending  # the next subset
            return max(best, 0)

        return rest(0)


def _items_of_bits(items: Sequence[T], bits: int) -> list[T]:
    return [item for place, item in enumerate(items) if bits >> place & 1]


def waits(ends: Ends) -> list[int]:
    """Return, for each sum, the bit mask of the increases that must come before it."""
    masks = dict.fromkeys(ends.sums, 0)
    for bit, increase in enumerate(ends.increases):
        for dim in increase.sums.union(*_items_of_bits(ends.weight_sums, increase.tags >> 1)):
            masks[dim] |= 1 << bit
    return list(masks.values())


# The sets of reductions that can begin an operator.
#
# Paper: section 5.4.

Sums = tuple[Size, ...]  # in the order of their enumeration


@dataclass
class SumSets:
    """The sets of reductions that can begin an operator, explored lazily and cached.

    Reductions come first, so at that point the distance depends on their sizes alone. Therefore sets are examined without
    building states, and only on request: of ten thousand sets, a few hundred lead to operators.

    Attributes:
        sizes: facts about sizes.
        most: the largest number of reductions.
        within: function that returns whether the product of all reductions is small enough.
        distance: function that returns the distance for a set of reductions, their product and their occurrences; UNREACHABLE
            if there is none.
    """

    sizes: SizeTable
    most: int
    within: Callable[[Size], bool]
    distance: Callable[[Sums, Size, Usage], int]
    _least: dict[Sums, int] = field(default_factory=dict)
    _leads: dict[Sums, bool] = field(default_factory=dict)
    _next: dict[Sums, list[Size]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._place = {size: place for place, size in enumerate(self.sizes.sizes(self.sizes.none))}
        self._usage = {size: self.sizes.reduced(size) for size in self._place}

    def leads_on(self, sums: Sums) -> bool:
        """Return whether an operator may begin with these reductions, in any order and possibly followed by further
        reductions.
        """
        sums = self._in_order(sums)
        leads = self._leads.get(sums)
        if leads is None:
            leads = self._leads[sums] = self._distance(sums) < UNREACHABLE or any(map(self.leads_on, self._longer(sums)))
        return leads

    def distance_of(self, sums: Sums) -> int:
        """Return the least number of primitives from these reductions, in any order, to an operator; later reductions count."""
        sums = self._in_order(sums)
        distance = self._least.get(sums)
        if distance is None:
            more = (1 + self.distance_of(longer) for longer in self._longer(sums))
            distance = self._least[sums] = min(self._distance(sums), min(more, default=UNREACHABLE), UNREACHABLE)
        return distance

    def _in_order(self, sums: Sums) -> Sums:
        return tuple(sorted(sums, key=self._place.__getitem__))

    def _distance(self, sums: Sums) -> int:
        return self.distance(sums, product(sums), self._usage_of(sums))

    def _usage_of(self, sums: Sums) -> Usage:
        return total(self.sizes.none, *(self._usage[size] for size in sums))

    def _longer(self, sums: Sums) -> Iterator[Sums]:
        """Yield the sets with one more reduction, which must not precede the last one in the order of sizes."""
        return ((*sums, size) for size in self._after(sums)) if len(sums) < self.most else iter(())

    def _after(self, sums: Sums) -> list[Size]:
        """Return the sizes of reductions that may follow: not before the last, and not excluded for a shorter prefix
        already.
        """
        following = self._next.get(sums)
        if following is None:
            last, before = (self._place[sums[-1]], self._after(sums[:-1])) if sums else (0, list(self._place))
            used, reached = self._usage_of(sums), product(sums)
            following = self._next[sums] = [
                size
                for size in before
                if self._place[size] >= last and self.sizes.fits(used, self._usage[size]) and self.within(reached * size)
            ]
        return following


# A test that refuses most Splits before their state is built: of forty that the rules allow, about one is feasible.
#
# If no Merge is left, the axis that a Split joins can only become part of an axis of the input (case INPUT), or a window if
# it is small enough: no weight and no Expand ends it, and nothing can be cut off. So the axes of its group multiply to
# exactly one axis of the input. If the joined axis has variables that this axis does not have, another live dim must have
# them in its denominator. The narrow bound on what is read cuts nothing off a group either, but while Merges are left, they
# may cut the joined axis into pieces.
#
# Paper: section 5.4.


@dataclass
class Joins:
    """Early test of Splits: whether the joined size can occur in an operator.

    Attributes:
        goal: goal of the distance.
        narrow: the narrow reading bound, in the space of guided walks; else None.
    """

    goal: DistanceGoal
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
        if has_merges and (self.narrow is None or self.goal.pieces(size).more_contractions < UNREACHABLE):
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
        """Return, for each axis of the input, the variables whose powers in the size exceed those in the axis, as a bit mask.

        (0,) if the size may be a window.
        """
        if self.goal.sizes[size].can_be_window:
            return (0,)
        alone = set[Size]() if self.narrow is None else self.narrow.named  # axes of the input that must be one live dim
        return tuple(self._denominator(wanted / size) for wanted in self.goal.wanted if wanted is size or wanted not in alone)

    def _denominator(self, size: Size) -> int:
        """Return the variables in the denominator of a size, as a bit mask."""
        mask = self._below.get(size)
        if mask is None:
            mask = self._below[size] = sum(self._bits[variable] for variable, exponent in size.exponents if exponent < 0)
        return mask


class Feasibility:
    """Feasibility tests of the states of one space. With the exact distance, a state that can be completed is never rejected.

    Attributes:
        kind: the kind of distance in use, or "none".
        least_flops, most_flops: bounds on the FLOPs of the replaced layers.
    """

    def __init__(self, candidates: Candidates, completion: Completion, *, use_distance: bool, is_narrow: bool = False) -> None:
        self.spec, self.sizes, rules = candidates.spec, candidates.sizes, candidates.rules
        self.candidates, self.completion = candidates, completion
        self.kind: DistanceKind = self.spec.distance if use_distance else "none"
        self.other: OtherDistance | None = None
        if self.kind not in ("exact", "none"):
            self.other = DISTANCES.find(self.kind)(candidates, completion.wanted)
        self.flops = FlopsBound(self.spec, self.sizes)
        self.least_flops = self.spec.budget.least_flops - self.spec.budget.rest_flops
        self.most_flops = self.spec.budget.most_flops - self.spec.budget.rest_flops
        self.ensured = Guarantees.of(rules)
        wanted, unordered = completion.wanted, completion.unordered
        goal = DistanceGoal(self.spec, self.sizes, self.ensured, wanted, unordered, self.least_flops, self.most_flops)
        asks = self.spec.reads is not None and self.ensured.sums_come_first
        self.reading = ReadingBound(completion.requirements, self.sizes, is_narrow) if asks else None
        self.relax = Relaxation(goal, candidates, self.reading)
        self.distance = ShapeDistance(goal, self.reading)
        # Where sums may come at any time (C1 is off), one can supply any variable, and no Split can be refused by its sizes.
        quick = self.kind == "exact" and self.ensured.sums_come_first
        narrow = self.reading if is_narrow else None
        self.joins = Joins(goal, narrow) if quick else None  # other distances may allow Splits that this test refuses
        self._wanted = product(wanted)
        self._cheap_states: dict[State, bool] = {}

    def distance_of(self, state: State, most: int | None = None) -> int:
        """Return a lower bound on the primitives that the state still needs; UNREACHABLE if it exceeds `most` (default: the
        depth left).
        """
        left = self.spec.depth - state.steps
        most = left if most is None else most
        if not self.ensured.sums_come_first and state.ends.counts.reductions < self.spec.occurrences.reductions:
            return 0  # a sum can follow at any time and supply any missing size
        if self._has_only_sums(state) and most <= left:
            distance = self.sum_sets.distance_of(tuple(dim.size for dim in state.ends.sums))
            return distance if distance <= most else UNREACHABLE
        if self.other is not None:
            return self.other(state, most)
        return self.distance(*self.relax(state, most), most)

    def cheapest(self, state: State) -> CheapestAssignment | None:
        """Return the cheapest assignment of the state's axes; None if no operator is within the remaining depth."""
        left = self.spec.depth - state.steps
        return self.distance.cheapest(*self.relax(state, left), left)

    def iterations(self, state: State) -> int:
        """Return the FLOPs of the state as a single stage: the product of all its loops, summed over the replaced layers."""
        return self.sizes[product((*self.spec.output_sizes, *(dim.size for dim in state.ends.sums)))].total

    def without_budget(self, state: State) -> int:
        """Return the shape distance without bounds on FLOPs; UNREACHABLE if it exceeds the remaining depth."""
        left = self.spec.depth - state.steps
        free = ShapeDistance(replace(self.distance.goal, least_flops=0, most_flops=float("inf")))
        return free(*self.relax(state, left), left)

    def __call__(self, state: State) -> bool:
        """Return whether the state may still become an operator."""
        if state.steps > self.spec.depth:
            return False
        if self.kind != "none" and not self._within_reach(state):  # first, since it rejects by far the most states
            return False
        flops = self.flops.lower_bound(state)
        if flops > self.most_flops:
            return False
        if self.kind != "exact":
            return True
        if product(dim.size for dim in state.data) is not self._wanted or not self.ensured.sums_come_first:
            return True
        return not self._is_cheap(state, flops)

    def after(self, step: CandidateStep) -> State | None:
        """Return the state after a step if it may still become an operator, else None."""
        # Splits are by far the most frequent steps, and their states the most expensive to build in vain: see `Joins`.
        if step.kind is SPLIT and self.joins is not None and not self.joins.allow(step):
            return None
        state = step.taken()
        return state if self(state) else None

    def _is_cheap(self, state: State, bound: float) -> bool:
        """Return whether every operator that the state can become has too few FLOPs. Cached."""
        is_cheap = self._cheap_states.get(state)
        if is_cheap is None:
            is_cheap = self._cheap_states[state] = self.completion.cheap_forever(state, bound)
        return is_cheap

    def _has_only_sums(self, state: State) -> bool:
        counts = state.ends.counts
        return counts.steps == counts.reductions

    def _within_reach(self, state: State) -> bool:
        if self._has_only_sums(state) and self.ensured.sums_come_first:  # cheaper than the least distance
            return self.sum_sets.leads_on(tuple(dim.size for dim in state.ends.sums))
        return self.distance_of(state) < UNREACHABLE

    @cached_property
    def sum_sets(self) -> SumSets:
        """The sets of reductions that can begin an operator."""
        root = self.candidates.root()
        base, limits = self.relax(root, self.spec.depth)
        axes_of = {size: self.relax.axis(dims.reduce(size), root) for size in self.sizes.sizes(self.sizes.none)}
        by_order = attrgetter("order")
        outputs, start = product(self.spec.output_sizes), product(axis.size for axis in base) / self._wanted

        def distance(sums: Sums, reached: Size, usage: Usage) -> int:
            if not (start * reached).is_legal:
                return UNREACHABLE
            depth = self.spec.depth - len(sums)
            if self.other is not None:
                return self.other.of_sums(root, sums, depth)
            axes = tuple(sorted((*base, *(axes_of[size] for size in sums)), key=by_order))
            now = limits._replace(
                left=Allowance(*(min(number, depth) for number in limits.left)),
                iterations=self.sizes[outputs * reached].total,
                room=tuple(limit - used for limit, used in zip(self.sizes.limits, usage, strict=True)),
            )
            return self.distance(axes, now, depth)

        return SumSets(self.sizes, self.spec.occurrences.reductions, self.candidates.within_multiple, distance)
