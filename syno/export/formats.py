"""An operator as source code that does not import Syno: a PyTorch module or TVM's tensor expressions, both for all sizes.

Before it is written, the source is compared with the interpreter at small sizes, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from syno.algebra import Valuation
from syno.base.errors import LoweringError, MissingPackageError, SizeError, SpecError, WrongOutputError, first_line
from syno.base.files import is_file, write_whole
from syno.base.registry import Registry
from syno.base.release import pip_install
from syno.ir.graph import PGraph
from syno.lower.interpreter import interpret, shapes
from syno.lower.plan import nominal_values
from syno.lower.pytorch.source import constructor_sizes, load_class, to_source
from syno.lower.tvm import to_te_source
from syno.lower.tvm.installed import tvm
from syno.lower.tvm.source import named_sizes
from syno.measure.onnx_model import PACKAGES, onnx_model, without_warnings
from syno.measure.output_check import Deviation, OutputCheck
from syno.measure.reference import Material
from syno.measure.subjects import OperatorSubject
from syno.measure.tvm.compilation import TvmModule, built, fused, scheduled
from syno.measure.tvm.network import import_network
from syno.measure.tvm.targets import target
from syno.space.identity.valuations import MOST_SUMMANDS, own_valuations

Array: TypeAlias = NDArray[Any]
Compute: TypeAlias = Callable[[Valuation, list[Array]], Array]  # the output, for sizes, input and weights

MOST_ELEMENTS = 100_000_000  # of one tensor
TOLERANCE = 1e-9  # in double precision, as a share of the largest value


def take_home(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write the source of the operator's module, which imports torch and nothing of Syno; return how it was checked.

    Args:
        operator: the operator.
        file: the file to write.
        values: sizes for which the order of loops and contractions is optimized; the module works with all other sizes, too.
            Sizes that may have any value, such as a batch size, can be left out.

    Raises:
        WrongOutputError: the module does not compute what the interpreter does; nothing is written.
        LoweringError: the operator cannot be lowered.
        ValuationError, SizeError: a value is missing or does not divide; or the operator is too large to be compared.
    """
    check_comparable(operator)
    source = to_source(operator, None if values is None else with_nominal_lengths(operator, values))
    how = equal_to_meaning(operator, "the module", lambda row, tensors: computed_by_module(operator, source, row, tensors))
    write_whole(file, source)
    return how


def write_tensor_expressions(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write Python source of TVM's tensor expressions; return how it was checked, built for this machine.

    Arguments and errors are as in `take_home`; MissingPackageError if TVM is not installed.
    """
    check_comparable(operator)
    tvm()
    text = to_te_source(operator, None if values is None else with_nominal_lengths(operator, values))
    how = equal_to_meaning(operator, "the tensor expressions", lambda row, given: _computed_by_tvm(operator, text, row, given))
    write_whole(file, text)
    return how


def with_nominal_lengths(operator: PGraph, values: Mapping[str, int]) -> Valuation:
    """Return the sizes, with nominal values for missing variables that may have any value, such as a batch size.

    Raises ValuationError, SizeError: another value is missing, or one is unknown or does not divide.
    """
    nominal = nominal_values(operator)
    return operator.valuation({**{name: nominal[name] for name in operator.unchanged_variables}, **values})


def equal_to_meaning(operator: PGraph, subject: str, compute: Compute) -> str:
    """Compare `compute` with the operator's interpreter at small sizes, and return the result in words.

    Args:
        operator: the operator.
        subject: the name of the code under test, for messages.
        compute: the code under test.

    Raises WrongOutputError if the outputs differ.
    """
    rows = own_valuations(operator)
    error = max(_error(operator, compute, row, seed) for seed, row in enumerate(rows))
    if not error <= TOLERANCE:
        raise WrongOutputError(
            f"{subject} of {operator.name} differs from its meaning by {error:.2g} of the largest value, where {TOLERANCE:g} "
            "is allowed; this is a mistake in Syno: please report the operator's text"
        )
    return f"equal to the interpreter at {len(rows)} sets of sizes in double precision: largest relative difference {error:.1g}"


def check_comparable(operator: PGraph) -> None:
    """Raise SizeError if the operator is too large to be compared with the interpreter, even at small sizes."""
    for row in own_valuations(operator):
        tensors = (operator.input, operator.output, *operator.weights)
        elements = max(row.numel(dim.size for dim in dims) for dims in tensors)
        summands = row.numel(dim.size for dim in (*operator.output, *operator.reduces))
        if elements > MOST_ELEMENTS or summands > MOST_SUMMANDS:
            raise SizeError(
                f"{operator.name} is too large to be compared with its meaning: for {row} it has tensors of {elements:.3g} "
                f"elements, of at most {MOST_ELEMENTS:.3g}, and {summands:.3g} summands, of at most {MOST_SUMMANDS:.3g}"
            )


def _error(operator: PGraph, compute: Compute, values: Valuation, seed: int) -> float:
    """Return the largest difference from the interpreter, as a share of the largest value; infinite for another shape."""
    random = np.random.default_rng(seed)
    input_shape, weight_shapes, _ = shapes(operator, values)
    tensors = [random.normal(size=shape) for shape in (input_shape, *weight_shapes)]
    wanted, found = interpret(operator, values, *tensors), compute(values, tensors)
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), np.finfo(np.float64).tiny))


def computed_by_module(operator: PGraph, source: str, values: Valuation, tensors: list[Array]) -> Array:
    """Return the output of the module that the source defines, for input and weights in double precision."""
    import torch

    data, *weights = tensors
    module = load_class(source, operator)(**constructor_sizes(operator, values)).double()
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
        output: Array = module(torch.from_numpy(data)).numpy()
    return output


def _computed_by_tvm(operator: PGraph, source: str, values: Valuation, tensors: list[Array]) -> Array:
    module = tvm()
    scope: dict[str, Any] = {"__name__": f"tensor_expressions_{operator.id}"}
    exec(compile(source, f"<tensor expressions of {operator.name}>", "exec"), scope)
    defined = scope["build"](**named_sizes(values), dtype="float64")
    operands, result = defined[: len(tensors)], defined[-1]
    function = module.te.create_prim_func([*operands, result]).with_attr("global_symbol", "main")
    executable = module.compile(module.IRModule({"main": function}), target=target("host"))
    output = _in_tvm(np.full(shapes(operator, values)[2], np.nan))  # an element that is not written stays NaN
    executable["main"](*map(_in_tvm, tensors), output)
    computed: Array = output.numpy()
    return computed


def _in_tvm(array: Array) -> Any:
    module = tvm()
    return module.runtime.empty(array.shape, "float64", module.cpu()).copyfrom(np.ascontiguousarray(array))


# The formats of files that an operator can be written to, by name; one of them is a library for TVM's runtime.


# An operator as a program of `torch.export` or as an ONNX file, with new weights, for any batch, height, width and length.
#
# Before the file is written, its content is loaded, and its output is compared with what the operator means.


NEEDS_FOR_ONNX = (*PACKAGES, "onnxruntime")
LENGTHS = (1, 3)  # of axes that no computation depends on: exporters like to take a length of 1 for a constant


def write_program(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write a program that `torch.export.load` reads, and that can be trained; return how it was checked.

    Args:
        operator: the operator.
        file: the file to write.
        values: sizes. The batch size is not used; other axes of symbolic length have these lengths in the example of the
            export.

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

    Arguments and errors are as in `write_program`; MissingPackageError if ONNX is not installed.
    """
    require_packages(NEEDS_FOR_ONNX, "ONNX files", "onnx")
    import onnxruntime

    materials = _at_lengths(operator, values)
    program = _exported(operator, materials[-1])
    content = onnx_model(program, operator.name, (_free_axes(operator),)).content
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    how = checked(operator, "the ONNX file", lambda x: torch.from_numpy(session.run(["y"], {"x": x.numpy()})[0]), materials)
    write_whole(file, content)
    return how


def checked(operator: PGraph, subject: str, run: Callable[[torch.Tensor], torch.Tensor], materials: Sequence[Material]) -> str:
    """Compare an exported file with the operator's reference outputs, and return the result in words.

    Args:
        operator: the operator.
        subject: the name of the file's kind, for the message.
        run: the function that was read back from the file.
        materials: inputs and their reference outputs.

    Raises WrongOutputError if the outputs differ.
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
            f"{subject} of {operator.name} differs from its meaning by {found.relative:.2g} of the largest value, and an "
            f"element by {found.of_allowed:.3g} times what rounding explains; it is not written; please report the "
            f"operator's text"
        )
    references = " and the ".join(dict.fromkeys(material.reference_name for material in materials))
    return f"equal to the {references} for inputs of {' and '.join(shapes)}: largest relative difference {found.relative:.1g}"


def _at_lengths(operator: PGraph, values: Mapping[str, int] | None) -> list[Material]:
    """Return the operator's weights with inputs and reference outputs of two sizes; of one, if it takes no other size.

    Axes such as the batch, on which no size depends, have `LENGTHS`; other free axes the length in `values`, and twice it.
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


def require_packages(names: Sequence[str], purpose: str, extra: str) -> None:
    """Raise MissingPackageError, which says how to install them, if one of the packages that `purpose` takes is missing."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise MissingPackageError(f"{purpose} take {', '.join(missing)}, not installed here: {pip_install(extra)}")


GENERATED = b"generated by Syno"  # in the first line of generated source


@dataclass(frozen=True)
class Format:
    """A file format in which an operator can be taken home.

    Attributes:
        ending: the suffix of its files.
        write: writes the operator at these sizes to a file, checks the file's outputs, and returns the check in words.
    """

    ending: str
    write: Callable[[PGraph, Path, Mapping[str, int] | None], str]


def check_own(file: Path) -> Path:
    """Return the file, if it may be written. SpecError if it is Python source of others, which must not be overwritten.

    The file is named after an operator, whose author may have chosen any name, such as `setup`.
    """
    if file.suffix == ".py" and is_file(file):
        with file.open("rb") as opened:
            if GENERATED not in opened.read(1_000):
                raise SpecError(f"{file} is there, and Syno did not write it; give the file to write with --output")
    return file


def write_library(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write a shared library whose function "main" takes the input and returns the output; return how it was checked.

    The library is for this machine's processor and one set of sizes, and has new weights. It is not tuned: its loops are in
    the order of the tensor expressions.

    Args:
        operator: the operator.
        file: the file to write.
        values: all sizes, including the batch size.

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


FORMATS: Registry[Format] = Registry("format of an operator")
FORMATS.register("module")(Format(".py", take_home))
FORMATS.register("export")(Format(".pt2", write_program))
FORMATS.register("onnx")(Format(".onnx", write_onnx))
FORMATS.register("tvm")(Format("_tvm.so", write_library))  # Python would import NAME.so in place of NAME.py
FORMATS.register("te")(Format("_te.py", write_tensor_expressions))
