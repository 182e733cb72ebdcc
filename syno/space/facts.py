"""Facts about dims for rules and distance: the properties that follow from the expression below a dim.

The facts about a dim are computed once per space. Adjacency and order of channels are defined as in the published system.

Source: the published system's coloring of pGraphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from syno.ir.dim import Dim, Operation
from syno.ir.primitives import MERGE, REDUCE, SHARE, SPLIT, STRIDE, UNFOLD, Primitive
from syno.space.sizes import SizeFacts, SizeTable
from syno.space.spec import OperatorSpec


class Origin(Enum):
    """Origin of a dim: an axis of the output, or one of the two tops of a Merge or a Share."""

    OUTPUT = auto()  # an axis of the output
    QUOTIENT = auto()  # the first dim above a Merge
    REMAINDER = auto()  # the second
    DATA = auto()  # the data side of a Share
    WEIGHT = auto()  # its weight side


class Role(Enum):
    """The use that a weight may make of a dim, besides being indexed by it."""

    INNER = auto()  # no other use
    OUTER = auto()  # it may end the dim, an axis of the output or a piece of one
    LOW_RANK = auto()  # it may end the dim, a sum that an earlier weight has already


TWO_TOPS = {MERGE: (Origin.QUOTIENT, Origin.REMAINDER), SHARE: (Origin.DATA, Origin.WEIGHT)}

Side = Operation | Dim | None  # a Merge, a reduction (as Dim), or None
Blocks = dict[int, tuple[Side, Side]]  # by weight (0: since the last Share), the sides to the left and to the right


@dataclass(slots=True, init=False, eq=False, repr=False)
class DimFacts:
    """Facts about one dim, derived from the expression below it."""

    origin: Primitive | Origin  # the primitive below it, if that has one top
    size: SizeFacts
    height: int  # operations on the longest way down, a reduction counting as one
    tags: int  # bit w is set if a Share with weight w is below
    discards: bool  # whether a Stride skips elements that no window takes up
    scope: Dim | None  # the unordered dim that it is made of, if it is made of one
    only_sums: bool  # whether it stands on reductions alone
    role: Role
    blocks: Blocks
    base: Dim  # the dim below the Merges
    shared_by: tuple[int, ...]  # the weights of the Shares right below, through Splits
    pooled: frozenset[Dim]  # reductions below without a Share between
    weighted: frozenset[Dim]  # reductions below with a Share between
    is_tied: bool  # whether it may be adjacent to another dim, or share a weight with it


class FactTable(dict[Dim, DimFacts]):
    """Facts about dims, each computed once. A dict, since its look-ups run no Python code."""

    def __init__(self, spec: OperatorSpec, sizes: SizeTable) -> None:
        super().__init__()
        self.spec, self.sizes = spec, sizes

    def __missing__(self, dim: Dim) -> DimFacts:
        facts = self[dim] = self._find(dim)
        facts.is_tied = bool(facts.shared_by) or any(side is not None for sides in facts.blocks.values() for side in sides)
        return facts

    def _find(self, dim: Dim) -> DimFacts:
        facts = DimFacts()
        facts.size = self.sizes[dim.size]
        facts.base, facts.shared_by, facts.role = dim, (), Role.INNER
        operation = dim.operation
        if operation is None or operation.primitive is REDUCE:
            return self._bare_facts(dim, facts)
        below = [self[bottom] for bottom in operation.bottoms]
        first = below[0]
        primitive = operation.primitive
        facts.origin = TWO_TOPS[primitive][dim.position] if primitive in TWO_TOPS else primitive
        facts.height = 1 + max(fact.height for fact in below)
        facts.tags = 0
        for fact in below:
            facts.tags |= fact.tags
        facts.discards = any(fact.discards for fact in below)
        facts.only_sums = all(fact.only_sums for fact in below)
        facts.scope = first.scope if all(fact.scope is first.scope for fact in below) else None
        facts.pooled = frozenset().union(*(fact.pooled for fact in below))
        facts.weighted = frozenset().union(*(fact.weighted for fact in below))
        facts.blocks = {0: (None, None)}
        if primitive is STRIDE:
            facts.discards = True
        elif primitive is UNFOLD:
            facts.discards = first.discards  # a window takes up what its Stride skips
        elif primitive is SPLIT:
            facts.blocks = _join_blocks(first.blocks, below[1].blocks)
            facts.shared_by = first.shared_by + below[1].shared_by
        elif primitive is MERGE:
            facts.base, facts.role = first.base, first.role if first.only_sums else Role.OUTER
            left = facts.origin is Origin.QUOTIENT
            facts.blocks = {w: (l, operation) if left else (operation, r) for w, (l, r) in first.blocks.items()}
        elif primitive is SHARE:
            self._set_share_facts(facts, first, operation)
        return facts

    def _bare_facts(self, dim: Dim, facts: DimFacts) -> DimFacts:
        reduction = dim.is_reduce
        facts.origin = REDUCE if reduction else Origin.OUTPUT
        facts.height, facts.tags, facts.discards = int(reduction), 0, False
        facts.scope = dim if reduction or dim.position in self.spec.unordered_output else None
        facts.only_sums = reduction
        facts.role = Role.INNER if reduction else Role.OUTER
        facts.blocks = {0: (dim, dim) if reduction else (None, None)}
        facts.pooled = frozenset([dim]) if reduction else frozenset()
        facts.weighted = frozenset()
        return facts

    @staticmethod
    def _set_share_facts(facts: DimFacts, below: DimFacts, operation: Operation) -> None:
        weight = operation.parameter
        assert isinstance(weight, int)
        facts.tags |= 1 << weight
        facts.weighted |= facts.pooled
        facts.pooled = frozenset()
        if facts.origin is Origin.WEIGHT:
            facts.blocks = {}
            return
        facts.shared_by = (weight,)
        facts.role = Role.LOW_RANK if below.origin is REDUCE else below.role
        facts.blocks = {(weight if w == 0 else w): sides for w, sides in below.blocks.items()}
        facts.blocks[0] = (None, None)


def _join_blocks(left: Blocks, right: Blocks) -> Blocks:
    none = (None, None)
    return {w: (left.get(w, none)[0], right.get(w, none)[1]) for w in left.keys() | right.keys()}


def adjacent(left: DimFacts, right: DimFacts) -> bool:
    """Return whether `left` ends where `right` begins: they are adjacent pieces of one Merge, or two reductions."""
    for weight, (_, end) in left.blocks.items():
        if end is None or weight not in right.blocks:
            continue
        begin = right.blocks[weight][0]
        # A side that is a Dim is a reduction. Any two are adjacent, since two sums are one over both, in either order.
        if begin is not None and (begin is end or (isinstance(begin, Dim) and isinstance(end, Dim))):
            return True
    return False


def touches(first: DimFacts, second: DimFacts) -> bool:
    """Return whether two dims are adjacent at one Merge or one reduction, in either order."""
    # Unlike in `adjacent`, two different reductions do not count: only what was one axis becomes one expanded axis again.
    for weight, (left, right) in first.blocks.items():
        begin, end = second.blocks.get(weight, (None, None))
        if (right is not None and right is begin) or (left is not None and left is end):
            return True
    return False
