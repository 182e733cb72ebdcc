"""An operator as a program of `torch.export`, or as an ONNX file: for one set of sizes, batches of any, with new weights."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from syno.base.errors import LoweringError, MissingPackageError
from syno.base.files import write_whole
from syno.ir.graph import PGraph
from syno.measure.subjects import Material
from syno.report.take_home.check import at_lengths, checked

NEEDS_FOR_ONNX = ("onnx", "onnxscript", "onnxruntime")


def write_program(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write a program that `torch.export.load` reads, and that can be trained; returns how it was checked.

    Args:
        operator: the operator.
        file: where it goes.
        values: sizes; of axes that may have any length, such as a batch, they are not looked at.

    Raises:
        WrongOutputError: the program, read again, does not compute what the operator means; nothing is written.
        LoweringError: the operator cannot be lowered, or PyTorch cannot export its module.
        ValuationError, SizeError: a value is missing, unknown, or does not divide.
    """
    materials = at_lengths(operator, values)
    buffer = BytesIO()
    torch.export.save(_exported(operator, materials[-1]), buffer)
    read_again = torch.export.load(BytesIO(buffer.getvalue())).module()
    how = checked(operator, "the exported program", read_again, materials)
    write_whole(file, buffer.getvalue())
    return how


def write_onnx(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write an ONNX file whose input is `x` and whose output is `y`; returns how it was checked, in ONNX Runtime.

    Args and what it raises as `write_program`; MissingPackageError where ONNX is not installed.
    """
    if missing := [name for name in NEEDS_FOR_ONNX if find_spec(name) is None]:
        raise MissingPackageError(f"ONNX files take {', '.join(missing)}, not installed here: pip install 'syno[onnx]'")
    import onnxruntime

    materials = at_lengths(operator, values)
    program = _exported(operator, materials[-1])
    with _without_asides():
        try:
            made = torch.onnx.export(
                program, input_names=["x"], output_names=["y"], dynamic_shapes=(_free_axes(operator),), verbose=False
            )
        except torch.onnx.OnnxExporterError as error:
            raise LoweringError(f"{operator.name} cannot be written as ONNX: {_first_line(error)}") from error
    content = made.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    how = checked(operator, "the ONNX file", lambda x: torch.from_numpy(session.run(["y"], {"x": x.numpy()})[0]), materials)
    write_whole(file, content)
    return how


def _exported(operator: PGraph, material: Material) -> Any:
    """The module as a `torch.export.ExportedProgram`, for all lengths of the axes that may have any."""
    lengths = {name: torch.export.Dim(name) for name in operator.runtime_variables}
    free = {axis: lengths[name] for axis, name in _free_axes(operator).items()}
    with _without_asides():
        try:
            return torch.export.export(material.module, material.make_inputs(), dynamic_shapes=(free,) if free else None)
        except Exception as error:  # of very many kinds
            raise LoweringError(f"{operator.name} cannot be exported by PyTorch: {_first_line(error)}") from error


def _free_axes(operator: PGraph) -> dict[int, str]:
    """The input's axes that may have any length, and the variable that each is."""
    names = {axis: str(dim.size) for axis, dim in enumerate(operator.input)}
    return {axis: name for axis, name in names.items() if name in operator.runtime_variables}


@contextmanager
def _without_asides() -> Iterator[None]:
    """Without what PyTorch says of its own internals, and of packages that are not used here."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
