"""An operator as a program of `torch.export` or as an ONNX file, with new weights, for any batch, height, width and length.

Before the file is written, its content is loaded, and its output is compared with what the operator means.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from syno.base.errors import LoweringError, MissingPackageError, WrongOutputError
from syno.base.files import write_whole
from syno.ir.graph import PGraph
from syno.measure.expected import Deviation
from syno.measure.output_check import OutputCheck
from syno.measure.reference import Material
from syno.measure.subjects import OperatorSubject

NEEDS_FOR_ONNX = ("onnx", "onnxscript", "onnxruntime")
LENGTHS = (1, 3)  # of axes that no computation depends on: exporters like to take a length of 1 for a constant


def write_program(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write a program that `torch.export.load` reads, and that can be trained; return how it was checked.

    Args:
        operator: the operator.
        file: the file to write.
        values: sizes. Of axes that may have any length, that of a batch is not used, and others are those of the example.

    Raises:
        WrongOutputError: the program, read again, does not compute what the operator means; nothing is written.
        LoweringError: the operator cannot be lowered, or PyTorch cannot export its module.
        ValuationError, SizeError: a value is missing, unknown, or does not divide.
    """
    materials = _at_lengths(operator, values)
    buffer = BytesIO()
    torch.export.save(_exported(operator, materials[-1]), buffer)
    read_again = torch.export.load(BytesIO(buffer.getvalue())).module()
    how = checked(operator, "the exported program", read_again, materials)
    write_whole(file, buffer.getvalue())
    return how


def write_onnx(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write an ONNX file whose input is `x` and whose output is `y`; return how it was checked, in ONNX Runtime.

    Args and errors are those of `write_program`; MissingPackageError if ONNX is not installed.
    """
    require_packages(NEEDS_FOR_ONNX, "ONNX files", "onnx")
    import onnxruntime

    materials = _at_lengths(operator, values)
    program = _exported(operator, materials[-1])
    with without_warnings():
        try:
            made = torch.onnx.export(
                program, input_names=["x"], output_names=["y"], dynamic_shapes=(_free_axes(operator),), verbose=False
            )
        except torch.onnx.OnnxExporterError as error:
            raise LoweringError(f"{operator.name} cannot be written as ONNX: {first_line(error)}") from error
    content = made.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    how = checked(operator, "the ONNX file", lambda x: torch.from_numpy(session.run(["y"], {"x": x.numpy()})[0]), materials)
    write_whole(file, content)
    return how


def checked(operator: PGraph, what: str, run: Callable[[torch.Tensor], torch.Tensor], materials: Sequence[Material]) -> str:
    """Return how it was checked that `run` computes what the operator means.

    Args:
        operator: the operator.
        what: the name of what was made of it, for the message.
        run: the file as it was read again.
        materials: inputs, and their references.

    Raises WrongOutputError if it computes something else.
    """
    found, shapes = Deviation(0.0, 0.0, None), []
    for material in materials:
        (x,) = material.make_inputs()
        check = OutputCheck(material.reference, [(x,)], simulated=material.simulated)
        with torch.no_grad():
            found = found.worse(check.of(run))
        shapes.append("x".join(map(str, x.shape)))
    if not found.of_allowed <= 1:
        raise WrongOutputError(
            f"{what} of {operator.name} differs from its meaning by {found.relative:.2g} of the largest value, and an element "
            f"by {found.of_allowed:.3g} times what rounding explains; it is not written; please report the operator's text"
        )
    references = " and the ".join(dict.fromkeys(material.reference_name for material in materials))
    return f"equal to the {references} for inputs of {' and '.join(shapes)}: largest relative difference {found.relative:.1g}"


def _at_lengths(operator: PGraph, values: Mapping[str, int] | None) -> list[Material]:
    """Return the operator with the same weights for inputs of two sizes; once, if it takes inputs of one size only.

    Axes that no computation depends on have `LENGTHS`; others that may have any length have the given one and its double.
    """
    free = sorted(operator.unchanged_variables)
    read = [name for name in sorted(operator.runtime_variables) if name not in free and name in (values or {})]
    given = {name: value for name, value in (values or {}).items() if name not in free}
    rows = [
        {
            **given,
            **{name: given[name] * factor for name in read},
            **{name: length + place for place, name in enumerate(free)},
        }
        for length, factor in zip(LENGTHS, (1, 2), strict=True)
    ]
    return [OperatorSubject.of(operator, row).make("cpu", 1) for row in (rows if free or read else rows[:1])]


def _exported(operator: PGraph, material: Material) -> Any:
    """Return the module as a `torch.export.ExportedProgram`, for all lengths of the axes that may have any."""
    batch = {
        axis: torch.export.Dim(name) for axis, name in _free_axes(operator).items() if name in operator.unchanged_variables
    }
    free = {axis: batch.get(axis, torch.export.Dim.DYNAMIC) for axis in _free_axes(operator)}
    with without_warnings():
        try:
            return torch.export.export(material.module, material.make_inputs(), dynamic_shapes=(free,) if free else None)
        except Exception as error:  # there are very many kinds
            raise LoweringError(f"{operator.name} cannot be exported by PyTorch: {first_line(error)}") from error


def _free_axes(operator: PGraph) -> dict[int, str]:
    """Return the input's axes that may have any length, each with its variable."""
    names = [{variable.name for variable in dim.size.variables} & operator.runtime_variables for dim in operator.input]
    return {axis: min(found) for axis, found in enumerate(names) if found}


def require_packages(names: Sequence[str], what: str, extra: str) -> None:
    """Raise MissingPackageError, which says how to install them, if one of the packages that `what` takes is missing."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise MissingPackageError(f"{what} take {', '.join(missing)}, not installed here: pip install 'syno[{extra}]'")


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence PyTorch's warnings about its own internals, and about packages that are not used here."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, shortened."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
