"""Whether a file with weights in it computes what the operator means, for inputs of more than one length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from syno.base.errors import WrongOutputError
from syno.ir.graph import PGraph
from syno.measure.latency import relative_error
from syno.measure.subjects import Material, OperatorSubject

TOLERANCE = 1e-4  # in single precision, as a share of the largest value
LENGTHS = (1, 3)  # of axes that may have any: one alone is what exporters are fond of taking for a constant


def at_lengths(operator: PGraph, values: Mapping[str, int] | None) -> list[Material]:
    """The operator with the same weights for each of `LENGTHS`; once, where it has no axes that may have any length.

    Args:
        operator: the operator.
        values: sizes; of axes that may have any length they are not looked at.

    Raises ValuationError, SizeError: a value is missing, unknown, or does not divide.
    """
    free = sorted(operator.runtime_variables)
    fixed = {name: value for name, value in (values or {}).items() if name not in free}
    rows = [{**fixed, **{name: length + place for place, name in enumerate(free)}} for length in LENGTHS]
    return [OperatorSubject.of(operator, row).make("cpu", 1) for row in (rows if free else rows[:1])]


def checked(operator: PGraph, what: str, run: Callable[[torch.Tensor], torch.Tensor], materials: Sequence[Material]) -> str:
    """How it was checked that `run` computes what the operator means.

    Args:
        operator: the operator.
        what: was made of it, for the message.
        run: the file as it was read again.
        materials: inputs, and what has to come out.

    Raises WrongOutputError if it computes something else.
    """
    errors, shapes = [], []
    for material in materials:
        (x,) = material.make_inputs()
        with torch.no_grad():
            errors.append(relative_error(run(x), material.reference(x)))
        shapes.append("x".join(map(str, x.shape)))
    error = max(errors)
    if not error <= TOLERANCE:
        raise WrongOutputError(
            f"{what} of {operator.name} differs from its meaning by {error:.2g} of the largest value, where {TOLERANCE:g} is "
            "allowed, and is not written; please report the operator's text"
        )
    references = " and the ".join(dict.fromkeys(material.reference_name for material in materials))
    return f"equal to the {references} for inputs of {' and '.join(shapes)}: largest relative difference {error:.1g}"
