"""A state of the search: the dims at the top of a partial operator. They are the whole operator so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from syno.algebra import ONE, Size
from syno.ir.dim import Dim, content_id
from syno.space.sizes import Usage


class Counts(NamedTuple):
    """How often each primitive occurs so far."""

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
        """Primitives, a contraction being one."""
        return sum(self) - self.shares


class Increase(NamedTuple):
    """A window, or an axis that only a weight or nothing is indexed by."""

    size: Size
    sums: frozenset[Dim]  # the reductions below
    tags: int  # the weights below, as bits


@dataclass(frozen=True, slots=True)
class Ends:
    """What of a state is no dim: what it has used up, and what its weights began with."""

    usage: Usage
    counts: Counts = Counts()  # noqa: RUF009  (an immutable tuple)
    outer: Size = ONE  # product of the output-only axes of weights
    repeats: Size = ONE  # product of repeated elements
    copies: Size = ONE  # product of repeated elements and of windows that are pieces of the output
    strides: Size = ONE  # product of the strides' factors
    leaders: tuple[tuple[int, str], ...] = ()  # for each weight, the first of its axes
    sums: tuple[Dim, ...] = ()  # the reductions
    increases: tuple[Increase, ...] = ()  # what widens the data on its way from the input
    weight_sums: tuple[frozenset[Dim], ...] = ()  # for each weight, the reductions below it


@dataclass(frozen=True)
class State:
    """A partial operator. Equal states have equal dims; how they were built plays no part.

    Attributes:
        live: the dims that something may still go on top of, and the axes of weights, sorted by id.
        expansions: the dims that index no tensor, sorted by id.
        ends: what follows from them, kept so that it is not counted anew.
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
        """The number of primitives so far."""
        return self.ends.counts.steps

    @cached_property
    def data(self) -> tuple[Dim, ...]:
        """The live dims but the axes of weights."""
        return tuple(dim for dim in self.live if not dim.is_weight_side)

    @cached_property
    def id(self) -> str:
        """Content id, the same in every process."""
        return content_id("state", *(dim.id for dim in self.live), "expand", *(dim.id for dim in self.expansions))

    def replaced(self, bottoms: Iterable[Dim], tops: Iterable[Dim], expanded: Iterable[Dim], ends: Ends) -> State:
        """The state in which `bottoms` are no longer live, `tops` are, and `expanded` are expanded."""
        gone = set(bottoms)
        live = [dim for dim in self.live if dim not in gone]
        live += tops
        live.sort(key=_by_id)
        more = tuple(expanded)
        expansions = self.expansions if not more else tuple(sorted((*self.expansions, *more), key=_by_id))
        return State(tuple(live), expansions, ends)


def _by_id(dim: Dim) -> str:
    return dim.id


def more(ends: Ends, usage: Usage, **counts: int) -> Ends:
    """What is used up after a step that takes `usage` and adds to these counts."""
    now = ends.counts._replace(**{name: getattr(ends.counts, name) + number for name, number in counts.items()})
    return replace(ends, usage=tuple(a + b for a, b in zip(ends.usage, usage, strict=True)), counts=now)
