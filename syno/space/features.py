"""Numbers that describe an operator, for models that predict how good or how fast it is.

They follow from the operator's graph and the sizes of its spec alone; nothing is trained or timed.

>>> from syno.space.presets import preset
>>> import syno
>>> features = OperatorFeatures(preset("resnet18"))
>>> found = dict(zip(features.columns, features(syno.OPERATORS["operator_1"]()), strict=True))
>>> [round(2 ** found[f"{times}: least positions"]) for times in ("once", "twice")]
[3, 5]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from syno.algebra import Valuation, Valuations
from syno.base.errors import SizeError
from syno.ir.graph import PGraph
from syno.ir.primitives import TABLE
from syno.ir.support import support
from syno.lower.plan import Plan
from syno.lower.plan import candidates as plans
from syno.space.complete import cost
from syno.space.spec import OperatorSpec

LONG_ENOUGH = 9  # positions of an axis, which windows of 5 applied twice do not exceed
APPLIED = {1: "once", 2: "twice"}  # how often the operator is applied before its reading is looked at
READING = ("share", "least positions", "most positions", "own position", "neighbours", "overlap")  # beside one for each axis


class OperatorFeatures:
    """A function from operators to numbers, one for each of `columns`. Sizes and costs are logarithms to base 2.

    reading     how many positions of each axis of the input an output element depends on; the least and the most over the
                axes that are no channels; whether its own position and the neighbours on both sides are among them; the overlap
                with the positions that a convolution reads, as intersection over union, whose window is the number of positions
                that the spec requires, or 3; all of this
                for the operator applied once and twice (0 where the output has another shape than the input)
    costs       FLOPs, parameters and memory of the spec's network with the operator, and of the stages of one layer
    primitives  how many of each, and of weights
    weights     elements of the smallest and the largest, products of the sums, the narrowest result between two stages

    Reading and stages are those of one layer of the spec: of those with input and output of equal shape the smallest whose
    axes are long enough to see a window applied twice.

    Attributes:
        columns: names of the numbers.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self._known: dict[str, tuple[float, ...]] = {}
        bound = {into for _, into in spec.bound_axes}
        names = [str(size) for size in spec.input_sizes]
        self._axes = {
            axis: name if names.count(name) == 1 else f"{name} {names[: axis + 1].count(name)}"
            for axis, name in enumerate(names)
            if axis not in bound
        }
        self._window = max([3, *(spec.reads.positions.values() if spec.reads is not None else ())])
        self._places = [axis for axis in self._axes if axis not in spec.unordered_input]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers, in order."""
        return (
            *(f"{times}: {what}" for times in APPLIED.values() for what in (*self._axes.values(), *READING)),
            *("FLOPs", "parameters", "memory", "stages", "FLOPs of a layer", "largest stage", "narrowest result"),
            *(f"{name}s" for name in TABLE),
            *("weights", "smallest weight", "largest weight", "smallest sum", "largest sum", "sums"),
        )

    def __call__(self, operator: PGraph) -> tuple[float, ...]:
        """Return the numbers of an operator.

        Raises SizeError, ValuationError or LoweringError for an operator that does not fit the spec's layers.
        """
        found = self._known.get(operator.id)
        if found is None:
            values = {name: value for name, value in self._row.items() if name in operator.variables}
            found = self._known[operator.id] = (
                *(number for times in APPLIED for number in self._reading(operator, values, times)),
                *self._costs(operator, operator.valuation(values)),
                *_primitives(operator),
                *_weights(operator, operator.valuation(values)),
            )
        return found

    @cached_property
    def _row(self) -> Mapping[str, int]:
        """The values of the layer that is looked at. The batch is one example where it goes through unchanged."""
        bound = {name for _, into in self.spec.bound_axes for name in map(str, [self.spec.input_sizes[into]])}

        def shapes(row: Valuation) -> list[list[int]]:
            return [[row.integer(size) for size in sizes] for sizes in (self.spec.input_sizes, self.spec.output_sizes)]

        rows = [row for row in self.spec.valuations if shapes(row)[0] == shapes(row)[1]] or list(self.spec.valuations)
        lengths = [min((shapes(row)[0][axis] for axis in self._places), default=1) for row in rows]
        least = min(
            zip(lengths, rows, strict=True),
            key=lambda pair: (-min(pair[0], LONG_ENOUGH), math.prod(shapes(pair[1])[0]), tuple(pair[1].values())),
        )[1]
        return {name: 1 if name in bound else value for name, value in least.items()}

    def _reading(self, operator: PGraph, values: Mapping[str, int], applied: int) -> Iterator[float]:
        try:
            read = support(operator, values, applied=applied)
        except SizeError:  # another shape than the input's, or too much to follow
            yield from [0.0] * (len(self._axes) + len(READING))
            return
        lines = {axis: read.any(axis=tuple(other for other in range(read.ndim) if other != axis)) for axis in self._axes}
        counts = {axis: _log(line.sum()) for axis, line in lines.items()}
        yield from counts.values()
        yield _log(read.sum())
        places = [counts[axis] for axis in self._places] or [0.0]
        yield from (min(places), max(places))
        own = [read.shape[axis] // 2 for axis in self._places]
        together = np.asarray(read.any(axis=tuple(axis for axis in range(read.ndim) if axis not in self._places)))
        yield float(bool(together[tuple(own)]))
        yield float(all(_around(together, own, axis) for axis in range(together.ndim)))
        yield _overlap(together, own, applied * (self._window // 2))

    def _costs(self, operator: PGraph, layer: Valuation) -> Iterator[float]:
        whole = cost(operator, self.spec)
        plan = cheapest(operator, layer)
        stages = plan.costs(layer)
        flops = sum(stage.flops for stage in stages)
        yield from map(_log, (whole.flops, whole.parameters, whole.memory_bytes))
        yield float(len(stages))
        yield _log(flops)
        yield max(stage.flops for stage in stages) / max(flops, 1)
        yield _log(min(math.prod(stage.result) for stage in stages))


def cheapest(operator: PGraph, values: Valuation) -> Plan:
    """Return the plan with the fewest FLOPs; of equal plans, that with the most stages."""
    return min(plans(operator, Valuations([values])), key=lambda plan: (plan.flops(), -len(plan.stages)))


def _primitives(operator: PGraph) -> Iterator[float]:
    counts = Counter(operation.primitive.name for operation in operator.operations)
    counts["Reduce"] = len(operator.reduces)
    yield from (float(counts[name]) for name in TABLE)


def _weights(operator: PGraph, values: Valuation) -> Iterator[float]:
    elements = [values.numel(dim.size for dim in weight) for weight in operator.weights] or [1]
    sums = [values.integer(dim.size) for dim in operator.reduces] or [1]
    yield float(len(operator.weights))
    yield from map(_log, (min(elements), max(elements), min(sums), max(sums), math.prod(sums)))


def _around(read: np.ndarray, own: Sequence[int], axis: int) -> bool:
    """Return whether the neighbours on both sides along an axis are read."""
    sides = [[*own[:axis], own[axis] + step, *own[axis + 1 :]] for step in (-1, 1)]
    return all(0 <= side[axis] < read.shape[axis] and bool(read[tuple(side)]) for side in sides)


def _overlap(read: np.ndarray, own: Sequence[int], reach: int) -> float:
    """Return the intersection over union of the positions read and those up to `reach` positions from the own one."""
    around = np.zeros_like(read)
    around[tuple(slice(max(place - reach, 0), place + reach + 1) for place in own)] = True
    return float((read & around).sum() / max((read | around).sum(), 1))


def _log(value: float) -> float:
    return math.log2(max(value, 1))
