"""Complete operators: the pGraphs that a state's dims form as axes of the input, checked against the budget.

Source: the published system's finalization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from syno.algebra import Valuation, Valuations, product
from syno.base.errors import LoweringError
from syno.ir.dim import Dim, output_axis
from syno.ir.graph import PGraph
from syno.ir.rewriting import normal_form
from syno.lower.causality import leak
from syno.lower.plan import Plan
from syno.lower.plan import candidates as plans
from syno.space.facts import FactTable
from syno.space.requirements import Requirements
from syno.space.rules import RuleSet
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.steps import FINALIZE, CandidateStep


@dataclass(frozen=True)
class Cost:
    """The cost of a model with an operator in the replaced layers, for one batch.

    Attributes:
        flops: multiply-adds of the model.
        parameters: parameters of the model.
        memory_bytes: peak memory of one stage of one layer, in bytes.
    """

    flops: float
    parameters: float
    memory_bytes: int

    def metrics(self, original: Cost | None = None) -> dict[str, float]:
        """Return the cost as metrics by name; with `original`, including the original model's FLOPs and parameters."""
        metrics = {"flops": self.flops, "parameters": self.parameters, "memory_bytes": float(self.memory_bytes)}
        if original is not None:
            metrics |= {"original_flops": original.flops, "original_parameters": original.parameters}
        return metrics


def cost(operator: PGraph, spec: OperatorSpec) -> Cost:
    """Return the cost of the spec's model with the operator, for the plan with the fewest FLOPs.

    >>> import syno
    >>> spec = syno.preset("resnet18")
    >>> syno.cost(syno.OPERATORS["conv1x1"](), spec).parameters < syno.cost(syno.OPERATORS["operator_1"](), spec).parameters
    True
    """
    plan, rows, total = _cheapest(operator, spec)
    return Cost(
        spec.budget.rest_flops + total(plan.flops),
        spec.budget.rest_parameters + total(plan.parameters),
        max(plan.peak_memory_bytes(row) for row in rows),
    )


def flops(operator: PGraph, spec: OperatorSpec) -> float:
    """Return the FLOPs of the spec's model with the operator, for the plan with the fewest FLOPs."""
    plan, _, total = _cheapest(operator, spec)
    return spec.budget.rest_flops + total(plan.flops)


def _cheapest(operator: PGraph, spec: OperatorSpec) -> tuple[Plan, Valuations, Callable[[Callable[[Valuation], int]], int]]:
    """Return the plan with the fewest FLOPs, the layers' distinct valuations, and a function that sums over all layers."""
    rows, numbers = _different(spec.valuations, tuple(operator.variables))

    def total(count: Callable[[Valuation], int]) -> int:
        return sum(count(row) * layers for row, layers in zip(rows, numbers, strict=True))

    return min(plans(operator, rows), key=lambda plan: (total(plan.flops), -len(plan.stages))), rows, total


@lru_cache(maxsize=256)
def _different(layers: Valuations, used: tuple[str, ...]) -> tuple[Valuations, tuple[int, ...]]:
    """Return the distinct values of the variables `used` in the layers, and the number of layers with each."""
    distinct = Counter(tuple((name, value) for name, value in row.items() if name in used) for row in layers)
    return Valuations([dict(key) for key in distinct]), tuple(distinct.values())


@dataclass
class Completion:
    """Turns states into complete operators of one spec."""

    spec: OperatorSpec
    sizes: SizeTable
    facts: FactTable
    rules: RuleSet
    requirements: Requirements

    def __post_init__(self) -> None:
        self._bound = {into: output_axis(out, self.spec.output_sizes[out]) for out, into in self.spec.bound_axes}
        self.wanted = tuple(size for axis, size in enumerate(self.spec.input_sizes) if axis not in self._bound)

        marked = {size for axis, size in enumerate(self.spec.input_sizes) if axis in self.spec.unordered_input}
        ordered = {size for axis, size in enumerate(self.spec.input_sizes) if axis not in self.spec.unordered_input}
        self.unordered = frozenset(marked - ordered)

    def __call__(self, state: State) -> list[PGraph]:
        """Return the complete operators whose input axes are the state's dims, at most `finalizations` of them."""
        if not state.ends.counts.weights or len(state.data) != len(self.wanted):
            return []
        assignments = [axes for axes in self.assignments(state) if self.rules.reject(self.candidate(state, axes)) is None]
        if not assignments:
            return []
        operators = [state.assembled(self.spec, axes) for axes in assignments]
        enough = [self.requirements.unmet(operator) is None for operator in operators]
        if not any(enough):  # takes much less time to know than the cost
            return []
        form = normal_form(operators[0])
        price = cost(form, self.spec)  # which axis is which changes no cost
        if self.excess(price) is not None:
            return []
        kept = [pair for pair in zip(operators, enough, strict=True) if self.leak(pair[0]) is None][: self.spec.finalizations]
        return [form if operator is operators[0] else normal_form(operator) for operator, reads_enough in kept if reads_enough]

    def cost(self, operator: PGraph) -> Cost:
        """Return the cost of an operator."""
        return cost(operator, self.spec)

    def candidate(self, state: State, axes: tuple[Dim, ...]) -> CandidateStep:
        """Return the Finalize step that makes these dims the input's axes."""
        return CandidateStep(self.spec, self.sizes, self.facts, state, FINALIZE, axes)

    def assignments(self, state: State) -> Iterator[tuple[Dim, ...]]:
        """Yield the assignments of the state's dims to the input's axes, in which sizes must be equal."""
        if any(self.facts[dim].discards for dim in state.data):
            return
        if sorted(map(str, self.wanted)) != sorted(str(dim.size) for dim in state.data):
            return
        for dims in permutations(state.data):
            if all(dim.size is size for dim, size in zip(dims, self.wanted, strict=True)):
                free = iter(dims)
                yield tuple(
                    self._bound[axis] if axis in self._bound else next(free) for axis in range(len(self.spec.input_sizes))
                )

    def operator(self, state: State, axes: tuple[Dim, ...]) -> PGraph:
        """Return the operator with these dims as axes of the input, in normal form."""
        return normal_form(state.assembled(self.spec, axes))

    def cheap_forever(self, state: State, bound: float = 0) -> bool:
        """Return whether every operator made from this state by views alone has fewer than the least FLOPs.

        Only for states whose data has as many elements as the input: neither a weight nor a window can follow. Each view takes
        at most one pass over the input. `bound` is a lower bound on the FLOPs so far; if it suffices, the cheapest plan is not
        computed.
        """
        least = self.spec.budget.least_flops - self.spec.budget.rest_flops
        if least <= 0 or not state.ends.counts.weights:
            return False
        views = (self.spec.depth - state.steps) * self.sizes[product(self.spec.input_sizes)].total
        loops = self.sizes[product((*self.spec.output_sizes, *(dim.size for dim in state.ends.sums)))].total
        last = self.sizes[product(self.spec.output_sizes)].total
        if not state.ends.counts.strides and state.ends.counts.weights * loops + last + views < least:
            return True
        if bound + views >= least:
            return False
        bound_axes = (self._bound[axis] for axis in sorted(self._bound))
        partial = state.assembled(self.spec, (*bound_axes, *state.data))
        return flops(partial, self.spec) + views < self.spec.budget.least_flops

    def leak(self, operator: PGraph) -> str | None:
        """Return in words where the operator reads ahead along a causal axis in one of the layers; None if it does not."""
        for axis in self.spec.causal:
            for values in {tuple((name, row[name]) for name in operator.variables): None for row in self.spec.valuations}:
                try:
                    position = leak(operator, axis, dict(values))
                except LoweringError as error:  # such an operator would be refused when a layer is replaced
                    return str(error)
                if position is not None:
                    return str(position)
        return None

    def excess(self, price: Cost) -> str | None:
        """Return the bound of the budget that the cost `price` exceeds, in words; None if it is within the budget."""
        budget = self.spec.budget
        for quantity, value, least, most in (
            ("FLOPs", price.flops, budget.least_flops, budget.most_flops),
            ("parameters", price.parameters, budget.least_parameters, budget.most_parameters),
            ("bytes of memory", price.memory_bytes, 0, budget.most_memory_bytes),
        ):
            if value < least:
                return f"{value:.4g} {quantity}, below the budget of at least {least:.4g}"
            if value > most:
                return f"{value:.4g} {quantity}, above the budget of at most {most:.4g}"
        return None
