"""The graph of states and steps in which a search walks, and the check that it contains an operator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from syno.base.errors import SpecError
from syno.ir.graph import PGraph
from syno.space.candidates import OPTIONS, Branches, Candidates
from syno.space.complete import Completion
from syno.space.distance.feasibility import Feasibility
from syno.space.facts import FactTable
from syno.space.options import Budget
from syno.space.requirements import Requirements
from syno.space.rules import RuleSet
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.steps import CandidateStep

NEAR, FAR = 2, 6  # how much more depth is tried, before other changes and after them
MOST_TENSORS = 4  # the largest value of `occurrences: tensors`
FEW_SUMS = 3  # reductions that are enough where a change is tried: more would take long
# Limits that a change lifts altogether; those of sums, tensors and repeats are bounded for other reasons as well.
UNBOUNDED = ("merges", "splits", "shifts", "strides", "unfolds")
UNLIMITED = 1e30  # FLOPs
# States whose branches are kept: those on the paths of the last walks. Walks return to the same states: of 110,000 checks of
# states for 300 operators, 68,000 had been made before.
REMEMBERED = 4096


class StateGraph:
    """The states of one spec, and the steps between them.

    Args:
        spec: the spec of the search.
        use_distance: whether to prune states that the shape distance excludes.
        is_guide: whether to use the narrow reading bound (`syno.space.distance.reading`), which also excludes some operators.
        like: another graph of this spec, whose caches are shared.

    Attributes:
        sizes, facts: tables of facts about sizes and dims.
        rules: the active canonicalization rules, with counts of their rejections.
        candidates: proposes steps.
        completion: turns states into complete operators.
        feasibility: the shape distance, and bounds on FLOPs.
    """

    def __init__(
        self, spec: OperatorSpec, *, use_distance: bool = True, is_guide: bool = False, like: StateGraph | None = None
    ) -> None:
        self.spec = spec
        self.sizes: SizeTable = SizeTable(spec) if like is None else like.sizes
        self.facts: FactTable = FactTable(spec, self.sizes) if like is None else like.facts
        self.rules = RuleSet(spec.rules_off, spec.rules_on)
        self.candidates = Candidates(spec, self.sizes, self.facts, self.rules)
        requirements = Requirements(spec) if like is None else like.completion.requirements
        self.completion: Completion = Completion(spec, self.sizes, self.facts, self.rules, requirements)
        self.feasibility = Feasibility(self.candidates, self.completion, use_distance=use_distance, is_narrow=is_guide)
        self.branches = lru_cache(REMEMBERED)(self._branches)

    @cached_property
    def root(self) -> State:
        """The initial state: the output's axes."""
        return self.candidates.root()

    def is_feasible(self, state: State) -> bool:
        """Return whether the state may still become an operator. False is certain, except with a published distance."""
        return self.feasibility(state)

    def distance_of(self, state: State, most: int | None = None) -> int:
        """Return a lower bound on the primitives that the state still needs; UNREACHABLE above `most` (default: the depth
        left).
        """
        return self.feasibility.distance_of(state, most)

    def children(self, state: State) -> Iterator[tuple[CandidateStep, State]]:
        """Yield the steps from a state to feasible states, each with the state that it leads to."""
        for branch in self.branches(state):
            child = branch.child(self.feasibility.after)
            if child is not None:
                yield branch.candidate, child

    def operators(self, state: State) -> list[PGraph]:
        """Return the complete operators that the state's dims form."""
        return self.branches(state).operators

    def _branches(self, state: State) -> Branches:
        """Return the branches of a state: its complete operators, and its candidate steps. Cached."""
        deepest = state.steps >= self.spec.depth
        kinds = () if deepest else OPTIONS
        return Branches(self.completion(state), {kind: self.candidates.of_kind(state, kind) for kind in kinds})


def check_not_empty(graph: StateGraph) -> None:
    """Raise SpecError if the shape distance or the budget excludes every operator. The message names one change that helps."""
    measured = graph if graph.feasibility.kind == "exact" else StateGraph(graph.spec.with_(distance="exact"))
    if not measured.is_feasible(measured.root):
        raise SpecError(why_empty(graph.spec))


def why_empty(spec: OperatorSpec) -> str:
    """Return the message about a space without operators: the first single change of its spec that admits an operator."""
    problem = f'the space "{spec.name}" holds no operator of at most {spec.depth} primitives'
    if spec.distance != "exact":
        spec = spec.with_(distance="exact")
        if (graph := StateGraph(spec)).is_feasible(graph.root):
            return f"{problem} that its distance lets walks reach; give distance: exact, which loses none"
    for change, wider in _changes(spec):
        few = min(FEW_SUMS, wider.occurrences.reductions)
        graph = StateGraph(wider.with_(occurrences=wider.occurrences.with_(reductions=few)))
        if graph.is_feasible(graph.root):
            return f"{problem}; {change}"
    return (
        f"{problem}, nor with more FLOPs, more depth or more of any one primitive; look for an output axis that nothing can "
        "end, or an input axis that nothing can make (input, output, variables: occurrences of a primary may be 0)"
    )


def _changes(spec: OperatorSpec) -> Iterator[tuple[str, OperatorSpec]]:
    """Yield single changes of a spec that enlarge its space, the likeliest first, each with its description."""
    budget, occurrences, contractions = spec.budget, spec.occurrences, spec.contractions
    if spec.reads is not None:
        yield "none of them reads what is required: ask for less, or for nothing (reads: none)", spec.with_(reads=None)
    if budget.most_flops < Budget().most_flops:
        yield (
            f"the budget excludes them all: raise most_flops, which is {budget.most_flops:.4g}",
            spec.with_(budget=budget.model_copy(update={"most_flops": UNLIMITED})),
        )
    if budget.least_flops > 0:
        yield (
            f"the budget excludes them all: lower least_flops, which is {budget.least_flops:.4g}",
            spec.with_(budget=budget.model_copy(update={"least_flops": 0.0})),
        )
    yield from (_deeper(spec, more) for more in range(1, NEAR + 1))
    wider: dict[str, int | None] = {name: None for name in UNBOUNDED if getattr(occurrences, name) is not None}
    if occurrences.tensors < MOST_TENSORS:
        wider["tensors"] = occurrences.tensors + 1
    wider["reductions"] = occurrences.reductions + 2
    for name, most in wider.items():
        now = getattr(occurrences, name)
        yield f"raise occurrences: {name}, which is {now}", spec.with_(occurrences=occurrences.with_(**{name: most}))
    yield (
        f"raise contractions: largest_outer, which is {contractions.largest_outer}",
        spec.with_(contractions=contractions.with_(largest_outer=10**9)),
    )
    yield from (_deeper(spec, more) for more in range(NEAR + 1, FAR + 1))


def _deeper(spec: OperatorSpec, more: int) -> tuple[str, OperatorSpec]:
    return f"raise depth to {spec.depth + more} or more", spec.with_(depth=spec.depth + more)
