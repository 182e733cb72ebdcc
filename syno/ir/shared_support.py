"""The support of many operators that have parts in common: each part is followed once.

Coordinates that have nothing to do with each other are in parts of their own (`syno.ir.relation`), such as the rows, the
columns and the channels of a convolution. A search meets the same parts in most of its operators, and one operator has the
same part at several positions of its output.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from syno.algebra import ONE, Valuation
from syno.ir.coordinates import Array
from syno.ir.dim import Dim, Operation, output_axis
from syno.ir.graph import PGraph
from syno.ir.relation import Passage, Table, relevant
from syno.ir.support import check_repeatable

REMEMBERED = 4096  # parts


@dataclass(eq=False)
class Combined:
    """Positions that coordinates take together.

    Attributes:
        columns: the positions of each dim; their rows are different from each other.
    """

    columns: dict[Dim, Array]
    _held: dict[tuple[Dim, ...], frozenset[tuple[int, ...]]] = field(default_factory=dict)
    _content: tuple[bytes, ...] | None = None

    def held(self, dims: tuple[Dim, ...]) -> frozenset[tuple[int, ...]]:
        """Return the positions that these of its dims take together."""
        found = self._held.get(dims)
        if found is None:
            found = self._held[dims] = frozenset(zip(*(self.columns[dim].tolist() for dim in dims), strict=True))
        return found

    @property
    def content(self) -> tuple[bytes, ...]:
        """The positions as a value that can be compared."""
        if self._content is None:
            self._content = tuple(column.tobytes() for column in self.columns.values())
        return self._content


Below = tuple[tuple[Dim, ...], Combined]  # dims, and positions that they take together


@dataclass(frozen=True, eq=False)
class _Part:
    """Operations that are connected with each other, from below; or none, and a single dim."""

    operations: tuple[Operation, ...]
    dims: frozenset[Dim]
    targets: tuple[Dim, ...] = ()

    def with_(self, other: _Part) -> _Part:
        """Return both as one part."""
        operations = sorted((*self.operations, *other.operations), key=lambda operation: operation.tops[0].height)
        return _Part(tuple(operations), self.dims | other.dims, (*self.targets, *other.targets))


@dataclass(eq=False)
class SharedSupport:
    """Finds the support of operators at one valuation.

    Attributes:
        valuation: values of all variables.
    """

    valuation: Valuation
    _known: dict[tuple[Any, ...], tuple[Combined, ...] | None] = field(default_factory=dict)
    _single: dict[int, Combined] = field(default_factory=dict)

    def of(self, graph: PGraph, applied: int) -> OperatorSupport:
        """Return the support of an operator that is applied so often.

        Raises SizeError if a size of it is not a whole number, or it cannot be applied to its own output.
        """
        valuation = graph.valuation({name: self.valuation[name] for name in graph.variables})
        if applied > 1:
            check_repeatable(graph, valuation)
        return OperatorSupport(self, graph, applied)

    def through(self, graph: PGraph, needed: set[Dim], part: _Part, given: Sequence[Below]) -> tuple[Combined, ...] | None:
        """Return the positions of a part's targets, combined where they depend on each other; None if nothing is read."""
        key = (*part.operations, *part.targets, *((dims, combined.content) for dims, combined in given))
        if key in self._known:
            return self._known[key]
        tables: list[Table] = [dict(zip(dims, combined.columns.values(), strict=True)) for dims, combined in given]
        passage = Passage(graph, self.valuation, part.targets, through=(part.operations, needed))
        found = passage.through(tables, [])
        is_empty = passage.is_empty or any(not len(column) for table in found for column in table.values())
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[key] = None if is_empty else tuple(map(_combined, found))
        return self._known[key]

    def position(self, place: int) -> Combined:
        """Return a single position, of any dim."""
        found = self._single.get(place)
        if found is None:
            found = self._single[place] = Combined({_ANY: np.array([place])})
        return found


_ANY = output_axis(0, ONE)  # in place of the dim of a single position


def _combined(table: Table) -> Combined:
    return Combined({dim: column for dim, column in table.items() if isinstance(dim, Dim)})


class OperatorSupport:
    """The support of one operator's elements at one valuation."""

    def __init__(self, shared: SharedSupport, graph: PGraph, applied: int) -> None:
        self.shared, self.graph, self.applied = shared, graph, applied
        self._operations, self._needed = relevant(graph, graph.input)
        self._part_of = _parts(self._operations, graph.input)
        self._below = dict(zip(graph.input, graph.output, strict=False))  # the output's axes of the application below

    def at(self, position: Sequence[int]) -> tuple[Combined, ...] | None:
        """Return the positions of the input on which the element of the output depends: every combination of one of each.

        None if it depends on nothing. Raises LoweringError as `relation` does.
        """
        given: list[Below] = [
            ((dim,), self.shared.position(place)) for dim, place in zip(self.graph.output, position, strict=True)
        ]
        found: list[Combined] = []
        for time in range(self.applied):
            if time:
                given = [(tuple(self._below[dim] for dim in combined.columns), combined) for combined in found]
            found = []
            for part, tables in self._with_tables(given):
                after = self.shared.through(self.graph, self._needed, part, tables)
                if after is None:
                    return None
                found += after
        return tuple(found)

    def _with_tables(self, given: Sequence[Below]) -> list[tuple[_Part, list[Below]]]:
        """Return the parts, each with the positions below it. Parts that share some are one."""
        merged = {id(part): (part, list[Below]()) for part in self._part_of.values()}
        place = {number: number for number in merged}
        for table in given:
            numbers = list(dict.fromkeys(place[id(self._part_of[dim])] for dim in table[0] if dim in self._part_of))
            for other in numbers[1:]:
                first, tables = merged[numbers[0]]
                second, more = merged.pop(other)
                merged[numbers[0]] = (first.with_(second), tables + more)
                place = {number: numbers[0] if now == other else now for number, now in place.items()}
            if numbers:
                merged[numbers[0]][1].append(table)
        return list(merged.values())


def _parts(operations: Iterable[Operation], targets: Iterable[Dim]) -> dict[Dim, _Part]:
    """Return the part of each dim. `operations` come from below."""
    part_of: dict[Dim, _Part] = {}
    for operation in operations:
        part = _Part((operation,), frozenset((*operation.bottoms, *operation.tops)))
        for other in {id(other): other for dim in operation.bottoms if (other := part_of.get(dim)) is not None}.values():
            part = part.with_(other)
        part_of |= dict.fromkeys(part.dims, part)
    for dim in targets:
        part = part_of.get(dim) or _Part((), frozenset((dim,)))
        part_of |= dict.fromkeys(part.dims, replace(part, targets=(*part.targets, dim)))
    return part_of
