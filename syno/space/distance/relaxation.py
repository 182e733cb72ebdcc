"""From a state to its relaxed problem: which axes may be cut, slid over, ended, and what may still be used.

The rules that are on decide; with a rule off, what it forbids counts as possible.

Paper: section 5.4.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from syno.algebra import Size, product
from syno.ir.dim import Dim
from syno.space.candidates import Candidates
from syno.space.distance.problem import (
    NO_PIECES,
    UNREACHABLE,
    Allowance,
    Axis,
    Conflicts,
    Cuts,
    Endings,
    Goal,
    Limits,
    PieceCosts,
)
from syno.space.distance.reading import ReadingBound
from syno.space.distance.sources import UNKNOWN
from syno.space.facts import DimFacts, Origin, Role, adjacent
from syno.space.rules.guarantees import is_blocked, may_be_unordered
from syno.space.rules.order import pools_much
from syno.space.state import State
from syno.space.steps import MERGE, SHIFT, UNFOLD, CandidateStep


class Apart(NamedTuple):
    """The ways of `Conflicts` in which rules keep two dims from each other."""

    ended: bool
    joined: bool
    joined_alone: bool


NOT_APART = Apart(False, False, False)


@dataclass
class Relaxation:
    """Axes and limits of states that have one goal; each axis is found once."""

    goal: Goal
    candidates: Candidates
    reading: ReadingBound | None = None
    _axes: dict[int, dict[Dim, Axis]] = field(default_factory=lambda: defaultdict(dict))  # by the number of weights
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)  # of axes, by their order
    _apart: dict[tuple[Dim, Dim], Apart] = field(default_factory=dict)
    _iterations: dict[tuple[Dim, ...], int] = field(default_factory=dict)  # by the sums

    def __post_init__(self) -> None:
        self.spec, self.sizes, self.ensured = self.goal.spec, self.goal.sizes, self.goal.ensured
        self.facts, self.rules = self.candidates.facts, self.candidates.rules

    def __call__(self, state: State, left: int) -> tuple[tuple[Axis, ...], Limits]:
        """Return the axes of a state with `left` primitives left, sorted, and their limits."""
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
        """Return the pairs of axes that rules keep from each other."""
        ended, joined, joined_alone = [], [], []
        tied = [(place, dim) for place, dim in enumerate(dims) if self.facts[dim].is_tied]
        for (place, one), (other, another) in combinations(tied, 2):
            apart = self._apart.get((one, another))
            if apart is None:
                apart = self._apart[one, another] = self._find_apart(one, another)
            if apart is not NOT_APART:
                if apart.ended:
                    ended.append((place, other))
                if apart.joined:
                    joined.append((place, other))
                if apart.joined_alone:
                    joined_alone.append((place, other))
        return Conflicts(tuple(ended), tuple(joined), tuple(joined_alone))

    def _find_apart(self, one: Dim, other: Dim) -> Apart:
        a, b, ensured = self.facts[one], self.facts[other], self.ensured
        before, after = adjacent(a, b), adjacent(b, a)
        both_end = all(self._ended_after(dim, facts) == 1 for dim, facts in ((one, a), (other, b)))
        apart = Apart(
            ended=ensured.outer_not_adjacent and both_end and (before or after),
            joined=ensured.shared_stay_apart and not {*a.shared_by}.isdisjoint(b.shared_by),
            joined_alone=ensured.adjacent_stay_apart and before and after,
        )
        return apart if any(apart) else NOT_APART

    def axis(self, dim: Dim, state: State) -> Axis:
        """Return what the distance knows of one dim."""
        known = self._axes[state.ends.counts.weights]
        found = known.get(dim)
        if found is None:
            found = known[dim] = self._find_axis(dim, state)
            found.number = self._numbers.setdefault(found.order, len(self._numbers))
        return found

    def _find_axis(self, dim: Dim, state: State) -> Axis:
        facts, spec, ensured, weights = self.facts[dim], self.spec, self.ensured, state.ends.counts.weights
        above = self._above(facts)
        pooling = spec.reductions.largest_pooling
        is_shareable = self.sizes.fits(self.sizes.none, facts.size.joined)
        is_sum = facts.origin is Origin.REDUCE
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
        """Return how many primitives may stand above the dim."""
        return self.spec.occurrences.chain_length - facts.height if self.ensured.chains_are_short else self.spec.depth

    def _ended_after(self, dim: Dim, facts: DimFacts) -> int:
        """Return after how many contractions a weight may have ended the dim."""
        options, above = self.spec.contractions, self._above(facts)
        if above > 0 and self.sizes.fits(self.sizes.none, facts.size.shared):
            if self.candidates.may_be_outer(facts, dim.size):
                return 1
            low_rank = options.least_low_rank <= facts.size.highest <= options.most_low_rank
            if facts.origin is Origin.REDUCE and above > 1 and low_rank:  # one weight has it, a later one ends it
                return 2
        return UNREACHABLE

    def _pool(self, facts: DimFacts) -> float:
        """Return the product of the sums below that may stay unweighted, for the largest layer."""
        small = [dim.size for dim in facts.pooled if self.sizes[dim.size].highest <= self.goal.largest_pooling]
        return self.sizes[product(small)].highest

    def _cuts(self, dim: Dim, state: State) -> tuple[Size, ...]:
        """Return the pieces of the Merges that rules allow on the dim."""
        if self._is_blocked(MERGE, dim, state):
            return ()
        pieces: set[Size] = set()
        for block, _ in self.sizes.divisors(dim.size):
            step = CandidateStep(self.spec, self.sizes, self.facts, state, MERGE, (dim,), block)
            if not any(row.rejects(step) for row in self.rules.of(MERGE)):
                pieces |= {block, dim.size / block}
        return tuple(sorted(pieces, key=lambda size: size.code))

    def _pieces(self, size: Size, cuts: Cuts, weight: int) -> PieceCosts:
        """Return what it takes to end the dim in pieces, if that may be better than to end it as it is."""
        anything = not self.ensured.merges_below_joins
        slides = cuts.above_window < UNREACHABLE
        if not (cuts.now or anything or cuts.above_shift or slides):
            return NO_PIECES
        pieces = self.goal.pieces(size, cuts.now if cuts.now and not anything else None)
        if pieces.more == UNREACHABLE or (weight == 1 and pieces.one == UNREACHABLE):
            return NO_PIECES
        if not cuts.now and not anything and not slides:  # above a Shift
            return PieceCosts(*(min(number + 1, UNREACHABLE) for number in pieces))
        return pieces

    def _is_blocked(self, kind: str, dim: Dim, state: State) -> bool:
        """Return whether rules reject every such step on the dim."""
        return is_blocked(self.rules, CandidateStep(self.spec, self.sizes, self.facts, state, kind, (dim,)))
