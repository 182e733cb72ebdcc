"""All orders in which a space allows the steps to one operator."""

from __future__ import annotations

from dataclasses import dataclass, field

from syno.ir.graph import PGraph
from syno.ir.rewriting import weight_orders
from syno.space.reach import StepOrders, check_shapes, reach
from syno.space.state import State
from syno.space.state_graph import StateGraph
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
            steps = [Step(one.kind, one.id, after) for one, after in taken if self._collect(after)]
            if not candidates and set(state.data) <= set(self.operator.input):
                last = self.last(state)
                steps = [] if last is None else [last.step]
            self.steps |= {(state, step.id): step for step in steps}
            self._leads[state] = bool(steps)
        return self._leads[state]
