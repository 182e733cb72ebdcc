"""Steps: additions to a state, and the state or operator that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from syno.algebra import Size
from syno.ir import dim as dims
from syno.ir import primitives
from syno.ir.dim import Dim, content_id
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SHIFT, SPLIT, STRIDE, UNFOLD, Primitive
from syno.space.facts import DimFacts, FactTable, Role
from syno.space.sizes import SizeTable, added
from syno.space.spec import OperatorSpec
from syno.space.state import Counts, Increase, State


@dataclass(frozen=True, eq=False)
class NonPrimitive:
    """A kind of step that is not a single primitive: Contraction or Finalize.

    Attributes:
        name: the name in journals and tables.
    """

    name: str

    def __repr__(self) -> str:
        return self.name


StepKind = Primitive | NonPrimitive
CONTRACTION = NonPrimitive("Contraction")  # all Shares of one weight, with the Expands of its outer dims
FINALIZE = NonPrimitive("Finalize")  # the live dims become the input's axes
KINDS: dict[str, StepKind] = {
    kind.name: kind for kind in (REDUCE, CONTRACTION, SHIFT, STRIDE, SPLIT, UNFOLD, EXPAND, MERGE, FINALIZE)
}
# Kinds of steps whose dims have different roles; the dims of other kinds are a set.
IN_ORDER = tuple(kind for kind in KINDS.values() if isinstance(kind, Primitive) and len(kind.bottoms) > 1)
ONE_MORE = {  # what a step of this kind adds to the counts of a state; a contraction adds its shares as well
    REDUCE: Counts(reductions=1),
    SHIFT: Counts(shifts=1),
    STRIDE: Counts(strides=1),
    SPLIT: Counts(splits=1),
    MERGE: Counts(merges=1),
    UNFOLD: Counts(unfolds=1),
    EXPAND: Counts(repeats=1),
}
SHIFT_AMOUNT = 1  # a Shift by more is seldom useful; the published system has no other


@dataclass(slots=True)
class CandidateStep:
    """A step that may be taken, subject to options, rules and distance.

    Attributes:
        spec, sizes, facts: the spec, and the tables of facts about sizes and dims.
        state: the state before the step.
        kind: a primitive, CONTRACTION or FINALIZE: one of KINDS.
        dims: the dims that the step builds on: (major, minor) of a Split, (position, window) of an Unfold, the shared dims of a
            Contraction, the input's axes of a Finalize.
        size: the block of a Merge, the factor of a Stride, the domain of a Reduce.
        outer: the dims of a Contraction that index only the weight.
    """

    spec: OperatorSpec
    sizes: SizeTable
    facts: FactTable
    state: State
    kind: StepKind
    dims: tuple[Dim, ...] = ()
    size: Size | None = None
    outer: frozenset[Dim] = frozenset()

    def of(self, position: int = 0) -> DimFacts:
        """Return the facts about the step's dim at `position`."""
        return self.facts[self.dims[position]]

    def other(self, kind: StepKind, on: tuple[Dim, ...], size: Size | None = None) -> CandidateStep:
        """Return another step from the same state, of this kind and on these dims."""
        return CandidateStep(self.spec, self.sizes, self.facts, self.state, kind, on, size)

    @property
    def block(self) -> Size:
        """The size of the step, such as the block of a Merge. Raises AssertionError if this kind of step has no size."""
        assert self.size is not None
        return self.size

    @property
    def leader(self) -> tuple[int, str]:
        """Height and id of the step's lowest dim, the sort key of independent contractions."""
        return min((self.facts[dim].height, dim.id) for dim in self.dims)

    @property
    def id(self) -> str:
        """Content id of what the step adds, the same in every state and process."""
        names = [dim.id + ("-" if dim in self.outer else "") for dim in self.dims]
        return content_id(self.kind.name, str(self.size), *(names if self.kind in IN_ORDER else sorted(names)))

    def taken(self) -> State:
        """Return the state after the step.

        Raises:
            ValueError: the step is a Finalize, or of an unknown kind.
        """
        if self.kind is CONTRACTION:
            return self._after_contraction()
        state, ends, on, none = self.state, self.state.ends, self.dims, self.sizes.none
        match self.kind:
            case primitives.REDUCE:
                top = dims.reduce(self.block, sum(dim.size is self.size for dim in ends.sums))
                now = ends.after(self.sizes.reduced(self.block), ONE_MORE[self.kind], sums=(*ends.sums, top))
                return state.replaced((), (top,), (), now)
            case primitives.SHIFT:
                return state.replaced(on, (dims.shift(on[0], SHIFT_AMOUNT),), (), ends.after(none, ONE_MORE[self.kind]))
            case primitives.STRIDE:
                usage = self.sizes.reduced(self.block)
                now = ends.after(usage, ONE_MORE[self.kind], strides=ends.strides * self.block)
                return state.replaced(on, (dims.stride(on[0], self.block),), (), now)
            case primitives.SPLIT:
                return state.replaced(on, (dims.split(*on),), (), ends.after(none, ONE_MORE[self.kind]))
            case primitives.MERGE:
                usage = self.sizes.merged(self.block, on[0].size / self.block) if self.spec.sizes.count_merges else none
                return state.replaced(on, dims.merge(on[0], self.block), (), ends.after(usage, ONE_MORE[self.kind]))
            case primitives.UNFOLD:
                increases = (*ends.increases, self._increase(on, on[1].size))
                # A window of sums is summed up again; one that is a piece of the output stays, and makes the data larger.
                copies = ends.copies if self.of(1).only_sums else ends.copies * on[1].size
                now = ends.after(none, ONE_MORE[self.kind], increases=increases, copies=copies)
                return state.replaced(on, (dims.unfold(*on),), (), now)
            case primitives.EXPAND:
                size = on[0].size
                increases = (*ends.increases, self._increase(on, size))
                now = ends.after(
                    none, ONE_MORE[self.kind], increases=increases, repeats=ends.repeats * size, copies=ends.copies * size
                )
                return state.replaced(on, (), on, now)
            case kind:
                raise ValueError(f"no state follows a step of kind {kind}")

    def _after_contraction(self) -> State:
        ends, weight = self.state.ends, self.state.ends.counts.weights + 1
        tops, expanded, usage, outer = [], [], self.sizes.none, ends.outer
        for dim in self.dims:
            data, axis = dims.share(dim, weight)
            tops.append(axis)
            usage = added(usage, self.facts[dim].size.shared)
            if dim in self.outer:
                expanded.append(data)
                outer = outer * dim.size if self.facts[dim].role is Role.OUTER else outer
            else:
                tops.append(data)
        now = ends.after(
            usage,
            Counts(shares=len(self.dims), weights=1),
            outer=outer,
            leaders=(*ends.leaders, self.leader),
            increases=(*ends.increases, *(self._increase((dim,), dim.size) for dim in expanded)),
            weight_sums=(*ends.weight_sums, self._sums_below(self.dims)),
        )
        return self.state.replaced(self.dims, tops, expanded, now)

    def _increase(self, bottoms: tuple[Dim, ...], size: Size) -> Increase:
        tags = 0
        for dim in bottoms:
            tags |= self.facts[dim].tags
        return Increase(size, self._sums_below(bottoms), tags)

    def _sums_below(self, bottoms: tuple[Dim, ...]) -> frozenset[Dim]:
        facts = [self.facts[dim] for dim in bottoms]
        return frozenset().union(*(f.pooled for f in facts), *(f.weighted for f in facts))


@dataclass(frozen=True)
class Step:
    """A feasible step.

    Attributes:
        kind: name of the primitive, "Contraction" or "Finalize". Policies and journals identify steps by kind and id.
        id: content id of what the step adds, the same in every state.
        node: the state or the complete operator after the step.
        operator: the complete operator if this is a Finalize.
    """

    kind: str
    id: str
    node: Hashable
    operator: PGraph | None = None

    @classmethod
    def finalize(cls, operator: PGraph) -> Step:
        """Return the step to a complete operator."""
        return cls(FINALIZE.name, content_id(FINALIZE.name, operator.id), operator, operator)

    def itself(self) -> Step:
        """Return this step itself, as the `look` of a draft that needs no evaluation."""
        return self


@dataclass(frozen=True)
class Draft:
    """A candidate for a step that has not been evaluated yet.

    Attributes:
        kind, id: kind and id of the step.
        look: function that returns the step; None if it is a dead end.
    """

    kind: str
    id: str
    look: Callable[[], Step | None]
