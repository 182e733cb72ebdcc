"""Paths to known operators: the steps to an operator, or the reason why a space does not contain it.

Independent primitives can be added in any order. `reach` searches for an order that the rules accept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from syno.algebra import Size
from syno.base.errors import UnreachableError
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, REDUCE, SHARE
from syno.ir.rewriting import normal_form, weight_orders
from syno.space.distance.search import CheapestAssignment
from syno.space.refusal import described, why_infeasible, why_not_offered, why_rejected
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.state_graph import StateGraph
from syno.space.steps import CONTRACTION, CandidateStep, Step

# Rules that reject an order of independent steps but no operator: reported only if no other reason excludes the operator.
ORDER_RULES = ("rule C7", "rule C8")


@dataclass(frozen=True)
class PathStep:
    """A step on the path to an operator, with the shape distance after it.

    Attributes:
        step: the step.
        candidate: the step with the dims that it builds on.
        state: the state after it; for the last step, which completes the operator, the state before it.
        distance: the shape distance of `state`.
        left: number of primitives that may still be added.
        cheapest: the cheapest assignment of the axes of `state`; None while further reductions follow.
    """

    step: Step
    candidate: CandidateStep
    state: State
    distance: int
    left: int
    cheapest: CheapestAssignment | None


def reach(space: StateGraph, operator: PGraph) -> list[PathStep]:
    """Return the steps from the root of a space to the operator.

    Raises:
        UnreachableError: the space does not contain it; the message names the rule, option or bound that excludes it.
    """
    check_shapes(space.spec, operator)
    if (lack := space.completion.requirements.unmet(operator)) is not None:
        raise UnreachableError(f"{operator.name} is not in the space {space.spec.name}: {lack}")
    refusals: list[tuple[int, str]] = []
    for graph in weight_orders(operator):
        orders = StepOrders(space, graph)
        path = orders.find()
        if path is not None:
            return path
        refusals += orders.refusals
    # Report the refusal of the longest path. A refused order says little if there is any other reason.
    furthest = max(refusals, key=lambda refusal: (not refusal[1].split(": ", 1)[-1].startswith(ORDER_RULES), refusal[0]))
    raise UnreachableError(f"{operator.name} is not in the space {space.spec.name}: {furthest[1]}")


def check_shapes(spec: OperatorSpec, operator: PGraph) -> None:
    """Raise UnreachableError if the operator's variables, axes or bound axes differ from the spec's."""
    for name, variable in operator.variables.items():
        if spec.table.get(name) != variable:
            raise UnreachableError(
                f'{operator.name} has the {variable.kind.value} variable "{name}", the space {spec.name} has {spec.table}; '
                "rename the operator's variables to those"
            )
    for title, dims, sizes in (("output", operator.output, spec.output_sizes), ("input", operator.input, spec.input_sizes)):
        own = [dim.size for dim in dims]
        if len(own) != len(sizes) or any(a is not b for a, b in zip(own, sizes, strict=True)):
            raise UnreachableError(
                f"{operator.name} has {title} [{', '.join(map(str, own))}], the space {spec.name} has "
                f"[{', '.join(map(str, sizes))}]; variables must have the same names and kinds"
            )
    for out, into in spec.bound_axes:
        if operator.input[into] is not operator.output[out]:
            raise UnreachableError(
                f"{operator.name}: input axis {into} is not output axis {out}, which the space {spec.name} binds (bound_axes)"
            )


@dataclass
class StepOrders:
    """The depth-first search for an order of one operator's steps that a space accepts.

    Attributes:
        refusals: reasons why steps were refused, each with the number of primitives before the step.
    """

    space: StateGraph
    operator: PGraph
    refusals: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.expanded = set(self.operator.expansions)
        self.operations = [o for o in self.operator.operations if o.primitive is not SHARE and not _is_part(o)]
        self.failed: set[State] = set()

    def find(self) -> list[PathStep] | None:
        """Return the steps in the first order that the space accepts; None if it accepts none."""
        start = self.begin()
        return None if start is None else self._onwards(*start)

    def begin(self) -> tuple[State, list[PathStep]] | None:
        """Return the state after the operator's reductions, which come first, and the steps to it.

        None if the space refuses one of the reductions.
        """
        state, path = self.space.root, list[PathStep]()
        for dim in sorted(self.operator.reduces, key=self._sum_order):
            candidate = self.space.candidates.step(state, REDUCE, (), dim.size)
            after = self.take(candidate, check=False)
            if after is None:
                return None
            state = after
            path.append(self._path_step(candidate, state))
        if state.steps and not self.space.is_feasible(state):
            self._refuse(state, why_infeasible(self.space.feasibility, state))
            return None
        return state, path

    def _sum_order(self, dim: Dim) -> tuple[int, str]:
        options = self.space.sizes.sizes(self.space.sizes.none)
        return (options.index(dim.size) if dim.size in options else len(options), dim.id)

    def _onwards(self, state: State, path: list[PathStep]) -> list[PathStep] | None:
        if state in self.failed:
            return None
        candidates = list(self.following(state))
        if not candidates:
            if not set(state.data) <= set(self.operator.input):
                return None  # with this order of weights, each waits for another
            last = self.last(state)
            return None if last is None else [*path, last]
        for candidate in candidates:
            after = self.take(candidate, check=True)
            if after is not None:
                longer = self._onwards(after, [*path, self._path_step(candidate, after)])
                if longer is not None:
                    return longer
        self.failed.add(state)
        return None

    def following(self, state: State) -> Iterator[CandidateStep]:
        """Yield the operator's next possible steps: those whose dims are all in the state."""
        live, weight = set(state.data), state.ends.counts.weights
        if weight < len(self.operator.weights):
            shares = [axis.operation for axis in self.operator.weights[weight] if axis.operation is not None]
            dims = {share.bottoms[0] for share in shares}
            if dims <= live:
                step = self.space.candidates.step(state, CONTRACTION, tuple(dim for dim in state.data if dim in dims))
                step.outer = frozenset(share.bottoms[0] for share in shares if share.tops[0] in self.expanded)
                yield step
        for operation in self.operations:
            if live.issuperset(operation.bottoms):
                size = operation.parameter if isinstance(operation.parameter, Size) else None
                yield self.space.candidates.step(state, operation.primitive, operation.bottoms, size)

    def take(self, step: CandidateStep, *, check: bool) -> State | None:
        """Return the state after the step; None if the space refuses the step, with the reason added to `refusals`."""
        space, state = self.space, step.state
        reason = why_not_offered(space.candidates, step) or why_rejected(space.rules, step)
        if reason is None:
            after = step.taken()
            if not check or space.is_feasible(after):
                return after
            state, reason = after, why_infeasible(space.feasibility, after)
        self._refuse(state, f"{described(step)}: {reason}")
        return None

    def _refuse(self, state: State, reason: str) -> None:
        self.refusals.append((state.steps, reason))

    def last(self, state: State) -> PathStep | None:
        """Return the Finalize step to the operator; None if the space refuses it, with the reason added to `refusals`."""
        reason = self._why_incomplete(state)
        if reason is not None:
            self._refuse(state, reason)
            return None
        completion, axes = self.space.completion, self.operator.input
        step = Step.finalize(normal_form(completion.operator(state, axes)))
        return PathStep(step, completion.candidate(state, axes), state, 0, self.space.spec.depth - state.steps, None)

    def _why_incomplete(self, state: State) -> str | None:
        """Return the option, rule or bound that excludes the complete operator, in words; None if there is none."""
        space, completion = self.space, self.space.completion
        if not state.ends.counts.weights:
            return "it has no weight, and an operator has at least one"
        if any(space.facts[dim].discards for dim in state.data):
            return "an axis of the input skips elements, and only a window may follow (Stride)"
        rejected = why_rejected(space.rules, completion.candidate(state, self.operator.input))
        if rejected is not None:
            return rejected
        complete = completion.operator(state, self.operator.input)
        if (excess := completion.excess(completion.cost(complete))) is not None:
            return f"the model with it has {excess}"
        if (ahead := completion.leak(complete)) is not None:
            return f"it reads ahead (causal): {ahead}"
        if normal_form(complete) not in space.operators(state):
            most = space.spec.finalizations
            return f"{most} others differ from it in which axis of the input is which (finalizations is {most})"
        return None

    def _path_step(self, candidate: CandidateStep, state: State) -> PathStep:
        space, left = self.space, self.space.spec.depth - state.steps
        step, cheapest = Step(candidate.kind.name, candidate.id, state), space.feasibility.cheapest(state)
        return PathStep(step, candidate, state, space.distance_of(state), left, cheapest)


def _is_part(operation: Operation) -> bool:
    """Return whether an operation is part of another step, not a step itself: a reduction, or an Expand in a contraction."""
    if operation.primitive is REDUCE:
        return True
    below = operation.bottoms[0].operation
    return operation.primitive is EXPAND and below is not None and below.primitive is SHARE
