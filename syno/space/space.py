"""The space of operators under one spec: states, the steps between them, and complete operators.

>>> space = Space(paper("resnet18"))
>>> operators = list(space.enumerate(4))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random

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
        self._goal = product(self.completion.wanted)
        self._dead: set[Hashable] = set()
        self._steps: dict[State, tuple[Step, ...]] = {}
        self._cheap_states: dict[State, bool] = {}
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
            outer=state.ends.outer,
            beside=(),
            apart=(),
            touching=(),
        )
        pairs = sorted(((self._axis(dim, state), dim) for dim in state.data), key=lambda pair: _axis_order(pair[0]))
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
            widens=facts.role is Role.OUTER,
            shareable=slack > 0 and self.sizes.fits(self.sizes.none, facts.size.shared) and not facts.discards,
            must_weigh=facts.edge is Edge.REDUCE and self.rules.is_on("C14") and facts.size.highest > spec.reductions.largest_pooling,
            fresh=not state.ends.counts.weights or bool(facts.tags >> state.ends.counts.weights & 1) or not self.rules.is_on("C8"),
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
        shareable = self.sizes.fits(self.sizes.none, self.facts[dim].size.shared)
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
        if self.distance_of(state) == UNREACHABLE:
            return False
        return product(dim.size for dim in state.data) is not self._goal or not self._cheap(state)

    def _cheap(self, state: State) -> bool:
        found = self._cheap_states.get(state)
        if found is None:
            found = self._cheap_states[state] = self.completion.cheap_forever(state)
        return found

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
            if child not in self._dead and self.is_feasible(child):
                yield candidate, child

    def steps(self, node: Hashable) -> tuple[Step, ...]:
        """All steps from a node that are not known to be dead ends, in an order that is the same in every process."""
        if not isinstance(node, State) or node in self._dead:
            return ()
        known = self._steps.get(node)
        if known is None:
            taken = [Step(c.kind, step_id(c), child) for c, child in self.children(node)]
            known = (*taken, *(Step(FINALIZE, content_id("Finalize", o.id), o, o) for o in self.operators(node)))
            self._steps[node] = known
        alive = tuple(step for step in known if step.node not in self._dead)
        if not alive:
            self._dead.add(node)
        return alive

    def walk(self, node: Hashable, random: Random, *, by_kind: bool = True) -> tuple[Step, ...] | None:
        """A random completion below the node: the steps to take, ending in a Finalize; None if the walk met a dead end.

        Each step is drawn with equal chances among the kinds of steps that can be taken and then among those of the
        kind, or, without `by_kind`, among all. Dead ends are remembered: no walk goes there twice.
        """
        path: list[Step] = []
        while isinstance(node, State):
            step = self._drawn(node, random, by_kind)
            if step is None:
                self._dead.add(node)
                return None
            path.append(step)
            node = step.node
        return tuple(path)

    def _drawn(self, state: State, random: Random, by_kind: bool) -> Step | None:
        """One of the steps by chance. Steps are tried in random order until one is feasible: cheaper than trying all."""
        if state in self._dead:
            return None
        if state in self._steps:
            options = list(self.steps(state))
            if not options:
                return None
            kinds = sorted({step.kind for step in options})
            kind = random.choice(kinds) if by_kind else None
            return random.choice([step for step in options if kind in (None, step.kind)])
        waiting: dict[str, list[Candidate | PGraph]] = {}
        for operator in self.operators(state):
            waiting.setdefault(FINALIZE if by_kind else "", []).append(operator)
        if state.steps < self.spec.depth:
            for candidate in self.candidates(state):
                waiting.setdefault(candidate.kind if by_kind else "", []).append(candidate)
        while waiting:
            kind = random.choice(sorted(waiting))
            options_left = waiting[kind]
            place = random.randrange(len(options_left))
            options_left[place], options_left[-1] = options_left[-1], options_left[place]
            chosen = options_left.pop()
            if not options_left:
                del waiting[kind]
            if isinstance(chosen, PGraph):
                return Step(FINALIZE, content_id("Finalize", chosen.id), chosen, chosen)
            child = self.candidates.take(chosen)
            if child not in self._dead and self.is_feasible(child):
                return Step(chosen.kind, step_id(chosen), child)
        return None

    def operators(self, state: State) -> list[PGraph]:
        """The complete operators that the state is."""
        return self.completion(state)


def step_id(candidate: Candidate) -> str:
    """Content id of what a step adds: the same in every state and process."""
    parts = [candidate.kind, str(candidate.size), *sorted(dim.id + ("-" if dim in candidate.outer else "") for dim in candidate.dims)]
    if candidate.kind in ("Split", "Unfold"):
        parts = [candidate.kind, *(dim.id for dim in candidate.dims)]
    return content_id(*parts)


def _axis_order(axis: Axis) -> tuple[int, ...]:
    return (axis.size.code, *axis[1:])


__all__ = ["Space", "Step", "step_id"]
