"""The space of operators under one spec: states, the steps between them, and complete operators.

>>> space = Space(paper("resnet18"))
>>> operators = list(space.enumerate(4))
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property

from syno.algebra import Size, product
from syno.ir import dim as dims
from syno.ir.dim import Dim, content_id
from syno.ir.graph import PGraph
from syno.space.candidates import Candidates
from syno.space.complete import Completion
from syno.space.axes import UNREACHABLE, Axis, Limits
from syno.space.distance import Distance
from syno.space.facts import DimFacts, Edge, FactTable, Role, adjacent
from syno.space.flops import FlopsBound
from syno.space.rules import RuleSet
from syno.space.rules.unordered import Channels, violations
from syno.space.rules.table import FINALIZE, MERGE, SHIFT, UNFOLD, Candidate
from syno.space.sizes import SizeTable, Usage
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.sums import SumSets


@dataclass(frozen=True)
class Step:
    """An arc: what is added, and the state or the complete operator that it leads to.

    Attributes:
        kind: the primitive, "Contraction" or "Finalize".
        id: content id of what is added: the same addition has the same id in different states.
        node: the state, or the operator itself.
        operator: the complete operator if this is a Finalize.
    """

    kind: str
    id: str
    node: Hashable
    operator: PGraph | None = None


class Space:
    """All operators that a spec allows, reached step by step from the output up."""

    def __init__(self, spec: OperatorSpec, *, use_distance: bool = True) -> None:
        self.spec = spec
        self.use_distance = use_distance
        self.sizes = SizeTable(spec)
        self.facts = FactTable(spec, self.sizes)
        self.rules = RuleSet(spec.rules_off, spec.rules_on)
        self.candidates = Candidates(spec, self.sizes, self.facts, self.rules)
        self.completion = Completion(spec, self.sizes, self.facts, self.rules)
        self.least_flops = spec.budget.least_flops - spec.budget.rest_flops
        self.most_flops = spec.budget.most_flops - spec.budget.rest_flops
        self.distance = Distance(
            spec,
            self.sizes,
            self.completion.wanted,
            self.completion.unordered,
            self.least_flops,
            self.most_flops,
            small_blocks=self.rules.is_on("V6"),
        )
        self.flops = FlopsBound(spec, self.sizes)
        self._axes: dict[tuple[Dim, int], Axis] = {}

    @cached_property
    def root(self) -> State:
        """The output's axes."""
        return self.candidates.root()

    # ---- distance -----------------------------------------------------------------------------------------------

    def distance_of(self, state: State, most: int | None = None) -> int:
        """How many more primitives the state needs at least; UNREACHABLE if that is above `most` (the depth left)."""
        left = self.spec.depth - state.steps if most is None else most
        axes, limits = self.abstract(state, left)
        return self.distance(axes, limits, left)

    def abstract(self, state: State, left: int) -> tuple[tuple[Axis, ...], Limits]:
        """What the distance knows of a state."""
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
            needs_weight=not counts.weights or (much and self.rules.is_on("C14")),
            room=tuple(limit - used for limit, used in zip(self.sizes.limits, state.ends.usage, strict=True)),
            beside=(),
        )
        pairs = sorted(((self._axis(dim, state), dim) for dim in state.data), key=lambda pair: _axis_order(pair[0]))
        if self.rules.is_on("C9"):
            ends = [(i, self.facts[dim]) for i, (axis, dim) in enumerate(pairs) if axis.endings == 1]
            beside = tuple((i, j) for i, a in ends for j, b in ends if i < j and (adjacent(a, b) or adjacent(b, a)))
            limits = limits._replace(beside=beside)
        return tuple(axis for axis, _ in pairs), limits

    def _axis(self, dim: Dim, state: State) -> Axis:
        weights = state.ends.counts.weights
        found = self._axes.get((dim, weights))
        if found is None:
            found = self._axes[dim, weights] = self._find_axis(dim, state)
        return found

    def _find_axis(self, dim: Dim, state: State) -> Axis:
        facts, spec = self.facts[dim], self.spec
        slack = spec.occurrences.chain_length - facts.height
        window = UNREACHABLE
        if slack > 0 and self.candidates.is_window(facts):
            window = int(facts.edge is Edge.REDUCE and self.rules.is_on("V19"))
        endings = UNREACHABLE
        if slack > 0 and self.sizes.fits(self.sizes.none, facts.size.shared):
            if self.candidates.may_be_outer(facts, dim.size):
                endings = 1
            elif facts.edge is Edge.REDUCE and slack > 1 and self._low_rank(facts):
                endings = 2
        return Axis(
            size=dim.size,
            slack=min(max(slack, 0), 1),
            cut=slack > 0 and self._allowed(MERGE, dim, state, "V1", "V2", "V16", "V17", "C8"),
            shift=slack > 1 and self._allowed(SHIFT, dim, state, "V5", "V6", "V16", "V18", "U1"),
            fold=self._folds(dim, slack, state),
            minor=slack > 2 and (facts.size.highest <= spec.windows.shift_pattern or not self.rules.is_on("V6")),
            endings=endings,
            window=window,
            repeat=spec.repeats.largest > 1 and facts.edge in (Edge.QUOTIENT, Edge.REMAINDER),
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

    def _folds(self, dim: Dim, slack: int, state: State) -> int:
        if slack > 0 and self._allowed(UNFOLD, dim, state, "V11", "V14", "V20"):
            return 0
        shareable = self.sizes.fits(state.ends.usage, self.facts[dim].size.shared)
        return 1 if slack > 1 and shareable and self._allowed(UNFOLD, dim, state, "V20") else UNREACHABLE

    def _allowed(self, kind: str, dim: Dim, state: State, *rules: str) -> bool:
        """Whether none of the rules forbids the step on the dim."""
        candidate = Candidate(self.spec, self.sizes, self.facts, state, kind, (dim,))
        table = self.rules.table
        return not any(name in table and table[name].rejects(candidate) for name in rules)

    def is_feasible(self, state: State) -> bool:
        """Whether the state may still become an operator, as far as the distance can tell."""
        if state.steps > self.spec.depth:
            return False
        if self.flops.lower_bound(state) > self.most_flops:
            return False
        if not self.use_distance:
            return True
        counts = state.ends.counts
        if counts.steps == counts.reductions and self.rules.is_on("C1"):
            return self.sum_sets.leads_on(tuple(dim.size for dim in state.ends.sums))
        return self.distance_of(state) < UNREACHABLE

    @cached_property
    def sum_sets(self) -> SumSets:
        """The sets of reductions that lead somewhere."""
        base, limits = self.abstract(self.root, self.spec.depth)
        keys = {size: self._axis(dims.reduce(size), self.root) for size in self.sizes.sizes(self.sizes.none)}
        outputs, goal = product(self.spec.output_sizes), product(self.completion.wanted)
        live = product(axis.size for axis in base)
        room = tuple(self.sizes.limits)

        def feasible(sums: tuple[Size, ...], reached: Size, usage: Usage) -> bool:
            if not (live * reached / goal).is_legal:
                return False
            left = self.spec.depth - len(sums)
            axes = tuple(sorted((*base, *(keys[size] for size in sums)), key=_axis_order))
            now = limits._replace(
                merges=min(limits.merges, left),
                splits=min(limits.splits, left),
                shifts=min(limits.shifts, left),
                unfolds=min(limits.unfolds, left),
                repeats=min(limits.repeats, left),
                weights=min(limits.weights, left),
                iterations=self.sizes[outputs * reached].total,
                room=tuple(limit - used for limit, used in zip(room, usage, strict=True)),
                beside=(),
            )
            return self.distance(axes, now, left) < UNREACHABLE

        return SumSets(self.sizes, self.spec.occurrences.reductions, self.candidates.within_multiple, feasible)

    # ---- steps --------------------------------------------------------------------------------------------------

    def children(self, state: State) -> Iterator[tuple[Candidate, State]]:
        """The steps from a state to feasible ones."""
        if state.steps >= self.spec.depth:
            return
        for candidate in self.candidates(state):
            child = self.candidates.take(candidate)
            if self.is_feasible(child):
                yield candidate, child

    def operators(self, state: State) -> list[PGraph]:
        """The complete operators that the state is."""
        return self.completion(state)


def _axis_order(axis: Axis) -> tuple[int, ...]:
    return (axis.size.code, *axis[1:])


__all__ = ["FINALIZE", "Role", "Space", "Step", "content_id", "random"]
