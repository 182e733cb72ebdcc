"""Whether generated source that holds for all sizes computes what the interpreter does, at small ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syno.algebra import Valuation
from syno.base.errors import SizeError, WrongOutputError
from syno.ir.graph import PGraph
from syno.lower.interpreter import interpret, shapes
from syno.lower.plan import nominal_values
from syno.space.identity.valuations import MOST_SUMMANDS, own_valuations

Array: TypeAlias = NDArray[Any]
MOST_ELEMENTS = 100_000_000  # of one tensor
TOLERANCE = 1e-9  # in double precision, as a share of the largest value


def equal_to_meaning(operator: PGraph, what: str, compute: Callable[[Valuation, list[Array]], Array]) -> str:
    """How it was checked that `compute` is the operator.

    Args:
        operator: the operator.
        what: was made of it, for the message.
        compute: the output for these sizes, of input and weights in double precision.

    Raises WrongOutputError if it computes something else.
    """
    rows = own_valuations(operator)
    error = max(_error(operator, compute, row, seed) for seed, row in enumerate(rows))
    if not error <= TOLERANCE:
        raise WrongOutputError(
            f"{what} of {operator.name} differs from its meaning by {error:.2g} of the largest value, where {TOLERANCE:g} "
            "is allowed; this is a mistake in Syno: please report the operator's text"
        )
    return f"equal to the interpreter at {len(rows)} sets of sizes in double precision: largest relative difference {error:.1g}"


def with_nominal_lengths(operator: PGraph, values: Mapping[str, int]) -> Valuation:
    """The sizes, and nominal ones for variables that no computation needs, such as a batch size, where they are not given.

    Raises ValuationError, SizeError: another value is missing, or one is unknown or does not divide.
    """
    nominal = nominal_values(operator)
    return operator.valuation({**{name: nominal[name] for name in operator.runtime_variables}, **values})


def check_comparable(operator: PGraph) -> None:
    """Raise SizeError if the operator is too large to be compared with its meaning, even at small sizes."""
    for row in own_valuations(operator):
        tensors = (operator.input, operator.output, *operator.weights)
        elements = max(row.numel(dim.size for dim in dims) for dims in tensors)
        summands = row.numel(dim.size for dim in (*operator.output, *operator.reduces))
        if elements > MOST_ELEMENTS or summands > MOST_SUMMANDS:
            raise SizeError(
                f"{operator.name} is too large to be compared with its meaning: for {row} it has tensors of {elements:.3g} "
                f"elements, of at most {MOST_ELEMENTS:.3g}, and {summands:.3g} summands, of at most {MOST_SUMMANDS:.3g}"
            )


def _error(operator: PGraph, compute: Callable[[Valuation, list[Array]], Array], values: Valuation, seed: int) -> float:
    """How far what is computed is from the interpreter, as a share of the largest value; infinite for another shape."""
    random = np.random.default_rng(seed)
    input_shape, weight_shapes, _ = shapes(operator, values)
    tensors = [random.normal(size=shape) for shape in (input_shape, *weight_shapes)]
    wanted, found = interpret(operator, values, *tensors), compute(values, tensors)
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), np.finfo(np.float64).tiny))
