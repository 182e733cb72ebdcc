"""From a state to what the shape distance knows of it: which axis may be cut, shifted, slid over, ended.

The rules that are on decide; with a rule off, what it forbids counts as possible.

Paper: section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syno.algebra import Size, product
from syno.ir.dim import Dim
from syno.space.candidates import Candidates
from syno.space.distance.axes import NO_PARTS, UNREACHABLE, Axis, Limits, Parts
from syno.space.distance.parting import Parting
from syno.space.facts import DimFacts, FactTable, Origin, Role, adjacent
from syno.space.rules import RuleSet
from syno.space.rules.guarantees import Guarantees, is_blocked, may_be_unordered
from syno.space.rules.order import pools_much
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.steps import MERGE, SHIFT, UNFOLD, CandidateStep


@dataclass
class Abstraction:
    """Axes and limits of states, under one spec."""

    spec: OperatorSpec
    sizes: SizeTable
    facts: FactTable
    rules: RuleSet
    candidates: Candidates
    _axes: dict[tuple[Dim, int], Axis] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ensured = Guarantees.of(self.rules)
        self._elements = self.sizes[product(self.spec.output_sizes)].total
        self.parting = Parting(self.spec, self.sizes, apart=self.ensured.outer_not_adjacent)

    def __call__(self, state: State, left: int) -> tuple[tuple[Axis, ...], Limits]:
        """What the distance knows of a state with `left` primitives left, axes sorted."""
        counts, most = state.ends.counts, self.spec.occurrences
        weights = most.tensors - 1 - counts.weights

        def room(used: int, limit: int | None) -> int:
            return left if limit is None else min(left, limit - used)

        limits = Limits(
            merges=room(counts.merges, most.merges),
            splits=room(counts.splits, most.splits),
            shifts=room(counts.shifts, most.shifts),
            unfolds=room(counts.unfolds, most.unfolds),
            repeats=room(counts.repeats, most.expands) if self.spec.repeats.largest > 1 else 0,
            weights=min(weights, left),
            weighted=counts.weights,
            iterations=self.sizes[product((*self.spec.output_sizes, *(dim.size for dim in state.ends.sums)))].total,
            elements=self._elements,
            needs_weight=not counts.weights or (self.ensured.pooling_is_small and pools_much(state, self.facts, self.spec)),
            room=tuple(limit - used for limit, used in zip(self.sizes.limits, state.ends.usage, strict=True)),
            outer=state.ends.outer,
            copies=self.sizes[state.ends.copies].highest,
            beside=(),
            apart=(),
            touching=(),
        )
        pairs = sorted(((self.axis(dim, state), dim) for dim in state.data), key=lambda pair: axis_order(pair[0]))
        axes = tuple(axis for axis, _ in pairs)
        facts = [(i, self.facts[dim]) for i, (_, dim) in enumerate(pairs)]
        return axes, self._related(axes, facts, limits)

    def _related(self, axes: tuple[Axis, ...], facts: list[tuple[int, DimFacts]], limits: Limits) -> Limits:
        """The limits with the pairs of axes that rules keep from each other."""
        beside, apart, touching = [], [], []
        for i, a in facts:
            for j, b in facts[i + 1 :]:
                before, after = adjacent(a, b), adjacent(b, a)
                if (before or after) and axes[i].endings == 1 == axes[j].endings and self.ensured.outer_not_adjacent:
                    beside.append((i, j))
                if a.shared_by and b.shared_by and set(a.shared_by) & set(b.shared_by) and self.ensured.shared_stay_apart:
                    apart.append((i, j))
                if before and after and self.ensured.adjacent_stay_apart:
                    touching.append((i, j))
        return limits._replace(beside=tuple(beside), apart=tuple(apart), touching=tuple(touching))

    def axis(self, dim: Dim, state: State) -> Axis:
        """What it knows of one dim."""
        weights = state.ends.counts.weights
        found = self._axes.get((dim, weights))
        if found is None:
            found = self._axes[dim, weights] = self._find_axis(dim, state)
        return found

    def _find_axis(self, dim: Dim, state: State) -> Axis:
        facts, spec = self.facts[dim], self.spec
        slack = spec.occurrences.chain_length - facts.height if self.ensured.chains_are_short else spec.depth
        window = UNREACHABLE
        if slack > 0 and facts.size.can_be_window:
            window = int(facts.origin is Origin.REDUCE and self.ensured.no_sum_as_window)
        endings = UNREACHABLE
        if slack > 0 and self.sizes.fits(self.sizes.none, facts.size.shared):
            if self.candidates.may_be_outer(facts, dim.size):
                endings = 1
            elif facts.origin is Origin.REDUCE and slack > 1 and self._low_rank(facts):
                endings = 2
        cuts = self._cuts(dim, state) if slack > 0 else ()
        shift = slack > 1 and not self._blocked(SHIFT, dim, state)
        fold = self._folds(dim, slack, state)
        return Axis(
            size=dim.size,
            slack=min(max(slack, 0), 1),
            cuts=cuts,
            parts=self._parts(dim.size, cuts, shift, fold, endings) if slack > 0 else NO_PARTS,
            shift=shift,
            fold=fold,
            minor=slack > 2 and (facts.size.highest <= spec.windows.shift_pattern or not self.ensured.shifted_blocks_are_small),
            endings=endings,
            window=window,
            repeat=spec.repeats.largest > 1 and facts.origin in (Origin.QUOTIENT, Origin.REMAINDER),
            widens=facts.role is Role.OUTER,
            shareable=slack > 0 and self.sizes.fits(self.sizes.none, facts.size.joined) and not facts.discards,
            must_weigh=facts.origin is Origin.REDUCE
            and self.ensured.pooling_is_small
            and facts.size.highest > spec.reductions.largest_pooling,
            fresh=not state.ends.counts.weights
            or bool(facts.tags >> state.ends.counts.weights & 1)
            or not self.ensured.views_before_weights,
            only_sums=facts.only_sums,
            pool=self._pool(facts),
            misordered=not may_be_unordered(self.rules, dim),
            strided=facts.discards,
        )

    def _low_rank(self, facts: DimFacts) -> bool:
        options = self.spec.contractions
        return options.least_low_rank <= facts.size.highest <= options.most_low_rank

    def _pool(self, facts: DimFacts) -> float:
        """The product of the sums below that may stay unweighted."""
        largest = self.spec.reductions.largest_pooling if self.ensured.pooling_is_small else float("inf")
        small = [dim.size for dim in facts.pooled if self.sizes[dim.size].highest <= largest]
        return self.sizes[product(small)].highest

    def _cuts(self, dim: Dim, state: State) -> tuple[Size, ...]:
        """The pieces that rules let a Merge cut now."""
        if self._blocked(MERGE, dim, state):
            return ()  # whatever the block
        pieces: dict[Size, None] = {}
        for block, _ in self.sizes.divisors(dim.size):
            step = CandidateStep(self.spec, self.sizes, self.facts, state, MERGE, (dim,), block)
            if not any(row.rejects(step) for row in self.rules.of(MERGE)):
                pieces |= {block: None, dim.size / block: None}
        return tuple(sorted(pieces, key=lambda size: size.code))

    def _parts(self, size: Size, cuts: tuple[Size, ...], shift: bool, fold: int, endings: int) -> Parts:
        """What it takes to end the dim in pieces, if that may be better than to end it as it is."""
        anything = not self.ensured.merges_below_joins
        if not (cuts or anything or shift or fold < UNREACHABLE):
            return NO_PARTS
        parts = self.parting(size, cuts if cuts and not anything else None)
        if parts.more == UNREACHABLE or (endings == 1 and parts.one == UNREACHABLE):
            return NO_PARTS
        if not cuts and not anything and fold == UNREACHABLE:
            parts = Parts(*(min(number + 1, UNREACHABLE) for number in parts))  # above a Shift
        return parts

    def _folds(self, dim: Dim, slack: int, state: State) -> int:
        if slack > 0 and not self._blocked(UNFOLD, dim, state):
            return 0
        facts = self.facts[dim]
        if slack <= 1 or (facts.only_sums and self.ensured.no_window_over_sums):
            return UNREACHABLE
        return 1 if self.sizes.fits(self.sizes.none, facts.size.joined) else UNREACHABLE

    def _blocked(self, kind: str, dim: Dim, state: State) -> bool:
        """Return whether rules reject every such step on the dim."""
        return is_blocked(self.rules, CandidateStep(self.spec, self.sizes, self.facts, state, kind, (dim,)))


def axis_order(axis: Axis) -> tuple[Any, ...]:
    """In which order the axes of a state are handed to the distance."""
    return (axis.size.code, *axis[2:], *(size.code for size in axis.cuts))
