"""A state of the search: a partial operator, given by the dims at its top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add, attrgetter
from typing import Any, NamedTuple

from syno.algebra import ONE, Size
from syno.base.files import name_from
from syno.ir.dim import Dim, content_id, output_axis
from syno.ir.graph import PGraph
from syno.space.sizes import Usage, added
from syno.space.spec import OperatorSpec

BY_ID = attrgetter("id")


class Counts(NamedTuple):
    """The number of occurrences of each primitive in a state."""

    reductions: int = 0
    merges: int = 0
    splits: int = 0
    shifts: int = 0
    strides: int = 0
    unfolds: int = 0
    repeats: int = 0
    shares: int = 0
    weights: int = 0

    @property
    def steps(self) -> int:
        """The number of primitives in the state; a contraction counts as one."""
        return sum(self) - self.shares


class Increase(NamedTuple):
    """A dim that widens the data between input and output: a window, a repeat, or an axis that only a weight has."""

    size: Size
    sums: frozenset[Dim]  # the reductions below
    tags: int  # the weights below, as bits


class Ends(NamedTuple):
    """Running totals of a state, which follow from its dims.

    They are the used occurrences of variables, the counts of primitives, and the places where weights begin.
    """

    usage: Usage
    counts: Counts = Counts()
    outer: Size = ONE  # product of the output-only axes of weights
    repeats: Size = ONE  # product of repeated elements
    copies: Size = ONE  # product of repeated elements and of windows that are pieces of the output
    strides: Size = ONE  # product of the strides' factors
    leaders: tuple[tuple[int, str], ...] = ()  # for each weight, the lowest of its axes
    sums: tuple[Dim, ...] = ()  # the reductions
    increases: tuple[Increase, ...] = ()
    weight_sums: tuple[frozenset[Dim], ...] = ()  # for each weight, the reductions below it

    def after(self, usage: Usage, counts: Counts, **changes: Any) -> Ends:
        """Return the totals after a step that adds `usage` and `counts`, with further fields replaced by `changes`."""
        now = Counts._make(map(add, self.counts, counts))
        return self._replace(usage=added(self.usage, usage), counts=now, **changes)


@dataclass(frozen=True)
class State:
    """A partial operator. States with equal dims are equal, in whatever order they were built.

    Attributes:
        live: the dims that the next step can build on, and the axes of weights, sorted by id.
        expansions: the dims that index no tensor, sorted by id.
        ends: running totals, stored to avoid recounting.
    """

    live: tuple[Dim, ...]
    expansions: tuple[Dim, ...]
    ends: Ends = field(compare=False, repr=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.live, self.expansions))

    @property
    def steps(self) -> int:
        """The number of primitives in the state."""
        return self.ends.counts.steps

    @cached_property
    def data(self) -> tuple[Dim, ...]:
        """The live dims without the axes of weights."""
        return tuple(dim for dim in self.live if not dim.is_weight_side)

    @cached_property
    def id(self) -> str:
        """Content id of the state, the same in all processes."""
        return content_id("state", *(dim.id for dim in self.live), "expand", *(dim.id for dim in self.expansions))

    def replaced(self, bottoms: Sequence[Dim], tops: Iterable[Dim], expanded: Sequence[Dim], ends: Ends) -> State:
        """Return the state with `tops` in place of the live dims `bottoms`, and with the further expanded dims `expanded`."""
        live = [dim for dim in self.live if dim not in bottoms]
        live += tops
        live.sort(key=BY_ID)
        expansions = tuple(sorted((*self.expansions, *expanded), key=BY_ID)) if expanded else self.expansions
        return State(tuple(live), expansions, ends)

    def assembled(self, spec: OperatorSpec, axes: tuple[Dim, ...]) -> PGraph:
        """Return the operator whose input has the axes `axes`, and whose weights have the state's weight sides as axes."""
        weights: list[list[Dim]] = [[] for _ in range(self.ends.counts.weights)]
        for dim in self.live:
            if dim.is_weight_side:
                assert dim.operation is not None and isinstance(dim.operation.parameter, int)
                weights[dim.operation.parameter - 1].append(dim)
        output = tuple(output_axis(i, size) for i, size in enumerate(spec.output_sizes))
        return PGraph(
            output, axes, tuple(map(tuple, weights)), self.expansions, name_from(spec.name), defaults=spec.table.defaults
        )
