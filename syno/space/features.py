"""Features of an operator: numbers from which models predict its quality and speed.

They are computed from the operator's graph and the sizes of its spec; nothing is trained or timed.

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
APPLIED = {1: "once", 2: "twice"}  # number of applications for which reading is computed
READING = (
    "share",
    "least positions",
    "most positions",
    "own position",
    "neighbours",
    "overlap",
)  # besides one number for each axis


class OperatorFeatures:
    """Computes the features of operators, one number for each of `columns`. Sizes and costs are logarithms to base 2.

    reading     the number of positions that an output element reads along each axis of the input; the minimum and maximum over
                the axes other than channels; whether its own position and the neighbours on both sides are read; the
                intersection over union with the positions that a convolution reads, whose window is the number of positions
                that the spec requires, or 3; all of this for the operator applied once and twice (0 if the output's shape
                differs from the input's)
    costs       FLOPs, parameters and memory of the spec's network with the operator, and of the stages of one layer
    primitives  the number of each kind, and of weights
    weights     elements of the smallest and the largest, products of the sums, the narrowest result between two stages

    Reading and stages are computed for one layer of the spec: the smallest layer with equal input and output shapes whose axes
    are long enough for a window applied twice.

    Attributes:
        columns: names of the features.
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
        """Names of the features, in order."""
        return (
            *(f"{times}: {quantity}" for times in APPLIED.values() for quantity in (*self._axes.values(), *READING)),
            *("FLOPs", "parameters", "memory", "stages", "FLOPs of a layer", "largest stage", "narrowest result"),
            *(f"{name}s" for name in TABLE),
            *("weights", "smallest weight", "largest weight", "smallest sum", "largest sum", "sums"),
        )

    def __call__(self, operator: PGraph) -> tuple[float, ...]:
        """Return the features of an operator, in the order of `columns`.

        Raises SizeError, ValuationError or LoweringError for an operator that does not fit the spec's layers.
        """
        numbers = self._known.get(operator.id)
        if numbers is None:
            values = {name: value for name, value in self._row.items() if name in operator.variables}
            numbers = self._known[operator.id] = (
                *(number for times in APPLIED for number in self._reading(operator, values, times)),
                *self._costs(operator, operator.valuation(values)),
                *_primitives(operator),
                *_weights(operator, operator.valuation(values)),
            )
        return numbers

    @cached_property
    def _row(self) -> Mapping[str, int]:
        """The values of the variables in the layer whose reading and stages are computed.

        A batch axis bound to the output has size 1.
        """
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
        except SizeError:  # the output's shape differs from the input's, or the support is too large
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
    """Return an operator's plan with the fewest FLOPs; among equals, the plan with the most stages."""
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
    """Return whether both neighbours of the operator's own position are read along an axis."""
    sides = [[*own[:axis], own[axis] + step, *own[axis + 1 :]] for step in (-1, 1)]
    return all(0 <= side[axis] < read.shape[axis] and bool(read[tuple(side)]) for side in sides)


def _overlap(read: np.ndarray, own: Sequence[int], reach: int) -> float:
    """Return the intersection over union of the positions read and the box of `reach` positions around `own`."""
    around = np.zeros_like(read)
    around[tuple(slice(max(place - reach, 0), place + reach + 1) for place in own)] = True
    return float((read & around).sum() / max((read | around).sum(), 1))


def _log(value: float) -> float:
    return math.log2(max(value, 1))
