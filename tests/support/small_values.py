"""Small sizes for any operator: every primary different, everything divisible, borders within reach of every window."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from syno.algebra import Valuation, VariableKind
from syno.ir.graph import PGraph
from syno.lower.interpreter import shapes

COEFFICIENTS = {"k": 3, "k_1": 3, "k_2": 5, "g": 2, "s": 2, "t": 3, "r": 5, "u": 2}


def small_values(graph: PGraph, **given: int) -> Valuation:
    """A valuation with coefficients as small as can be told apart, and the smallest primaries that they divide."""
    values = dict(given)
    for name, variable in graph.variables.items():
        if variable.kind is VariableKind.COEFFICIENT:
            values.setdefault(name, COEFFICIENTS[name])
    for name, variable in graph.variables.items():
        if variable.kind is VariableKind.PRIMARY and name not in values:
            divisor = prod(
                values[other] ** max(-dim.size.exponent(coefficient) for dim in graph.labels if dim.size.exponent(variable) > 0)
                for other, coefficient in graph.variables.items()
                if coefficient.kind is VariableKind.COEFFICIENT
                and any(dim.size.exponent(coefficient) < 0 < dim.size.exponent(variable) for dim in graph.labels)
            )
            factor = 1
            while divisor * factor < 3 or divisor * factor in values.values():
                factor += 1
            values[name] = divisor * factor
    return graph.variables.valuation(values)


def random_tensors(graph: PGraph, values: Valuation, seed: int = 0) -> list[NDArray[np.float64]]:
    """An input and weights, normally distributed."""
    input_shape, weight_shapes, _ = shapes(graph, values)
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in (input_shape, *weight_shapes)]
