"""The check that an operator reads what a spec requires of it, from its index map alone.

The element in the middle of the output is looked at, in each replaced layer, at the layer's own sizes. An operator that is
applied twice is applied to its own output, so that there must be as many channels in as out: in a layer where the numbers
differ, both are their least common multiple, which every size that divides one of them divides, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import lcm

from syno.algebra import Valuation
from syno.base.errors import LoweringError, SizeError
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.support import Combined, OperatorSupport, SharedSupport
from syno.space.reads import Reads, least_positions, paired
from syno.space.spec import OperatorSpec


@dataclass
class Requirements:
    """The check of one spec's requirement.

    Attributes:
        spec: the spec.
        asked: for each size that the requirement names, the axes of the input of this size.
        own: for each ordered axis of the input, the axis of the output that it belongs to: of equal size, in order.
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
        """The values of the variables at which operators are checked, different ones only, those of small inputs first."""
        assert self.reads is not None
        pairs = paired(self.spec.input_sizes, self.spec.output_sizes) if self.reads.applied > 1 else None
        found: dict[tuple[tuple[str, int], ...], Valuation] = {}
        for row in self.spec.valuations:
            values = dict(row)
            for _ in pairs or ():  # as often as a chain of pairs is long
                for one, other in pairs or ():
                    values[one.name] = values[other.name] = lcm(values[one.name], values[other.name])
            found[tuple(values.items())] = Valuation(values)
        # Small inputs first: most operators that read too little do so there already, and it takes the least time.
        return tuple(sorted(found.values(), key=lambda row: row.numel(self.spec.input_sizes)))

    @cached_property
    def _supports(self) -> tuple[SharedSupport, ...]:
        return tuple(map(SharedSupport, self.rows))

    def unmet(self, operator: PGraph) -> str | None:
        """Return the axis along which the operator reads too little, and the requirement, in words; None if it reads enough."""
        if self.reads is None:
            return None
        for row, shared in zip(self.rows, self._supports, strict=True):
            values = {name: row[name] for name in operator.variables}
            middle = [row.integer(size) // 2 for size in self.spec.output_sizes]
            try:
                reading = _Reading(shared.of(operator, self.reads.applied), tuple(middle))
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
                which = "each axis" if reads.along == "every" else "one axis"
                return f"reads {' and '.join(map(str, counts))} positions along {name} (reads: {name} is {least}, for {which})"
            if least == 1 or not reads.centred:
                continue
            beside = f"{least} positions side by side along {name}, its own among them (reads: centred)"
            alone = [{axis: self._runs(axis, least, sizes[axis])} if axis in self.own else {} for axis in fine]
            if reads.along == "every":
                runs |= {axis: found for one in alone for axis, found in one.items()}
            elif not any(self._reads_around(reading, one, sizes) for one in alone):
                return f"does not read {beside}"
        if reads.centred and not self._reads_around(reading, runs, sizes):
            if not runs:
                return "does not read its own position (reads: centred)"
            return "does not read, whole, a square of positions side by side around its own (reads: centred)"
        return None

    def _runs(self, axis: int, least: int, size: int) -> list[range]:
        """Return the runs of this many neighbouring positions that contain the middle one; they may wrap around the border.

        Of a causal axis, the one that ends there, as far as positions before it are left.
        """
        middle = size // 2
        if str(self.spec.input_sizes[axis]) in self.spec.causal:
            return [range(max(0, middle + 1 - least), middle + 1)]
        return [range(first, first + least) for first in range(middle + 1 - least, middle + 1)]

    def _reads_around(self, reading: _Reading, runs: Mapping[int, Sequence[range]], sizes: Sequence[int]) -> bool:
        """Return whether a run along each of these axes is read, all combinations of their positions, and the middle crossed.

        It is crossed if one of the two elements beside it, along an axis, reads the position of the other. Where an operator
        reads blocks, neither does at their border.
        """
        own = {axis: sizes[axis] // 2 for axis in self.own}
        whole = {axis: [[place % sizes[axis] for place in run] for run in found] for axis, found in runs.items()}
        if not reading.at({}).holds(own, whole):
            return False
        for axis in runs:
            both = {axis: [[own[axis] - 1, own[axis]]]}
            if not (reading.at({}).holds(own, both) or reading.at({self.own[axis]: own[axis] - 1}).holds(own, both)):
                return False
        return True


@dataclass
class _Reading:
    """The positions that elements of the output read.

    Attributes:
        support: the support of an operator.
        middle: the position of the element in the middle.
    """

    support: OperatorSupport
    middle: tuple[int, ...]
    _known: dict[tuple[int, ...], _Read] = field(default_factory=dict)

    def at(self, moved: Mapping[int, int]) -> _Read:
        """Return the positions that the middle reads if it is moved to these positions along axes of the output."""
        position = tuple(moved.get(axis, place) for axis, place in enumerate(self.middle))
        found = self._known.get(position)
        if found is None:
            found = self._known[position] = _Read(self.support.graph.input, self.support.at(position))
        return found


@dataclass
class _Read:
    """The positions of the input that are read: every combination of one of each factor; none if there are no factors."""

    axes: tuple[Dim, ...]
    factors: tuple[Combined, ...] | None

    def count(self, axis: int) -> int:
        """Return the number of different positions along an axis."""
        if self.factors is None:
            return 0
        dim = self.axes[axis]
        return len(next(factor for factor in self.factors if dim in factor.columns).held((dim,)))

    def holds(self, place: Mapping[int, int], near: Mapping[int, Sequence[Sequence[int]]]) -> bool:
        """Return whether a place is read with some position along each axis that it leaves open.

        Args:
            place: positions along axes of the input, by the number of the axis.
            near: for some of these axes, sets of positions in the place of one. Of one set for each axis, every combination
                must be read.
        """
        for factor in self.factors or ():
            given = [axis for axis in place if self.axes[axis] in factor.columns]
            if not given:
                continue
            held = factor.held(tuple(self.axes[axis] for axis in given))
            ways = product(*(near.get(axis, [(place[axis],)]) for axis in given))
            if not any(held.issuperset(product(*way)) for way in ways):
                return False
        return self.factors is not None
