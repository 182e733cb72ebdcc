"""Random sampling of operators, each once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from random import Random

from syno.base.errors import SpecError
from syno.base.files import name_from
from syno.ir.graph import PGraph
from syno.ir.rewriting import weight_orders
from syno.space.identity.agreement import Distinct
from syno.space.reach import StepOrders, check_shapes, reach
from syno.space.space import Space
from syno.space.state import State
from syno.space.state_graph import StateGraph, check_not_empty, why_empty
from syno.space.steps import Step


def all_orders(space: StateGraph, operator: PGraph) -> list[tuple[State, Step]]:
    """Return every step that lies on some path from the root to the operator, with the state before it, each once.

    Raises UnreachableError, as `reach` does, if there is none.
    """
    check_shapes(space.spec, operator)
    found = dict[tuple[State, str], Step]()
    for graph in weight_orders(operator):
        found |= _AllOrders(space, graph).collected()
    if not found:
        reach(space, operator)
    return [(state, step) for (state, _), step in found.items()]


@dataclass
class _AllOrders(StepOrders):
    """The search for all orders of one operator's steps.

    Attributes:
        steps: the steps found, by the state before them and their id.
    """

    steps: dict[tuple[State, str], Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._leads: dict[State, bool] = {}

    def collected(self) -> dict[tuple[State, str], Step]:
        """Return the steps of all orders that the space accepts, by the state before them and their id."""
        start = self.begin()
        if start is None or not self._collect(start[0]):
            return {}
        before = self.space.root
        for one in start[1]:
            self.steps[before, one.step.id] = one.step
            before = one.state
        return self.steps

    def _collect(self, state: State) -> bool:
        """Collect the steps from `state` on that lead to the operator; return whether there are any."""
        if state not in self._leads:
            candidates = list(self.following(state))
            taken = [(one, after) for one in candidates if (after := self.take(one, check=True)) is not None]
            steps = [Step(one.kind.name, one.id, after) for one, after in taken if self._collect(after)]
            if not candidates and set(state.data) <= set(self.operator.input):
                last = self.last(state)
                steps = [] if last is None else [last.step]
            self.steps |= {(state, step.id): step for step in steps}
            self._leads[state] = bool(steps)
        return self._leads[state]


LEAST_WALKS, WALKS_EACH = 1000, 100  # walks after which `sample` gives up: in all, and for each operator


def never() -> bool:
    """Return False: no walk is given up."""
    return False


@dataclass
class Sampler:
    """Random walks that find each operator once. Found operators and dead ends are not drawn again.

    Attributes:
        space: the space to walk in.
        random: the source of random numbers.
        by_kind: whether a step's kind is drawn first, then one of the kind; else one of all steps.
        operators: the operators found, in order; of those given first, other forms are not found.
        walks: walks so far.
        dead_ends: walks that met a state from which no step leads to an operator.
        duplicates: walks that ended in another form of an operator found before.
    """

    space: Space
    random: Random
    by_kind: bool = True
    operators: Distinct = field(default=None)  # type: ignore[assignment]  # by default none
    walks: int = 0
    dead_ends: int = 0
    duplicates: int = 0
    _done: set[Hashable] = field(default_factory=set)
    _done_by_guide: set[Hashable] = field(default_factory=set)  # where nothing is left that the guide reaches
    _met: set[Hashable] = field(default_factory=set)  # states from which some operator was found

    def __post_init__(self) -> None:
        self.operators = self.operators if self.operators is not None else self.space.distinct()

    def draw(self, is_over: Callable[[], bool] = never) -> PGraph | None:
        """Walk once. Return an operator not found before, or None: a dead end, a duplicate, or nothing left.

        `is_over` is called before each step. Once it returns True, the walk is given up and not counted.
        """
        if self.is_exhausted:
            return None
        self.walks += 1
        space, done = self.space.guided(self.random, self.space.root), self._done
        if space is not self.space:
            space, done = (space, self._done_by_guide) if space.root not in self._done_by_guide else (self.space, done)
        path: list[State] = [self.space.root]
        while path:
            if is_over():
                self.walks -= 1
                return None
            step = space.drawn(path[-1], self.random, by_kind=self.by_kind, without=done)
            if step is not None and isinstance(step.node, State):
                path.append(step.node)
            elif step is not None:
                return self._record_operator(step, path)
            else:
                state = path.pop()
                done.add(state)
                if state not in self._met:
                    self.dead_ends += 1
                    return None
        return None

    def know(self, operator: PGraph) -> None:
        """Record an operator as drawn, so that its other forms count as duplicates."""
        self.operators.add(operator)
        self._done.add(operator)
        self._done_by_guide.add(operator)

    @property
    def is_exhausted(self) -> bool:
        """Return whether every operator was found."""
        return self.space.root in self._done

    @property
    def valid_share(self) -> float:
        """The share of walks that ended in an operator."""
        return 1 - self.dead_ends / self.walks if self.walks else 1.0

    def _record_operator(self, step: Step, path: list[State]) -> PGraph | None:
        assert step.operator is not None
        self._done.add(step.operator)
        self._done_by_guide.add(step.operator)
        self._met.update(path)
        if self.operators.add(step.operator):
            return step.operator
        self.duplicates += 1
        return None


def sample(space: Space, count: int, *, seed: int = 0, most_walks: int | None = None) -> list[PGraph]:
    """Return random operators of a space. No two of them mean the same. Equal arguments give equal operators.

    >>> from syno import Space, preset, sample
    >>> space = Space(preset("resnet18").with_(depth=4))
    >>> [operator.name for operator in sample(space, 3, seed=1)]
    ['resnet18_1', 'resnet18_2', 'resnet18_3']

    Args:
        space: the space. What it learns about its dead ends makes the next call faster.
        count: the number of operators. The list is shorter if the space holds fewer, or if the walks do not suffice.
        seed: seed of the random walks.
        most_walks: the largest number of walks; None for 100 for each operator and 1,000 more. Most spaces give an operator in
            every other walk; the limit is for those in which nearly all walks meet dead ends.

    Raises SpecError if `count` is below 0, if the space is empty, or if no walk found an operator; the message says what helps.
    """
    if count < 0:
        raise SpecError(f"count is {count}; give 0 or more operators to draw")
    if not count:
        return []
    check_not_empty(space)
    limit = LEAST_WALKS + WALKS_EACH * count if most_walks is None else most_walks
    sampler, name = Sampler(space, Random(seed)), name_from(space.spec.name)
    found: list[PGraph] = []
    while len(found) < count and sampler.walks < limit and not sampler.is_exhausted:
        operator = sampler.draw()
        if operator is not None:
            found.append(operator.renamed(f"{name}_{len(found) + 1}"))
    if found:
        return found
    if sampler.is_exhausted:
        raise SpecError(why_empty(space.spec))
    raise SpecError(
        f'{sampler.walks} random walks in the space "{space.spec.name}" found no operator; give more walks (most_walks), or a '
        "wider space: more depth, a larger budget, or less that is required (reads)"
    )
