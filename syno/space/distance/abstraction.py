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
from syno.space.distance.reliance import Reliance
from syno.space.facts import DimFacts, FactTable, Origin, Role, adjacent
from syno.space.rules import RuleSet
from syno.space.rules.unordered import Channels, violations
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
        self.relies = Reliance.on(self.rules)
        self._elements = self.sizes[product(self.spec.output_sizes)].total
        self.parting = Parting(self.spec, self.sizes, apart=self.relies.neighbours)

    def __call__(self, state: State, left: int) -> tuple[tuple[Axis, ...], Limits]:
        """What the distance knows of a state with `left` primitives left, axes sorted."""
        counts, most = state.ends.counts, self.spec.occurrences
        weights = most.tensors - 1 - counts.weights

        def room(used: int, limit: int | None) -> int:
            return left if limit is None else min(left, limit - used)

        pooled: set[Dim] = set()
        weighted: set[Dim] = set()
        for dim in state.data:
            pooled |= self.facts[dim].pooled
            weighted |= self.facts[dim].weighted
        much = self.sizes[product(dim.size for dim in pooled - weighted)].highest > self.spec.reductions.largest_pooling
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
            needs_weight=not counts.weights or (much and self.rules.is_on("C14")),
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
                if (before or after) and axes[i].endings == 1 == axes[j].endings and self.rules.is_on("C9"):
                    beside.append((i, j))
                if a.shared_by and b.shared_by and set(a.shared_by) & set(b.shared_by) and self.rules.is_on("V21"):
                    apart.append((i, j))
                if before and after and self.rules.is_on("V4"):
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
        slack = spec.occurrences.chain_length - facts.height if self.rules.is_on("C13") else spec.depth
        window = UNREACHABLE
        if slack > 0 and facts.size.is_window:
            window = int(facts.origin is Origin.REDUCE and self.rules.is_on("V19"))
        endings = UNREACHABLE
        if slack > 0 and self.sizes.fits(self.sizes.none, facts.size.shared):
            if self.candidates.may_be_outer(facts, dim.size):
                endings = 1
            elif facts.origin is Origin.REDUCE and slack > 1 and self._low_rank(facts):
                endings = 2
        cuts = self._cuts(dim, state) if slack > 0 else ()
        shift = slack > 1 and self._allowed(SHIFT, dim, state, "V5", "V6", "V16", "V18", "U1", "C8")
        fold = self._folds(dim, slack, state)
        return Axis(
            size=dim.size,
            slack=min(max(slack, 0), 1),
            cuts=cuts,
            parts=self._parts(dim.size, cuts, shift, fold, endings) if slack > 0 else NO_PARTS,
            shift=shift,
            fold=fold,
            minor=slack > 2 and (facts.size.highest <= spec.windows.shift_pattern or not self.rules.is_on("V6")),
            endings=endings,
            window=window,
            repeat=spec.repeats.largest > 1 and facts.origin in (Origin.QUOTIENT, Origin.REMAINDER),
            widens=facts.role is Role.OUTER,
            shareable=slack > 0 and self.sizes.fits(self.sizes.none, facts.size.joined) and not facts.discards,
            must_weigh=facts.origin is Origin.REDUCE
            and self.rules.is_on("C14")
            and facts.size.highest > spec.reductions.largest_pooling,
            fresh=not state.ends.counts.weights
            or bool(facts.tags >> state.ends.counts.weights & 1)
            or not self.rules.is_on("C8"),
            only_sums=facts.only_sums,
            pool=self._pool(facts),
            misordered=self._misordered(dim),
            strided=facts.discards,
        )

    def _low_rank(self, facts: DimFacts) -> bool:
        options = self.spec.contractions
        return options.least_low_rank <= facts.size.highest <= options.most_low_rank

    def _pool(self, facts: DimFacts) -> float:
        """The product of the sums below that may stay unweighted."""
        largest = self.spec.reductions.largest_pooling if self.rules.is_on("C14") else float("inf")
        small = [dim.size for dim in facts.pooled if self.sizes[dim.size].highest <= largest]
        return self.sizes[product(small)].highest

    def _misordered(self, dim: Dim) -> bool:
        broken = violations({dim: Channels(True, dim)})
        return any(self.rules.is_on(name) for name in broken)

    def _cuts(self, dim: Dim, state: State) -> tuple[Size, ...]:
        """The pieces that rules let a Merge cut now."""
        if not self._allowed(MERGE, dim, state, "V1", "V2", "V16", "V17", "C8"):
            return ()  # whatever the block
        pieces: dict[Size, None] = {}
        for block, _ in self.sizes.divisors(dim.size):
            step = CandidateStep(self.spec, self.sizes, self.facts, state, MERGE, (dim,), block)
            if not any(row.rejects(step) for row in self.rules.of(MERGE)):
                pieces |= {block: None, dim.size / block: None}
        return tuple(sorted(pieces, key=lambda size: size.code))

    def _parts(self, size: Size, cuts: tuple[Size, ...], shift: bool, fold: int, endings: int) -> Parts:
        """What it takes to end the dim in pieces, if that may be better than to end it as it is."""
        anything = not self.relies.cuts_first
        if not (cuts or anything or shift or fold < UNREACHABLE):
            return NO_PARTS
        parts = self.parting(size, cuts if cuts and not anything else None)
        if parts.more == UNREACHABLE or (endings == 1 and parts.one == UNREACHABLE):
            return NO_PARTS
        if not cuts and not anything and fold == UNREACHABLE:
            parts = Parts(*(min(number + 1, UNREACHABLE) for number in parts))  # above a Shift
        return parts

    def _folds(self, dim: Dim, slack: int, state: State) -> int:
        if slack > 0 and self._allowed(UNFOLD, dim, state, "V11", "V14", "V20"):
            return 0
        shareable = self.sizes.fits(self.sizes.none, self.facts[dim].size.joined)
        return 1 if slack > 1 and shareable and self._allowed(UNFOLD, dim, state, "V20") else UNREACHABLE

    def _allowed(self, kind: str, dim: Dim, state: State, *rules: str) -> bool:
        """Whether none of the rules forbids the step on the dim."""
        candidate = CandidateStep(self.spec, self.sizes, self.facts, state, kind, (dim,))
        return not any(self.rules.forbids(name, candidate) for name in rules)


def axis_order(axis: Axis) -> tuple[Any, ...]:
    """In which order the axes of a state are handed to the distance."""
    return (axis.size.code, *axis[2:], *(size.code for size in axis.cuts))
