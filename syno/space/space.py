"""The space of operators under one spec, as a search uses it: steps by id, random walks, paths, fingerprints."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property, partial
from random import Random
from typing import Any

from syno.ir.graph import PGraph
from syno.space.candidates import Branch, taken_out
from syno.space.identity.agreement import Distinct
from syno.space.identity.fingerprint import fingerprint, glance
from syno.space.identity.valuations import ComparisonValuations
from syno.space.reach import reach
from syno.space.rules.symmetry import mirrors, rolled_axes
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.state_graph import StateGraph
from syno.space.steps import FINALIZE, Draft, Step, StepKind

LOOK_AHEAD = 2  # steps; 1 lets walks meet a third more dead ends, 3 takes longer than it saves
WITH_REQUIREMENTS = 3  # with `reads`: dead ends are more frequent, so a longer look-ahead pays


class Space(StateGraph):
    """All operators that a spec allows, built step by step from the output up.

    All results are functions of the spec: caches make a space faster but change no result.

    >>> from syno import Space, preset
    >>> len(list(Space(preset("resnet18").with_(depth=4)).enumerate()))
    36

    Args:
        spec: the spec of the search.
        use_distance: whether to prune states that the spec's shape distance excludes, and dead ends a few steps ahead.
        is_guide: whether to reach only operators that meet the reading requirement in a usual way; see `guide`.
        like: another space of this spec, whose caches are shared.
    """

    # The share of walks in the whole space, so that every operator can be found. Walks that keep to the guide find
    # operators that meet a requirement 2 to 4 times as fast.
    unguided = 1 / 32

    def __init__(
        self, spec: OperatorSpec, *, use_distance: bool = True, is_guide: bool = False, like: Space | None = None
    ) -> None:
        super().__init__(spec, use_distance=use_distance, is_guide=is_guide, like=like)
        self.is_guide = is_guide
        self.look_ahead = 0 if self.feasibility.kind == "none" else LOOK_AHEAD if spec.reads is None else WITH_REQUIREMENTS
        self._steps: dict[State, tuple[Step, ...]] = {}
        self._alive: dict[tuple[State, int], bool] = {}
        self._looks_taken: dict[State, dict[str, Step | None]] = {}  # steps by id, for nodes whose steps are not all evaluated

    @property
    def id(self) -> str:
        """Content id of the space's spec."""
        return self.spec.id

    def name(self, node: Hashable) -> str:
        """Return the content id of a state or an operator, the same in all processes."""
        assert isinstance(node, State | PGraph)
        return node.id

    def fingerprint(self, operator: PGraph) -> str:
        """Return a name that is equal for operators that compute the same function, as far as this space can tell.

        All operators are compared at the same two valuations, at which the usual sizes are whole numbers. Operators with other
        sizes are rewritten without them if possible (`syno.space.identity.valuations`), else evaluated at two larger
        valuations. If those are too large, whichever of the two usual valuations fit are used, or valuations of the operator's
        own.
        """
        return fingerprint(**self._fingerprint_arguments(operator))

    def distinct(self, operators: Iterable[PGraph] = ()) -> Distinct:
        """Return a collection of operators of this space with pairwise different fingerprints."""
        return Distinct(lambda operator: glance(**self._fingerprint_arguments(operator)), self.fingerprint, operators)

    def _fingerprint_arguments(self, operator: PGraph) -> dict[str, Any]:
        """Return the arguments of `fingerprint` and `glance` for an operator of this space."""
        operator, valuations = self._comparison(operator)
        rolled = rolled_axes(self.spec) if self.rules.is_on("S1") else ((), ())
        return {
            "graph": operator,
            "unordered_output": self.spec.unordered_output,
            "unordered_input": self.spec.unordered_input,
            "rolled_output": rolled[0],
            "rolled_input": rolled[1],
            "mirrors": list(mirrors(self.spec)) if self.rules.is_on("S2") else [],
            "valuations": valuations,
        }

    def is_alive(self, state: State, ahead: int | None = None) -> bool:
        """Return whether the state is an operator, or `ahead` further steps are possible from it (default: `look_ahead`)."""
        ahead = self.look_ahead if ahead is None else ahead
        if not ahead:
            return True
        is_alive = self._alive.get((state, ahead))
        if is_alive is None:
            is_alive = self._alive[state, ahead] = bool(self.operators(state)) or any(
                (child := branch.child(self.feasibility.after)) is not None and self.is_alive(child, ahead - 1)
                for branch in self.branches(state).likely_first()
            )
        return is_alive

    def steps(self, node: Hashable) -> tuple[Step, ...]:
        """Return all steps from a node that lead to operators as far as known, in an order that is the same in all
        processes.
        """
        if not isinstance(node, State):
            return ()
        known = self._steps.get(node)
        if known is None:
            taken = [Step(c.kind.name, c.id, child) for c, child in self.children(node) if self.is_alive(child)]
            known = self._steps[node] = (*taken, *map(Step.finalize, self.operators(node)))
            self._looks_taken.pop(node, None)
        return known

    def drafts(self, node: Hashable) -> Iterator[Draft]:
        """Yield drafts of the steps from a node: a superset of `steps`, some of which may lead to dead ends."""
        if not isinstance(node, State):
            return
        for step in self._steps[node] if node in self._steps else map(Step.finalize, self.operators(node)):
            yield Draft(step.kind, step.id, step.itself)
        if node not in self._steps:
            for branch in self.branches(node):
                yield Draft(branch.candidate.kind.name, branch.id, partial(self._look, node, branch))

    def _look(self, node: State, branch: Branch) -> Step | None:
        """Return a branch of a node as a step, or None if it is a dead end. Cached."""
        looked = self._looks_taken.setdefault(node, {})
        if branch.id not in looked:
            looked[branch.id] = self._leading_on(branch)
        return looked[branch.id]

    def _leading_on(self, branch: Branch, without: frozenset[Hashable] | set[Hashable] = frozenset()) -> Step | None:
        child = branch.child(self.feasibility.after)
        leads_on = child is not None and child not in without and self.is_alive(child)
        return Step(branch.candidate.kind.name, branch.id, child) if leads_on else None

    def step(self, node: Hashable, kind: str, id_: str) -> Step | None:
        """Return the step with this kind (its name) and id from a node on the path of an operator; None if there is none.

        Unlike `steps`, which is slow, it does not evaluate the other steps of the node.
        """
        if not isinstance(node, State):
            return None
        if kind == FINALIZE.name:
            return next((step for step in map(Step.finalize, self.operators(node)) if step.id == id_), None)
        if node in self._steps:
            return next((step for step in self._steps[node] if step.kind == kind and step.id == id_), None)
        # Rules are not checked again: they would count rejections, and they accepted the step when the path was made.
        for candidate in self.candidates.proposed(node):
            if candidate.kind.name == kind and candidate.id == id_:
                return Step(kind, id_, candidate.taken())
        return None

    def enumerate(self, *, distinct: bool = False) -> Iterator[tuple[int, PGraph]]:
        """Yield every operator with its number of primitives, in ascending order of that number.

        Args:
            distinct: whether to skip operators with the fingerprint of an earlier operator. This stores 16 bytes for each
                operator.
        """
        seen: set[bytes] = set()
        frontier = [self.root]
        for size in range(self.spec.depth + 1):
            above: dict[State, None] = {}
            for state in frontier:
                for operator in self.operators(state):
                    if distinct:
                        name = bytes.fromhex(self.fingerprint(operator))
                        if name in seen:
                            continue
                        seen.add(name)
                    yield size, operator
                above.update((child, None) for _, child in self.children(state))
            frontier = list(above)

    def path(self, operator: PGraph) -> tuple[Step, ...]:
        """Return the steps from the root to a known operator.

        Raises:
            UnreachableError: the operator is not in the space; the message names the rule, option or bound that excludes it.
        """
        return tuple(path_step.step for path_step in reach(self, operator))

    def walk(self, node: Hashable, random: Random, *, by_kind: bool = True) -> tuple[Step, ...] | None:
        """Return the steps of a random completion below the node, which end in a Finalize; None if the walk met a dead end.

        With `by_kind`, each step is drawn in two stages: first uniformly among the possible kinds, then among the steps of this
        kind; otherwise uniformly among all steps. The walk depends only on the state of `random`. If the spec has a reading
        requirement, most walks keep to the `guide`.
        """
        path: list[Step] = []
        space = self.guided(random, node)
        while isinstance(node, State):
            step = space.drawn(node, random, by_kind=by_kind)
            if step is None:
                return None
            path.append(step)
            node = step.node
        return tuple(path)

    def drawn(
        self, state: State, random: Random, *, by_kind: bool, without: frozenset[Hashable] | set[Hashable] = frozenset()
    ) -> Step | None:
        """Return a random step that is no dead end and whose node is not in `without`; None if there is none.

        Steps are tried in random order until one is feasible, which is cheaper than evaluating all.
        """
        branches = self.branches(state)
        waiting: dict[StepKind, list[Branch | PGraph]] = {FINALIZE: [*branches.operators]} if branches.operators else {}
        waiting.update(branches.by_kind())
        if not by_kind and waiting:
            waiting = {
                FINALIZE: [option for options in waiting.values() for option in options]
            }  # all steps in one list, as if of one kind
        while waiting:
            kind = random.choice(list(waiting))
            chosen = taken_out(waiting[kind], random)
            if not waiting[kind]:
                del waiting[kind]
            if isinstance(chosen, PGraph):
                if chosen not in without:
                    return Step.finalize(chosen)
            elif (step := self._leading_on(chosen, without)) is not None:
                return step
        return None

    def guided(self, random: Random, node: Hashable) -> Space:
        """Return the space for a walk from the node: mostly the guide; this space with a small probability, or if the guide
        excludes the node.
        """
        guide = self.guide
        if guide is None or random.random() < self.unguided or not (isinstance(node, State) and guide.is_feasible(node)):
            return self
        return guide

    @cached_property
    def guide(self) -> Space | None:
        """The subspace of operators that meet the reading requirement in a usual way, in which walks succeed sooner.

        `syno.space.distance.reading` defines it as the narrow bound. None without a requirement, or if the subspace is empty.
        """
        reads = self.spec.reads
        if self.is_guide or reads is None or not reads.positions or self.feasibility.kind != "exact":
            return None
        guide = Space(self.spec, is_guide=True, like=self)
        return guide if guide.is_feasible(guide.root) else None

    @cached_property
    def _comparison(self) -> ComparisonValuations:
        return ComparisonValuations(self.spec, self.sizes, self.completion.wanted)
