"""An operator as a library that TVM's runtime loads: for this machine's processor and one set of sizes, with new weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from syno.base.errors import LoweringError
from syno.base.files import write_whole
from syno.ir.graph import PGraph
from syno.lower.tvm.installed import tvm
from syno.measure.subjects import OperatorSubject
from syno.measure.tvm.compilation import TvmModule, built, fused, scheduled
from syno.measure.tvm.network import import_network
from syno.measure.tvm.targets import target
from syno.report.take_home.program import checked


def write_library(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write a shared library whose function "main" takes the input and returns the output; return how it was checked.

    Its loops are those of the tensor expressions: it is not tuned.

    Args:
        operator: the operator.
        file: the file to write.
        values: all sizes, the batch's, too.

    Raises:
        WrongOutputError: the library, loaded again, does not compute what the operator means; nothing is written.
        LoweringError: the operator cannot be lowered, or there is no C++ compiler to link with.
        MissingPackageError: TVM is not installed.
        ValuationError, SizeError: a value is missing, unknown, or does not divide.
    """
    module = tvm()
    material = OperatorSubject.of(operator, dict(operator.valuation(values))).make("cpu", 1)
    to = target("host")
    network = fused(import_network(material.module, *material.make_inputs()), to)
    executable = built(scheduled(network, to), to)
    with TemporaryDirectory(prefix="syno-library-") as folder:
        library = Path(folder) / "operator.so"
        try:
            executable.export_library(str(library))
        except (RuntimeError, ValueError, OSError) as error:
            said = str(error).strip().splitlines()[-1:]
            raise LoweringError(f"{operator.name}: its library cannot be linked (is g++ there?): {' '.join(said)}") from error
        call = TvmModule(module.runtime.load_module(str(library)), "cpu")
        how = checked(operator, "the library", call, [material])
        write_whole(file, library.read_bytes())
    return how
