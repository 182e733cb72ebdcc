"""The check that an operator reads what a spec requires of it, from its index map alone.

The element in the middle of the output is looked at, in each replaced layer, at the layer's own sizes. An operator that is
applied twice is applied to its own output, so that there must be as many channels in as out: in a layer where the numbers
differ, both are their least common multiple, which every size that divides one of them divides, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import lcm

from syno.algebra import Valuation
from syno.base.errors import LoweringError, SizeError
from syno.ir.graph import PGraph
from syno.ir.support import Factor, factors
from syno.space.reads import Reads, paired
from syno.space.spec import OperatorSpec

Place = Mapping[int, int]  # positions along axes of the input, by the number of the axis


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
        return tuple(sorted(found.values(), key=lambda row: row.numel(self.spec.input_sizes)))

    def unmet(self, operator: PGraph) -> str | None:
        """Return what the operator reads too little of, in words, with what is required; None if it reads enough."""
        if self.reads is None:
            return None
        for row in self.rows:
            values = {name: row[name] for name in operator.variables}
            try:
                found = factors(operator, values, applied=self.reads.applied)
            except (SizeError, LoweringError) as error:
                return str(error)
            if (lack := self._lack(self.reads, _Read(found), row)) is not None:
                twice = " of the operator applied twice" if self.reads.applied > 1 else ""
                where = ", ".join(f"{name}={value}" for name, value in values.items())
                return f"the middle of the output{twice} {lack}; the sizes are {where}"
        return None

    def _lack(self, reads: Reads, read: _Read, row: Valuation) -> str | None:
        sizes = [row.integer(size) for size in self.spec.input_sizes]
        for axis in self._unordered if reads.channels == "all" else ():
            if (number := read.count(axis)) < sizes[axis]:
                return f"reads {number} of {sizes[axis]} positions of {self.spec.input_sizes[axis]} (reads: channels is all)"
        centre = {axis: row.integer(self.spec.output_sizes[out]) // 2 for axis, out in self.own.items()}
        near = {axis: self._near(axis, place, sizes[axis]) for axis, place in centre.items()}
        wide: list[int] = []
        for name, least in reads.positions.items():
            counts = [read.count(axis) for axis in self.asked[name]]
            fine = [axis for axis, number in zip(self.asked[name], counts, strict=True) if number >= least]
            if not fine or (reads.along == "every" and len(fine) < len(counts)):
                which = "each axis" if reads.along == "every" else "one axis"
                return f"reads {' and '.join(map(str, counts))} positions along {name} (reads: {name} is {least}, for {which})"
            if least > 1 and reads.along == "any" and reads.centred:
                if not any(read.holds(centre, {axis: near[axis]} if axis in near else {}) for axis in fine):
                    return f"does not read its own position and those beside it along {name} (reads: centred)"
            elif least > 1:
                wide += [axis for axis in fine if axis in near]
        if reads.centred and not read.holds(centre, {axis: near[axis] for axis in wide}):
            beside = " and all those beside it" if wide else ""
            return f"does not read its own position{beside} (reads: centred)"
        return None

    def _near(self, axis: int, place: int, size: int) -> range:
        """Return a position and its neighbours inside the borders; of a causal axis, only the neighbour before."""
        last = place if str(self.spec.input_sizes[axis]) in self.spec.causal else place + 1
        return range(max(0, place - 1), min(last, size - 1) + 1)


@dataclass
class _Read:
    """The positions of the input that are read: the product of factors."""

    factors: tuple[Factor, ...]

    def count(self, axis: int) -> int:
        """Return the number of different positions along an axis."""
        if not all(len(factor.positions) for factor in self.factors):
            return 0
        factor = next(factor for factor in self.factors if axis in factor.axes)
        return len(set(factor.positions[:, factor.axes.index(axis)].tolist()))

    def holds(self, place: Place, near: Mapping[int, Iterable[int]]) -> bool:
        """Return whether a place is read with some position along each axis that it leaves open.

        Args:
            place: positions along axes.
            near: for some of these axes, positions in the place of one; every combination of them must be read.
        """
        for factor in self.factors:
            given = [axis for axis in factor.axes if axis in place]
            columns = [factor.axes.index(axis) for axis in given]
            held = set(map(tuple, factor.positions[:, columns].tolist()))
            if not held.issuperset(product(*(near.get(axis, (place[axis],)) for axis in given))):
                return False
        return True
