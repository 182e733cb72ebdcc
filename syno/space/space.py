"""The space of operators under one spec: states, the steps between them, and complete operators.

>>> space = Space(paper("resnet18").with_(depth=4))
>>> len(list(space.enumerate()))
36
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property, partial
from random import Random

from syno.algebra import Valuation
from syno.ir.graph import PGraph
from syno.space.candidates import Candidates
from syno.space.complete import Completion
from syno.space.distance.feasibility import Feasibility
from syno.space.facts import FactTable
from syno.space.identity.fingerprint import fingerprint
from syno.space.identity.valuations import Comparison
from syno.space.rules import RuleSet
from syno.space.rules.symmetry import mirrors, rolled_axes
from syno.space.rules.table import FINALIZE, Candidate
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.steps import Draft, Step, finalize, step_id

LOOK_AHEAD = 2  # steps; 1 lets walks meet a third more dead ends, 3 takes longer than it saves


class Space:
    """All operators that a spec allows, reached step by step from the output up.

    Everything here is a function of the spec: what is remembered makes it faster, and changes no answer.
    """

    def __init__(self, spec: OperatorSpec, *, use_distance: bool = True) -> None:
        self.spec = spec
        self.sizes = SizeTable(spec)
        self.facts = FactTable(spec, self.sizes)
        self.rules = RuleSet(spec.rules_off, spec.rules_on)
        self.candidates = Candidates(spec, self.sizes, self.facts, self.rules)
        self.completion = Completion(spec, self.sizes, self.facts, self.rules)
        self.look_ahead = LOOK_AHEAD if use_distance else 0
        self.is_feasible = Feasibility(self.candidates, self.completion, use_distance=use_distance)
        self._steps: dict[State, tuple[Step, ...]] = {}
        self._alive: dict[tuple[State, int], bool] = {}
        self._looked: dict[State, dict[str, Step | None]] = {}  # by the id of the step; of nodes whose steps are not all known

    @property
    def id(self) -> str:
        """Content id: that of the spec."""
        return self.spec.id

    @cached_property
    def root(self) -> State:
        """The output's axes."""
        return self.candidates.root()

    def distance_of(self, state: State, most: int | None = None) -> int:
        """How many more primitives the state needs at least; UNREACHABLE if that is above `most` (the depth left)."""
        return self.is_feasible.distance_of(state, most)

    def name(self, node: Hashable) -> str:
        """Content id of a state or an operator, the same in every process."""
        assert isinstance(node, State | PGraph)
        return node.id

    def fingerprint(self, operator: PGraph) -> str:
        """Equal for operators that mean the same, as far as this space tells them apart (`syno.space.identity`).

        All are compared at the same two valuations, at which the usual sizes are whole numbers. One with other sizes is
        evaluated without them if they do not matter (`syno.space.identity.fusing`), else at two larger valuations for all such
        operators; where those are too large, at that of the two, or at those of its own, at which its sizes are whole.
        """
        operator, valuations = self._comparison(operator)
        rolled = rolled_axes(self.spec) if self.rules.is_on("S1") else ((), ())
        return fingerprint(
            operator,
            unordered_output=self.spec.unordered_output,
            unordered_input=self.spec.unordered_input,
            rolled_output=rolled[0],
            rolled_input=rolled[1],
            mirrors=list(mirrors(self.spec)) if self.rules.is_on("S2") else [],
            valuations=valuations,
        )

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

    def is_alive(self, state: State, ahead: int | None = None) -> bool:
        """Whether the state is an operator, or so many steps lead on from it: dead ends this near are never walked into."""
        ahead = self.look_ahead if ahead is None else ahead
        if not ahead:
            return True
        found = self._alive.get((state, ahead))
        if found is None:
            found = bool(self.operators(state)) or any(self.is_alive(child, ahead - 1) for _, child in self.children(state))
            self._alive[state, ahead] = found
        return found

    def steps(self, node: Hashable) -> tuple[Step, ...]:
        """All steps from a node that lead on, in an order that is the same in every process; none from an operator."""
        if not isinstance(node, State):
            return ()
        known = self._steps.get(node)
        if known is None:
            taken = [Step(c.kind, step_id(c), child) for c, child in self.children(node) if self.is_alive(child)]
            known = self._steps[node] = (*taken, *map(finalize, self.operators(node)))
            self._looked.pop(node, None)
        return known

    def drafts(self, node: Hashable) -> Iterator[Draft]:
        """What may be a step from a node: those of `steps`, and others, of which nothing is known until somebody looks."""
        if not isinstance(node, State):
            return
        for step in self._steps[node] if node in self._steps else map(finalize, self.operators(node)):
            yield Draft(step.kind, step.id, step.itself)
        if node not in self._steps and node.steps < self.spec.depth:
            for candidate in self.candidates(node):
                id_ = step_id(candidate)
                yield Draft(candidate.kind, id_, partial(self._look, node, candidate, id_))

    def _look(self, node: State, candidate: Candidate, id_: str) -> Step | None:
        """The step, if it leads on."""
        looked = self._looked.setdefault(node, {})
        if id_ not in looked:
            child = self.candidates.take(candidate)
            leads_on = self.is_feasible(child) and self.is_alive(child)
            looked[id_] = Step(candidate.kind, id_, child) if leads_on else None
        return looked[id_]

    def step(self, node: Hashable, kind: str, id_: str) -> Step | None:
        """The step of this kind and id from a node on the path of an operator; None if the options allow none.

        What becomes of the steps beside it is not looked at, which is what takes `steps` so long.
        """
        if not isinstance(node, State):
            return None
        if kind == FINALIZE:
            return next((step for step in map(finalize, self.operators(node)) if step.id == id_), None)
        if node in self._steps:
            return next((step for step in self._steps[node] if step.kind == kind and step.id == id_), None)
        for candidate in self.candidates.proposed(node):  # without the rules, which count what they reject
            if candidate.kind == kind and step_id(candidate) == id_:
                return Step(kind, id_, self.candidates.take(candidate))
        return None

    def walk(self, node: Hashable, random: Random, *, by_kind: bool = True) -> tuple[Step, ...] | None:
        """A random completion below the node: the steps to take, ending in a Finalize; None if the walk met a dead end.

        Each step is drawn with equal chances among the kinds of steps that can be taken and then among those of the
        kind, or, without `by_kind`, among all. The walk depends on the state of `random` alone.
        """
        path: list[Step] = []
        while isinstance(node, State):
            step = self.drawn(node, random, by_kind=by_kind)
            if step is None:
                return None
            path.append(step)
            node = step.node
        return tuple(path)

    def drawn(
        self, state: State, random: Random, *, by_kind: bool, without: frozenset[Hashable] | set[Hashable] = frozenset()
    ) -> Step | None:
        """One of the steps by chance, those to nodes in `without` left out; None if there is none.

        Steps are tried in random order until one leads on, which is cheaper than trying all.
        """
        waiting: dict[str, list[Candidate | PGraph]] = {}
        for operator in self.operators(state):
            waiting.setdefault(FINALIZE if by_kind else "", []).append(operator)
        if state.steps < self.spec.depth:
            for candidate in self.candidates(state):
                waiting.setdefault(candidate.kind if by_kind else "", []).append(candidate)
        while waiting:
            kind = random.choice(list(waiting))
            chosen = _taken_out(waiting[kind], random)
            if not waiting[kind]:
                del waiting[kind]
            if isinstance(chosen, PGraph):
                if chosen not in without:
                    return finalize(chosen)
                continue
            child = self.candidates.take(chosen)
            if child not in without and self.is_feasible(child) and self.is_alive(child):
                return Step(chosen.kind, step_id(chosen), child)
        return None

    def enumerate(self) -> Iterator[tuple[int, PGraph]]:
        """Every operator, with its number of primitives; those with fewest first."""
        frontier = [self.root]
        for size in range(self.spec.depth + 1):
            above: dict[State, None] = {}
            for state in frontier:
                for operator in self.operators(state):
                    yield size, operator
                above.update((child, None) for _, child in self.children(state))
            frontier = list(above)

    def path(self, operator: PGraph) -> tuple[Step, ...]:
        """The steps to a known operator. UnreachableError names what excludes it, if it is not in the space."""
        from syno.space.reach import reach  # reach builds on this module

        return tuple(stage.step for stage in reach(self, operator))

    @cached_property
    def _comparison(self) -> Comparison:
        return Comparison(self.spec, self.sizes, self.completion.wanted)

    @property
    def _tiny(self) -> tuple[Valuation, ...]:
        return self._comparison.usual


def _taken_out(options: list[Candidate | PGraph], random: Random) -> Candidate | PGraph:
    place = random.randrange(len(options))
    options[place], options[-1] = options[-1], options[place]
    return options.pop()
