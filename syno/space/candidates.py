"""Candidate steps: the steps that options, sizes and rules allow from a state, before the shape distance prunes them.

Source: the published system's generation of primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from random import Random

from syno.algebra import Size, product
from syno.ir import dim as dims
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SHIFT, SPLIT, STRIDE, UNFOLD
from syno.space.facts import DimFacts, FactTable, Origin, Role
from syno.space.rules import RuleSet
from syno.space.sizes import SizeTable, Usage, added
from syno.space.spec import OperatorSpec
from syno.space.state import Ends, State
from syno.space.steps import CONTRACTION, CandidateStep, StepKind

# The order in which the look-ahead tries kinds: one feasible step is enough. In ResNet-18's space, two of three Unfolds and
# Shifts that rules allow are feasible, but only one of forty Splits.
LIKELY_FIRST = (UNFOLD, SHIFT, REDUCE, STRIDE, EXPAND, MERGE, CONTRACTION, SPLIT)


class Branch:
    """A candidate step with its cached child state.

    Attributes:
        candidate: the step.
    """

    __slots__ = ("_child", "_id", "_is_known", "candidate")

    def __init__(self, candidate: CandidateStep) -> None:
        self.candidate = candidate
        self._child: State | None = None
        self._is_known = False
        self._id = ""

    @property
    def id(self) -> str:
        """Content id of the candidate step."""
        self._id = self._id or self.candidate.id
        return self._id

    def child(self, after: Callable[[CandidateStep], State | None]) -> State | None:
        """Return the state after the step, or None if it is infeasible. `after` computes it on the first call."""
        if not self._is_known:
            self._child, self._is_known = after(self.candidate), True
        return self._child


class Branches:
    """The branches of one state, generated lazily.

    Attributes:
        operators: the complete operators that the state's dims form.
    """

    __slots__ = ("_made", "_more", "operators")

    def __init__(self, operators: list[PGraph], candidates: Mapping[StepKind, Iterator[CandidateStep]]) -> None:
        self.operators = operators
        self._made: dict[StepKind, list[Branch]] = {kind: [] for kind in candidates}
        self._more = candidates

    def __iter__(self) -> Iterator[Branch]:
        return chain.from_iterable(map(self._of_kind, self._made))

    def likely_first(self) -> Iterator[Branch]:
        """Yield all branches; the kinds of steps that most often lead to operators come first."""
        # All kinds, also those that LIKELY_FIRST does not name: a kind left out would never be tried, and its operators
        # would silently be missing.
        order = dict.fromkeys((*LIKELY_FIRST, *self._made))
        return chain.from_iterable(self._of_kind(kind) for kind in order if kind in self._made)

    def by_kind(self) -> dict[StepKind, list[Branch | PGraph]]:
        """Return all branches by their kind; kinds without branches are omitted."""
        for kind, made in self._made.items():
            made.extend(map(Branch, self._more[kind]))
        return {kind: [*made] for kind, made in self._made.items() if made}

    def _of_kind(self, kind: StepKind) -> Iterator[Branch]:
        made, more = self._made[kind], self._more[kind]
        for place in count():
            if place == len(made):
                following = next(more, None)
                if following is None:
                    return
                made.append(Branch(following))
            yield made[place]


def taken_out(options: list[Branch | PGraph], random: Random) -> Branch | PGraph:
    """Remove a random option from the list and return it."""
    place = random.randrange(len(options))
    options[place], options[-1] = options[-1], options[place]
    return options.pop()


OPTIONS: dict[
    StepKind, tuple[str, str]
] = {  # of each kind of step, its number in a state, and the option of `occurrences` that bounds it
    REDUCE: ("reductions", "reductions"),
    CONTRACTION: ("weights", "tensors"),
    SHIFT: ("shifts", "shifts"),
    STRIDE: ("strides", "strides"),
    SPLIT: ("splits", "splits"),
    UNFOLD: ("unfolds", "unfolds"),
    EXPAND: ("repeats", "expands"),
    MERGE: ("merges", "merges"),
}


@dataclass
class Candidates:
    """Generator of candidate steps.

    Attributes:
        spec, sizes, facts: the spec, and the tables of facts about sizes and dims.
        rules: the active rules.
        proposers: for each kind of step, the function that yields the steps of this kind that sizes and windows allow.
    """

    spec: OperatorSpec
    sizes: SizeTable
    facts: FactTable
    rules: RuleSet

    def __post_init__(self) -> None:
        bound = {into for _, into in self.spec.bound_axes}
        free = [size for axis, size in enumerate(self.spec.input_sizes) if axis not in bound]
        self._input = product(free)
        self._most = {kind: getattr(self.spec.occurrences, option) for kind, (_, option) in OPTIONS.items()}
        self._most[CONTRACTION] -= 1  # `tensors` counts the input as well
        self.proposers: dict[StepKind, Callable[[State], Iterator[CandidateStep]]] = {
            REDUCE: self._reductions,
            CONTRACTION: self._contractions,
            SHIFT: self._shifts,
            STRIDE: self._strides,
            SPLIT: self._splits,
            UNFOLD: self._unfolds,
            EXPAND: self._repeats,
            MERGE: self._merges,
        }

    def __call__(self, state: State) -> Iterator[CandidateStep]:
        """Yield every step that options and rules allow, in an order that is the same in all processes."""
        for kind in self.proposers:
            yield from self.of_kind(state, kind)

    def of_kind(self, state: State, kind: StepKind) -> Iterator[CandidateStep]:
        """Yield the steps of one kind that options and rules allow."""
        if self._has_room(state, kind):
            for step in self.proposers[kind](state):
                if self.rules.reject(step) is None:
                    yield step

    def proposed(self, state: State) -> Iterator[CandidateStep]:
        """Yield every step that the options allow, before rules are applied."""
        for kind, propose in self.proposers.items():
            if self._has_room(state, kind):
                yield from propose(state)

    def step(self, state: State, kind: StepKind, on: tuple[Dim, ...] = (), size: Size | None = None) -> CandidateStep:
        """Return the step of this kind on these dims, without checking whether it is allowed."""
        return CandidateStep(self.spec, self.sizes, self.facts, state, kind, on, size)

    def root(self) -> State:
        """Return the initial state: the output's axes except those bound to axes of the input."""
        bound = {out for out, _ in self.spec.bound_axes}
        axes = [dims.output_axis(i, size) for i, size in enumerate(self.spec.output_sizes) if i not in bound]
        return State(tuple(sorted(axes, key=lambda dim: dim.id)), (), Ends(self.sizes.none))

    def _has_room(self, state: State, kind: StepKind) -> bool:
        most = self._most[kind]
        return most is None or getattr(state.ends.counts, OPTIONS[kind][0]) < most

    def _reductions(self, state: State) -> Iterator[CandidateStep]:
        """Yield reductions in ascending order of their sizes, so that each set of reductions is reached on one path only."""
        loops = [dim.size for dim in state.ends.sums]
        pure = len(loops) == state.steps
        if not pure and self.rules.is_on("C1"):
            return
        reached = product(loops)
        options = self.sizes.sizes(self.sizes.none)
        # A sum is not smaller (in the order of the options) than the one before: a multiset of sums is reached once.
        start = max((options.index(size) for size in loops), default=0) if pure else 0
        for size in options[start:]:
            if self.sizes.fits(state.ends.usage, self.sizes.reduced(size)) and self.within_multiple(reached * size):
                yield self.step(state, REDUCE, (), size)

    def within_multiple(self, reached: Size) -> bool:
        """Return whether the product of all reductions, `reached`, is within the limit `reductions: multiple`."""
        return self.sizes[reached / self._input].highest <= self.spec.reductions.multiple

    def _shifts(self, state: State) -> Iterator[CandidateStep]:
        return (self.step(state, SHIFT, (dim,)) for dim in state.data if not self.facts[dim].discards)

    def _strides(self, state: State) -> Iterator[CandidateStep]:
        for factor in self.sizes.sizes(state.ends.usage):
            for dim in state.data:
                strided = self.sizes[dim.size * factor]
                if strided.is_valid and strided.highest <= self.spec.windows.largest_strided:
                    yield self.step(state, STRIDE, (dim,), factor)

    def _splits(self, state: State) -> Iterator[CandidateStep]:
        for major in state.data:
            for minor in state.data:
                if major is not minor and self.sizes[major.size * minor.size].is_valid:
                    yield self.step(state, SPLIT, (major, minor))

    def _unfolds(self, state: State) -> Iterator[CandidateStep]:
        least = self.spec.windows.least_ratio
        windows = [dim for dim in state.data if self.facts[dim].size.can_be_window]
        for position in state.data:
            for window in windows:
                if position is not window and self.sizes[position.size / window.size].lowest >= least:
                    yield self.step(state, UNFOLD, (position, window))

    def _repeats(self, state: State) -> Iterator[CandidateStep]:
        """Yield the Expands that end a piece of a Merge.

        An Expand of the quotient, or of a remainder of a piece, tiles the axis; an Expand of any other remainder repeats each
        element.
        """
        largest, pieces = self.spec.repeats.largest, (Origin.QUOTIENT, Origin.REMAINDER)
        for dim in state.data if largest > 1 else ():
            origin = self.facts[dim].origin
            if origin not in pieces:
                continue
            assert dim.operation is not None
            tiles = origin is Origin.QUOTIENT or self.facts[dim.operation.bottoms[0]].origin in pieces
            if (self.spec.repeats.tile or not tiles) and self.sizes[state.ends.repeats * dim.size].highest <= largest:
                yield self.step(state, EXPAND, (dim,))

    def _merges(self, state: State) -> Iterator[CandidateStep]:
        for dim in state.data:
            for block, used in self.sizes.divisors(dim.size):
                if self.sizes.fits(state.ends.usage, used):
                    yield self.step(state, MERGE, (dim,), block)

    def _contractions(self, state: State) -> Iterator[CandidateStep]:
        """Yield contractions: choices of inner and outer dims. Partial choices that can no longer become a weight are
        pruned.
        """
        usage_now = state.ends.usage
        dims = [dim for dim in state.data if not self.facts[dim].discards]
        dims = [dim for dim in dims if self.sizes.fits(usage_now, self.facts[dim].size.shared)]
        facts = [self.facts[dim] for dim in dims]
        matmul = self.rules.is_on("C5")
        outer_from = [not matmul or any(map(self._has_role, facts[i:])) for i in range(len(facts) + 1)]
        most, least = self.spec.occurrences.shares, 2 if matmul else 1
        room = len(dims) if most is None else most - state.ends.counts.shares

        def choose(
            i: int, picks: tuple[Dim, ...], outer: tuple[Dim, ...], usage: Usage, reached: Size
        ) -> Iterator[CandidateStep]:
            if not outer and not outer_from[i]:
                return
            if i == len(dims):
                if len(picks) >= least:
                    yield CandidateStep(self.spec, self.sizes, self.facts, state, CONTRACTION, picks, None, frozenset(outer))
                return
            yield from choose(i + 1, picks, outer, usage, reached)
            dim, shared = dims[i], facts[i].size.shared
            if len(picks) == room or not self.sizes.fits(usage, shared):
                return
            used = added(usage, shared)
            yield from choose(i + 1, (*picks, dim), outer, used, reached)
            if self.may_be_outer(facts[i], reached * dim.size):
                more_outer = reached * dim.size if facts[i].role is Role.OUTER else reached
                yield from choose(i + 1, (*picks, dim), (*outer, dim), used, more_outer)

        yield from choose(0, (), (), usage_now, state.ends.outer)

    def may_be_outer(self, facts: DimFacts, reached: Size) -> bool:
        """Return whether a weight may end the dim (as an outer dim).

        `reached` is the product of the sizes of all ended dims, including this one.
        """
        options = self.spec.contractions
        if facts.role is Role.OUTER:
            return self.sizes[reached].highest <= options.largest_outer
        if facts.role is Role.LOW_RANK:
            return options.least_low_rank <= facts.size.highest <= options.most_low_rank
        return self._has_role(facts)

    def _has_role(self, facts: DimFacts) -> bool:
        """Return whether any weight can end the dim. A bare sum can only be ended if rule C12 is off."""
        origins = (REDUCE, Origin.QUOTIENT, Origin.REMAINDER)
        bare = facts.origin in origins and facts.only_sums and not facts.tags
        return facts.role is not Role.INNER or (bare and not self.rules.is_on("C12"))
