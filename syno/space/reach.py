"""The way to a known operator, step by step; or what keeps it out of a space.

An operator is the same whatever order independent primitives come in. One order is looked for that the rules accept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from syno.base.errors import UnreachableError
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SHARE, STRIDE
from syno.ir.rewriting import normal_form, weight_orders
from syno.space.distance.axes import UNREACHABLE, Grouping
from syno.space.refusal import why_not_offered
from syno.space.rules.table import CONTRACTION, Candidate
from syno.space.space import Space
from syno.space.state import State
from syno.space.steps import Step, finalize, step_id

ORDER_RULES = ("rule C7", "rule C8")


@dataclass(frozen=True)
class Stage:
    """One step on the way.

    Attributes:
        step: the step.
        candidate: what it adds.
        state: the state after it (before it, for the last, which makes the state an operator).
        distance: the shape distance of `state`.
        left: how many primitives may still be added.
        grouping: the cheapest fates of the axes that are there; None while more sums have to come.
    """

    step: Step
    candidate: Candidate
    state: State
    distance: int
    left: int
    grouping: Grouping | None


def reach(space: Space, operator: PGraph) -> list[Stage]:
    """The steps to the operator.

    Raises:
        UnreachableError: the space does not hold it; the message names the rule, the option or the bound that excludes it.
    """
    _check_shapes(space, operator)
    refusals: list[tuple[int, str]] = []
    for graph in weight_orders(operator):
        walk = _Way(space, graph)
        stages = walk.find()
        if stages is not None:
            return stages
        refusals += walk.refusals
    # the first of those that came furthest; that an order was refused explains little as long as anything else was
    furthest = max(refusals, key=lambda refusal: (not refusal[1].split(": ", 1)[-1].startswith(ORDER_RULES), refusal[0]))
    raise UnreachableError(f"{operator.name} is not in the space {space.spec.name}: {furthest[1]}")


def _check_shapes(space: Space, operator: PGraph) -> None:
    spec = space.spec
    for name, variable in operator.variables.items():
        if spec.table.get(name) != variable:
            raise UnreachableError(
                f'{operator.name} has the {variable.kind.value} variable "{name}", the space {spec.name} has {spec.table}; '
                "rename the operator's variables to those"
            )
    for title, dims, sizes in (("output", operator.output, spec.output_sizes), ("input", operator.input, spec.input_sizes)):
        given = [dim.size for dim in dims]
        if len(given) != len(sizes) or any(a is not b for a, b in zip(given, sizes, strict=True)):
            raise UnreachableError(
                f"{operator.name} has {title} [{', '.join(map(str, given))}], the space {spec.name} has "
                f"[{', '.join(map(str, sizes))}]; variables must have the same names and kinds"
            )
    for out, into in spec.bound_axes:
        if operator.input[into] is not operator.output[out]:
            raise UnreachableError(
                f"{operator.name}: input axis {into} is not output axis {out}, which the space {spec.name} binds (bound_axes)"
            )


@dataclass
class _Way:
    """The search for an order of one operator's steps."""

    space: Space
    operator: PGraph
    refusals: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.expanded = set(self.operator.expansions)
        self.operations = [o for o in self.operator.operations if o.primitive is not SHARE and not self._ends_share(o)]
        self.failed: set[State] = set()

    def find(self) -> list[Stage] | None:
        state, stages = self.space.root, []
        for dim in sorted(self.operator.reduces, key=self._sum_order):
            candidate = self._candidate(state, "Reduce", (), dim.size)
            state_after = self._take(candidate, check=False)
            if state_after is None:
                return None
            state = state_after
            stages.append(self._stage(candidate, state))
        if state.steps and not self.space.is_feasible(state):
            self._refuse(state, self._too_far(state))
            return None
        return self._onwards(state, stages)

    def _sum_order(self, dim: Dim) -> tuple[int, str]:
        options = self.space.sizes.sizes(self.space.sizes.none)
        return (options.index(dim.size) if dim.size in options else len(options), dim.id)

    def _onwards(self, state: State, stages: list[Stage]) -> list[Stage] | None:
        if state in self.failed:
            return None
        candidates = list(self._next(state))
        if not candidates:
            if not set(state.data) <= set(self.operator.input):
                return None  # weights wait for each other in this order
            last = self._last(state)
            return None if last is None else [*stages, last]
        for candidate in candidates:
            after = self._take(candidate, check=True)
            if after is not None:
                found = self._onwards(after, [*stages, self._stage(candidate, after)])
                if found is not None:
                    return found
        self.failed.add(state)
        return None

    def _next(self, state: State) -> Iterator[Candidate]:
        """The operator's steps that can come now."""
        live = set(state.data)
        weight = state.ends.counts.weights + 1
        if weight <= len(self.operator.weights):
            shares = [axis.operation for axis in self.operator.weights[weight - 1] if axis.operation is not None]
            dims = tuple(share.bottoms[0] for share in shares)
            if live.issuperset(dims):
                outer = frozenset(share.bottoms[0] for share in shares if share.tops[0] in self.expanded)
                yield Candidate(
                    self.space.spec,
                    self.space.sizes,
                    self.space.facts,
                    state,
                    CONTRACTION,
                    tuple(dim for dim in state.data if dim in set(dims)),
                    None,
                    outer,
                )
        for operation in self.operations:
            if live.issuperset(operation.bottoms):
                size = operation.parameter if operation.primitive in (MERGE, STRIDE) else None
                yield self._candidate(state, operation.primitive.name, operation.bottoms, size)

    def _ends_share(self, operation: Operation) -> bool:
        """Whether this is a reduction, or the Expand inside a contraction: no step of its own."""
        if operation.primitive is REDUCE:
            return True
        below = operation.bottoms[0].operation
        return operation.primitive is EXPAND and below is not None and below.primitive is SHARE

    def _candidate(self, state: State, kind: str, dims: tuple[Dim, ...], size: object = None) -> Candidate:
        space = self.space
        return Candidate(space.spec, space.sizes, space.facts, state, kind, dims, size)  # type: ignore[arg-type]

    def _take(self, candidate: Candidate, *, check: bool) -> State | None:
        """The state after the step; None, and the reason noted, if the space has no such step."""
        space, state = self.space, candidate.state
        reason = why_not_offered(space.candidates, candidate)
        if reason is None:
            rule = next((row for row in space.rules.of(candidate.kind) if row.rejects(candidate)), None)
            if rule is not None:
                reason = f"rule {rule.id} rejects it ({rule.forbids}: {rule.reason})"
        if reason is not None:
            self._refuse(state, f"{described(candidate)}: {reason}")
            return None
        after = space.candidates.take(candidate)
        if check and not space.is_feasible(after):
            self._refuse(after, f"{described(candidate)}: {self._too_far(after)}")
            return None
        return after

    def _refuse(self, state: State, reason: str) -> None:
        self.refusals.append((state.steps, reason))

    def _too_far(self, state: State) -> str:
        space, left = self.space, self.space.spec.depth - state.steps
        if left < 0:
            return f"the operator has more than {space.spec.depth} primitives (depth)"
        bound = space.is_feasible.flops.lower_bound(state)
        if bound > space.is_feasible.most_flops:
            return f"it needs {bound:.4g} FLOPs in the replaced layers, of {space.is_feasible.most_flops:.4g} (budget)"
        least, most = space.is_feasible.least_flops, space.is_feasible.most_flops
        if space.distance_of(state) < UNREACHABLE:
            return f"no operator made of it reaches the {least:.4g} FLOPs that the replaced layers need (budget)"
        if space.is_feasible.without_budget(state) > left:
            return f"what is there then is more than {left} primitives from an operator (shape distance)"
        loops = space.is_feasible.iterations(state)
        return f"about {loops:.4g} multiply-adds in the replaced layers are outside {least:.4g} to {most:.4g} (budget)"

    def _last(self, state: State) -> Stage | None:
        space = self.space
        if not state.ends.counts.weights:
            self._refuse(state, "it has no weight, and an operator has at least one")
            return None
        if any(space.facts[dim].discards for dim in state.data):
            self._refuse(state, "an axis of the input skips elements, which only a window takes up")
            return None
        candidate = space.completion.candidate(state, self.operator.input)
        violated = [row for row in space.rules.of("Finalize") if row.rejects(candidate)]
        complete = space.completion.operator(state, self.operator.input)
        excess = space.completion.excess(space.completion.cost(complete))
        if violated:
            self._refuse(state, f"rule {violated[0].id} rejects it ({violated[0].forbids}: {violated[0].reason})")
        elif excess is not None:
            self._refuse(state, f"the model with it has {excess}")
        elif (ahead := space.completion.leak(complete)) is not None:
            self._refuse(state, f"it reads ahead (causal): {ahead}")
        elif normal_form(complete) not in space.operators(state):
            most = space.spec.finalizations
            self._refuse(state, f"{most} others differ from it in which axis of the input is which (finalizations is {most})")
        else:
            return Stage(finalize(normal_form(complete)), candidate, state, 0, space.spec.depth - state.steps, None)
        return None

    def _stage(self, candidate: Candidate, state: State) -> Stage:
        space = self.space
        left = space.spec.depth - state.steps
        axes, limits = space.is_feasible.abstract(state, left)
        grouping = space.is_feasible.distance.grouping(axes, limits, left)
        distance = space.distance_of(state)
        return Stage(Step(candidate.kind, step_id(candidate), state), candidate, state, distance, left, grouping)


def described(candidate: Candidate) -> str:
    """A step in words, as in `Merge(C_out -> g, g^-1*C_out)`."""
    dims = ", ".join(f"{dim.size}{' (outer)' if dim in candidate.outer else ''}" for dim in candidate.dims)
    match candidate.kind:
        case "Reduce":
            return f"Reduce({candidate.size})"
        case "Merge":
            return f"Merge({dims} -> {candidate.dims[0].size / candidate.block}, {candidate.block})"
        case "Stride":
            return f"Stride({dims} by {candidate.block})"
    return f"{candidate.kind}({dims})"
