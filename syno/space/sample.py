"""Random sampling of operators without replacement."""

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
    """Return every (state, step) pair on any path from the root to the operator, without duplicates.

    Raises UnreachableError, as `reach` does, if there is no path.
    """
    check_shapes(space.spec, operator)
    steps = dict[tuple[State, str], Step]()
    for graph in weight_orders(operator):
        steps |= _AllOrders(space, graph).collected()
    if not steps:
        reach(space, operator)
    return [(state, step) for (state, _), step in steps.items()]


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
        for path_step in start[1]:
            self.steps[before, path_step.step.id] = path_step.step
            before = path_step.state
        return self.steps

    def _collect(self, state: State) -> bool:
        """Collect the steps on paths from `state` to the operator; return whether any path exists."""
        if state not in self._leads:
            candidates = list(self.following(state))
            taken = [(candidate, after) for candidate in candidates if (after := self.take(candidate, check=True)) is not None]
            steps = [Step(candidate.kind.name, candidate.id, after) for candidate, after in taken if self._collect(after)]
            if not candidates and set(state.data) <= set(self.operator.input):
                last = self.last(state)
                steps = [] if last is None else [last.step]
            self.steps |= {(state, step.id): step for step in steps}
            self._leads[state] = bool(steps)
        return self._leads[state]


LEAST_WALKS, WALKS_EACH = 1000, 100  # walks after which `sample` gives up: in all, and for each operator


def never() -> bool:
    """Return False: a walk is never aborted. This is the default of `Sampler.draw`."""
    return False


@dataclass
class Sampler:
    """Random walks without replacement: operators that were drawn, and dead ends, are not visited again.

    Attributes:
        space: the space to walk in.
        random: the generator of random numbers.
        by_kind: whether each step is drawn in two stages: first its kind, then a step of this kind; False: uniformly from all
            steps.
        operators: the operators drawn, in order; of those given at first, other forms are not drawn either.
        walks: number of walks so far.
        dead_ends: number of walks that met a state from which no step leads to an operator.
        duplicates: number of walks that ended in another form of an operator that was drawn before.
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
        """Walk once. Return a new operator, or None after a dead end or a duplicate, or if the space is exhausted.

        `is_over` is called before each step. Once it returns True, the walk is aborted and not counted.
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
        """Whether every operator was drawn."""
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
    """Return random operators of a space, without duplicates. Equal arguments give equal operators.

    >>> from syno import Space, preset, sample
    >>> space = Space(preset("resnet18").with_(depth=4))
    >>> [operator.name for operator in sample(space, 3, seed=1)]
    ['resnet18_1', 'resnet18_2', 'resnet18_3']

    Args:
        space: the space. It caches dead ends, so that the next call is faster.
        count: the number of operators. The list is shorter if the space holds fewer, or if the walks do not suffice.
        seed: seed of the random walks.
        most_walks: the largest number of walks; None for 1,000, and 100 for each operator. In most spaces every other walk
            finds an operator; the limit is for spaces in which nearly all walks meet dead ends.

    Raises SpecError if `count` is below 0, if the space is empty, or if no walk found an operator; the message says what helps.
    """
    if count < 0:
        raise SpecError(f"count is {count}; give 0 or more operators to draw")
    if not count:
        return []
    check_not_empty(space)
    limit = LEAST_WALKS + WALKS_EACH * count if most_walks is None else most_walks
    sampler, name = Sampler(space, Random(seed)), name_from(space.spec.name)
    operators: list[PGraph] = []
    while len(operators) < count and sampler.walks < limit and not sampler.is_exhausted:
        operator = sampler.draw()
        if operator is not None:
            operators.append(operator.renamed(f"{name}_{len(operators) + 1}"))
    if operators:
        return operators
    if sampler.is_exhausted:
        raise SpecError(why_empty(space.spec))
    raise SpecError(
        f'{sampler.walks} random walks in the space "{space.spec.name}" found no operator; give more walks (most_walks), or a '
        "wider space: more depth, a larger budget, or less that is required (reads)"
    )
