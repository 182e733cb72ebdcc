"""The formats to take an operator home in, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from syno.ir.graph import PGraph
from syno.registry import Registry
from syno.report.take_home.library import write_library
from syno.report.take_home.module import take_home
from syno.report.take_home.program import write_onnx, write_program
from syno.report.take_home.tensor_expressions import write_tensor_expressions


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        ending: of the names of its files.
        write: writes the operator, at these sizes, to a file that computes what it means, or raises; says how that was checked.
    """

    ending: str
    write: Callable[[PGraph, Path, Mapping[str, int] | None], str]


FORMATS: Registry[Format] = Registry("format of an operator")
FORMATS.register("module")(Format(".py", take_home))
FORMATS.register("export")(Format(".pt2", write_program))
FORMATS.register("onnx")(Format(".onnx", write_onnx))
FORMATS.register("tvm")(Format(".so", write_library))
FORMATS.register("te")(Format("_te.py", write_tensor_expressions))
