"""The check of a spec's reading requirement, on the operator's index map.

It is checked for the middle element of the output, in each replaced layer, at the layer's sizes. An operator that is applied
twice needs equal numbers of input and output channels: in a layer where they differ, both are replaced by their least common
multiple, which keeps all sizes whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import lcm

import numpy as np

from syno.algebra import Valuation
from syno.base.errors import LoweringError, SizeError
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.support import Relation, Steps, relation
from syno.space.reads import Reads, least_positions, paired
from syno.space.spec import OperatorSpec


@dataclass
class Requirements:
    """The check of one spec's reading requirement.

    Attributes:
        spec: the spec.
        asked: for each size in the requirement, the axes of the input of this size.
        own: for each ordered axis of the input, its axis of the output, of equal size and in the same order.
    """

    spec: OperatorSpec

    def __post_init__(self) -> None:
        spec, bound = self.spec, {into for _, into in self.spec.bound_axes}
        self.reads: Reads | None = spec.reads
        free = [axis for axis in range(len(spec.input_sizes)) if axis not in bound]
        self._unordered = [axis for axis in free if axis in spec.unordered_input]
        ordered = [axis for axis in free if axis not in spec.unordered_input]
        positions = spec.reads.positions if spec.reads is not None else {}
        self.asked = {name: [axis for axis in free if str(spec.input_sizes[axis]) == name] for name in positions}
        self.own: dict[int, int] = {}
        outputs = [out for out in range(len(spec.output_sizes)) if out not in {out for out, _ in spec.bound_axes}]
        for axis in ordered:
            same = [out for out in outputs if spec.output_sizes[out] is spec.input_sizes[axis]]
            if same:
                self.own[axis] = axis if axis in same else same[0]
                outputs.remove(self.own[axis])

    @cached_property
    def rows(self) -> tuple[Valuation, ...]:
        """The distinct valuations at which operators are checked, those with small inputs first."""
        assert self.reads is not None
        pairs = paired(self.spec.input_sizes, self.spec.output_sizes) if self.reads.applied > 1 else None
        distinct: dict[tuple[tuple[str, int], ...], Valuation] = {}
        for row in self.spec.valuations:
            values = dict(row)
            for _ in pairs or ():  # as often as a chain of pairs is long
                for first, other in pairs or ():
                    values[first.name] = values[other.name] = lcm(values[first.name], values[other.name])
            distinct[tuple(values.items())] = Valuation(values)
        # Small inputs first: most operators that read too little do so there already, and it takes the least time.
        return tuple(sorted(distinct.values(), key=lambda row: row.numel(self.spec.input_sizes)))

    @cached_property
    def _steps(self) -> tuple[Steps, ...]:
        # Operators of a search share most parts: without their steps, random walks take an eighth more time.
        return tuple({} for _ in self.rows)

    def unmet(self, operator: PGraph) -> str | None:
        """Return in words the axis along which the operator reads too little, with the requirement; None if it reads enough."""
        if self.reads is None:
            return None
        for row, steps in zip(self.rows, self._steps, strict=True):
            values = {name: row[name] for name in operator.variables}
            try:
                reading = _Reading(operator, operator.valuation(values), self.reads.applied, steps)
                lack = self._lack(self.reads, reading, row)
            except (SizeError, LoweringError) as error:
                return str(error)
            if lack is not None:
                twice = " of the operator applied twice" if self.reads.applied > 1 else ""
                where = ", ".join(f"{name}={value}" for name, value in values.items())
                return f"the middle of the output{twice} {lack}; the sizes are {where}"
        return None

    def _lack(self, reads: Reads, reading: _Reading, row: Valuation) -> str | None:
        read, sizes = reading.at({}), [row.integer(size) for size in self.spec.input_sizes]
        for axis in self._unordered if reads.channels == "all" else ():
            if (number := read.count(axis)) < sizes[axis]:
                return f"reads {number} of {sizes[axis]} positions of {self.spec.input_sizes[axis]} (reads: channels is all)"
        runs: dict[int, list[range]] = {}  # of each axis that is asked for, those of which one must be read
        for name, wanted in reads.positions.items():
            least = least_positions(wanted, sizes[self.asked[name][0]])
            counts = [read.count(axis) for axis in self.asked[name]]
            fine = [axis for axis, number in zip(self.asked[name], counts, strict=True) if number >= least]
            if not fine or (reads.along == "every" and len(fine) < len(counts)):
                axes = "each axis" if reads.along == "every" else "one axis"
                return f"reads {' and '.join(map(str, counts))} positions along {name} (reads: {name} is {least}, for {axes})"
            if least == 1 or not reads.centred:
                continue
            beside = f"{least} positions side by side along {name}, its own among them (reads: centred)"
            alone = [{axis: self._runs(axis, least, sizes[axis])} if axis in self.own else {} for axis in fine]
            if reads.along == "every":
                runs |= {axis: ranges for choice in alone for axis, ranges in choice.items()}
            elif not any(self._reads_around(reading, choice, sizes) for choice in alone):
                return f"does not read {beside}"
        if reads.centred and not self._reads_around(reading, runs, sizes):
            if not runs:
                return "does not read its own position (reads: centred)"
            return "does not read, whole, a square of positions side by side around its own (reads: centred)"
        return None

    def _runs(self, axis: int, least: int, size: int) -> list[range]:
        """Return all runs of `least` adjacent positions that contain the middle; they may wrap around the border.

        Along a causal axis, there is one run, which ends at the middle and is cut at the border.
        """
        middle = size // 2
        if str(self.spec.input_sizes[axis]) in self.spec.causal:
            return [range(max(0, middle + 1 - least), middle + 1)]
        return [range(first, first + least) for first in range(middle + 1 - least, middle + 1)]

    def _reads_around(self, reading: _Reading, runs: Mapping[int, Sequence[range]], sizes: Sequence[int]) -> bool:
        """Return whether the middle element reads a run along each axis (all combinations), and whether the middle is crossed.

        It is crossed if, of two adjacent output elements, one reads the position of the other. An operator that reads separate
        blocks crosses no border between blocks.
        """
        own = {axis: sizes[axis] // 2 for axis in self.own}
        whole = {axis: [[place % sizes[axis] for place in run] for run in choices] for axis, choices in runs.items()}
        if not reading.at({}).holds(own, whole):
            return False
        for axis in runs:
            both = {axis: [[own[axis] - 1, own[axis]]]}
            if not (reading.at({}).holds(own, both) or reading.at({self.own[axis]: own[axis] - 1}).holds(own, both)):
                return False
        return True


@dataclass
class _Reading:
    """The input positions that elements of the output read.

    Attributes:
        graph: the operator.
        valuation: values of its variables.
        applied: how often the operator is applied, to its own output from the second time on.
        steps: cache of the reading's steps, shared with other operators at the same sizes.
    """

    graph: PGraph
    valuation: Valuation
    applied: int
    steps: Steps
    _known: dict[tuple[int, ...], _Read] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._middle = tuple(self.valuation.integer(dim.size) // 2 for dim in self.graph.output)

    def at(self, moved: Mapping[int, int]) -> _Read:
        """Return the positions read by the middle element, moved to the positions `moved` along output axes."""
        position = tuple(moved.get(axis, place) for axis, place in enumerate(self._middle))
        if position not in self._known:
            read = relation(self.graph, self.valuation, dict(enumerate(position)), applied=self.applied, steps=self.steps)
            self._known[position] = _Read(self.graph.input, read)
        return self._known[position]


@dataclass
class _Read:
    """The set of input positions that one output element reads."""

    axes: tuple[Dim, ...]
    relation: Relation

    def count(self, axis: int) -> int:
        """Return the number of different positions that are read along an axis."""
        if self.relation.is_empty:
            return 0
        return len(np.unique(next(table[self.axes[axis]] for table in self.relation.tables if self.axes[axis] in table)))

    def holds(self, place: Mapping[int, int], near: Mapping[int, Sequence[Sequence[int]]]) -> bool:
        """Return whether some position at `place` is read, with the other axes free.

        Args:
            place: positions along axes of the input, by the number of the axis.
            near: for some of these axes, alternative sets of positions instead of the single one. For one set of each axis,
                every combination must be read.
        """
        for table in self.relation.tables:
            along = [axis for axis in place if self.axes[axis] in table]
            if not along:
                continue
            held = set(zip(*(table[self.axes[axis]].tolist() for axis in along), strict=True))
            ways = product(*(near.get(axis, [(place[axis],)]) for axis in along))
            if not any(held.issuperset(product(*way)) for way in ways):
                return False
        return not self.relation.is_empty
