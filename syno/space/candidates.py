"""The steps that could be taken from a state: what options, sizes and rules allow, before the distance has its say.

Source: the published system's generation of primitives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from syno.algebra import Size, product
from syno.ir import dim as dims
from syno.ir.dim import Dim
from syno.space.facts import DimFacts, Edge, FactTable, Role
from syno.space.rules import RuleSet
from syno.space.rules.table import CONTRACTION, EXPAND, MERGE, REDUCE, SHIFT, SPLIT, STRIDE, UNFOLD, Candidate
from syno.space.sizes import SizeTable, Usage
from syno.space.spec import OperatorSpec
from syno.space.state import Ends, Increase, State, more

SHIFT_AMOUNT = 1  # a Shift by more is seldom useful; the published system has no other


@dataclass
class Candidates:
    """Proposes steps from a state, and takes them."""

    spec: OperatorSpec
    sizes: SizeTable
    facts: FactTable
    rules: RuleSet

    def __post_init__(self) -> None:
        bound = {into for _, into in self.spec.bound_axes}
        free = [size for axis, size in enumerate(self.spec.input_sizes) if axis not in bound]
        self._input = product(free)

    # ---- proposing ----------------------------------------------------------------------------------------------

    def __call__(self, state: State) -> Iterator[Candidate]:
        """Every step that options and rules allow, in an order that is the same in every process."""
        for candidate in self.proposed(state):
            if self.rules.reject(candidate) is None:
                yield candidate

    def proposed(self, state: State) -> Iterator[Candidate]:
        """Every step that the options allow."""
        counts, most = state.ends.counts, self.spec.occurrences
        live = list(state.data)
        if counts.reductions < most.reductions:
            yield from self._reductions(state)
        if counts.weights + 1 < most.tensors:
            yield from self._contractions(state, live)
        if _room(counts.shifts, most.shifts):
            yield from (self._step(state, SHIFT, (dim,)) for dim in live if not self.facts[dim].discards)
        if _room(counts.strides, most.strides):
            yield from self._strides(state, live)
        if _room(counts.splits, most.splits):
            yield from self._splits(state, live)
        if _room(counts.unfolds, most.unfolds):
            yield from self._unfolds(state, live)
        if self.spec.repeats.largest > 1 and _room(counts.repeats, most.expands):
            yield from self._repeats(state, live)
        if _room(counts.merges, most.merges):
            yield from self._merges(state, live)

    def _step(self, state: State, kind: str, on: tuple[Dim, ...] = (), size: Size | None = None) -> Candidate:
        return Candidate(self.spec, self.sizes, self.facts, state, kind, on, size)

    def _reductions(self, state: State) -> Iterator[Candidate]:
        """Sums in the order of their enumeration, so that a set of them is reached in one way only."""
        loops = [dim.size for dim in state.ends.sums]
        pure = len(loops) == state.steps
        if not pure and self.rules.is_on("C1"):
            return
        reached = product(loops)
        options = self.sizes.sizes(self.sizes.none)
        start = max((options.index(size) for size in loops), default=0) if pure else 0
        for size in options[start:]:
            if self.sizes.fits(state.ends.usage, self.sizes.reduced(size)) and self.within_multiple(reached * size):
                yield self._step(state, REDUCE, (), size)

    def within_multiple(self, reached: Size) -> bool:
        """Whether the product of all reductions is small enough."""
        return self.sizes[reached / self._input].highest <= self.spec.reductions.multiple

    def _strides(self, state: State, live: list[Dim]) -> Iterator[Candidate]:
        for factor in self.sizes.sizes(state.ends.usage):
            for dim in live:
                strided = self.sizes[dim.size * factor]
                if strided.is_valid and strided.highest <= self.spec.windows.largest_strided:
                    yield self._step(state, STRIDE, (dim,), factor)

    def _splits(self, state: State, live: list[Dim]) -> Iterator[Candidate]:
        for major in live:
            for minor in live:
                if major is not minor and self.sizes[major.size * minor.size].is_valid:
                    yield self._step(state, SPLIT, (major, minor))

    def _unfolds(self, state: State, live: list[Dim]) -> Iterator[Candidate]:
        windows = [dim for dim in live if self.facts[dim].size.can_be_window]
        for position in live:
            for window in windows:
                if position is not window and self.sizes[position.size / window.size].lowest >= self.spec.windows.least_ratio:
                    yield self._step(state, UNFOLD, (position, window))

    def _repeats(self, state: State, live: list[Dim]) -> Iterator[Candidate]:
        for dim in live:
            edge = self.facts[dim].edge
            if edge is Edge.REMAINDER:
                assert dim.operation is not None
                nested = self.facts[dim.operation.bottoms[0]].edge in (Edge.QUOTIENT, Edge.REMAINDER)
                tiles = nested
            elif edge is Edge.QUOTIENT:
                tiles = True
            else:
                continue
            if tiles and not self.spec.repeats.tile:
                continue
            if self.sizes[state.ends.repeats * dim.size].highest <= self.spec.repeats.largest:
                yield self._step(state, EXPAND, (dim,))

    def _merges(self, state: State, live: list[Dim]) -> Iterator[Candidate]:
        usage = state.ends.usage
        for dim in live:
            for block, used in self.sizes.divisors(dim.size):
                if self.sizes.fits(usage, used):
                    yield self._step(state, MERGE, (dim,), block)

    def _contractions(self, state: State, live: list[Dim]) -> Iterator[Candidate]:
        """Choices of inner and outer dims. A choice that can no longer become a weight is not followed up."""
        dims = [
            dim
            for dim in live
            if not self.facts[dim].discards and self.sizes.fits(state.ends.usage, self.facts[dim].size.shared)
        ]
        facts = [self.facts[dim] for dim in dims]
        matmul = self.rules.is_on("C5")
        outer_from = [not matmul or any(map(self._has_role, facts[i:])) for i in range(len(facts) + 1)]
        most, least = self.spec.occurrences.shares, 2 if matmul else 1
        room = len(dims) if most is None else most - state.ends.counts.shares

        def choose(i: int, picks: tuple[Dim, ...], outer: tuple[Dim, ...], usage: Usage, reached: Size) -> Iterator[Candidate]:
            if not outer and not outer_from[i]:
                return
            if i == len(dims):
                if len(picks) >= least:
                    yield Candidate(self.spec, self.sizes, self.facts, state, CONTRACTION, picks, None, frozenset(outer))
                return
            yield from choose(i + 1, picks, outer, usage, reached)
            dim, shared = dims[i], facts[i].size.shared
            if len(picks) == room or not self.sizes.fits(usage, shared):
                return
            used = tuple(a + b for a, b in zip(usage, shared, strict=True))
            yield from choose(i + 1, (*picks, dim), outer, used, reached)
            if self.may_be_outer(facts[i], reached * dim.size):
                more_outer = reached * dim.size if facts[i].role is Role.OUTER else reached
                yield from choose(i + 1, (*picks, dim), (*outer, dim), used, more_outer)

        yield from choose(0, (), (), state.ends.usage, state.ends.outer)

    def may_be_outer(self, facts: DimFacts, reached: Size) -> bool:
        """Whether a weight may end the dim; `reached` is the product of such axes with it."""
        options = self.spec.contractions
        if facts.role is Role.OUTER:
            return self.sizes[reached].highest <= options.largest_outer
        if facts.role is Role.LOW_RANK:
            return options.least_low_rank <= facts.size.highest <= options.most_low_rank
        return self._has_role(facts)

    def _has_role(self, facts: DimFacts) -> bool:
        """Whether there are weights that may end the dim. One may end a bare sum if no rule keeps it from that."""
        bare = facts.edge in (Edge.REDUCE, Edge.QUOTIENT, Edge.REMAINDER) and facts.only_sums and not facts.tags
        return facts.role is not Role.INNER or (bare and not self.rules.is_on("C12"))

    # ---- taking -------------------------------------------------------------------------------------------------

    def root(self) -> State:
        """The output's axes, those bound to the input's left out."""
        bound = {out for out, _ in self.spec.bound_axes}
        axes = [dims.output_axis(i, size) for i, size in enumerate(self.spec.output_sizes) if i not in bound]
        return State(tuple(sorted(axes, key=lambda dim: dim.id)), (), Ends(self.sizes.none))

    def take(self, step: Candidate) -> State:
        """The state after the step."""
        state, ends, none = step.state, step.state.ends, self.sizes.none
        match step.kind:
            case "Reduce":
                number = sum(dim.size is step.size for dim in ends.sums)
                top = dims.reduce(step.block, number)
                grown = replace(more(ends, self.sizes.reduced(step.block), reductions=1), sums=(*ends.sums, top))
                return state.replaced((), (top,), (), grown)
            case "Shift":
                return state.replaced(step.dims, (dims.shift(step.dims[0], SHIFT_AMOUNT),), (), more(ends, none, shifts=1))
            case "Stride":
                top = dims.stride(step.dims[0], step.block)
                grown = replace(more(ends, self.sizes.reduced(step.block), strides=1), strides=ends.strides * step.block)
                return state.replaced(step.dims, (top,), (), grown)
            case "Split":
                return state.replaced(step.dims, (dims.split(*step.dims),), (), more(ends, none, splits=1))
            case "Merge":
                usage = self.sizes.merged(step.block, step.dims[0].size / step.block)
                grown = more(ends, usage if self.spec.sizes.count_merges else none, merges=1)
                return state.replaced(step.dims, dims.merge(step.dims[0], step.block), (), grown)
            case "Unfold":
                increase = self._increase(step.dims, step.dims[1].size)
                copies = ends.copies if step.of(1).only_sums else ends.copies * step.dims[1].size
                grown = replace(more(ends, none, unfolds=1), increases=(*ends.increases, increase), copies=copies)
                return state.replaced(step.dims, (dims.unfold(*step.dims),), (), grown)
            case "Expand":
                increase = self._increase(step.dims, step.dims[0].size)
                grown = replace(more(ends, none, repeats=1), increases=(*ends.increases, increase))
                size = step.dims[0].size
                grown = replace(grown, repeats=ends.repeats * size, copies=ends.copies * size)
                return state.replaced(step.dims, (), step.dims, grown)
        return self._contract(step)

    def _contract(self, step: Candidate) -> State:
        state, ends = step.state, step.state.ends
        weight = ends.counts.weights + 1
        tops, expanded, usage, outer = [], [], self.sizes.none, ends.outer
        for dim in step.dims:
            data, axis = dims.share(dim, weight)
            tops.append(axis)
            usage = tuple(a + b for a, b in zip(usage, self.facts[dim].size.shared, strict=True))
            if dim in step.outer:
                expanded.append(data)
                outer = outer * dim.size if self.facts[dim].role is Role.OUTER else outer
            else:
                tops.append(data)
        grown = replace(
            more(ends, usage, shares=len(step.dims), weights=1),
            outer=outer,
            leaders=(*ends.leaders, min((self.facts[dim].height, dim.id) for dim in step.dims)),
            increases=(*ends.increases, *(self._increase((dim,), dim.size) for dim in expanded)),
            weight_sums=(*ends.weight_sums, self._sums_below(step.dims)),
        )
        return state.replaced(step.dims, tops, expanded, grown)

    def _increase(self, bottoms: tuple[Dim, ...], size: Size) -> Increase:
        tags = 0
        for dim in bottoms:
            tags |= self.facts[dim].tags
        return Increase(size, self._sums_below(bottoms), tags)

    def _sums_below(self, bottoms: tuple[Dim, ...]) -> frozenset[Dim]:
        facts = [self.facts[dim] for dim in bottoms]
        return frozenset().union(*(f.pooled for f in facts), *(f.weighted for f in facts))


def _room(used: int, most: int | None) -> bool:
    return most is None or used < most
