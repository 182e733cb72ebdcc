"""The file formats of a trained network: each writes a file, reads it back, and compares the result with the network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from keyword import iskeyword
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils import _pytree as pytree

from syno.base.errors import LoweringError, WrongOutputError, first_line
from syno.base.files import checksum, replaced, write_whole
from syno.base.registry import Registry
from syno.export.comparison import BATCH, TOLERANCE, Agreement, Comparison, Run, at, training_difference
from syno.export.formats import NEEDS_FOR_ONNX, require_packages
from syno.export.network_source import network_source
from syno.measure.onnx_model import onnx_model, without_warnings
from syno.model.inputs import Inputs, arguments_of, call, first_inputs, len_of_batch, mapped, of_batch
from syno.model.outputs import OfTensors, plain_outputs
from syno.model.saved import NETWORK_CODE, PROGRAM, WEIGHTS, code_of
from syno.model.shared_memory import overlapping_parameters
from syno.train.weights import content_of

ONNX, PACKAGE = "network.onnx", "network_aoti.pt2"
LIBRARY = "network_tvm.so"  # Python would import network.so in place of network.py
NAMES_OF_AXES = {0: "N", 2: "height", 3: "width"}  # of pictures
MOST_TIMES = 16  # inputs beyond a program's bounds are compared if they have at most so many times the example's elements
PROGRAM_MODE = "a program of torch.export has no training mode: `.train()` and `.eval()` raise NotImplementedError"
COMPILED_MODE = "compiled code has no training mode"
# Inductor specializes its code by the example's batch size, and records this as bounds of the batch size that include the
# example's. The example's batch is large, so that no upper bound refuses larger batches; the lower bound is not checked, since
# smaller batches are compared.
AOTI_BATCH, AOTI_OPTIONS = 32, {"aot_inductor.check_lowerbound": False}
CHECKS_OF_AOTI = "AOTI_RUNTIME_CHECK_INPUTS"  # of the environment: without it, a package computes nonsense at another size


@dataclass(frozen=True)
class Written:
    """A trained network as it was written to files, with its check.

    Attributes:
        files: names of the files in the folder.
        again: the network that was read back from the files: takes a batch of inputs, and returns the network's outputs.
        agreement: the input shapes at which `again` agrees with the trained network.
        only_inference: why the written network has no training mode; "" if it has one.
        batch: the only batch size that the written network takes; None if it takes any.
        note: a remark on the format for users; "" without one.
    """

    files: tuple[str, ...]
    again: Run
    agreement: Agreement
    only_inference: str
    batch: int | None = None
    note: str = ""


@dataclass(frozen=True)
class NetworkFormat:
    """A format of trained networks.

    Attributes:
        write: writes a network into a folder. Takes the comparison (network and inputs), the folder, and a title.
        files: the names of its files.
        usage: Python code that loads the network, from inside the folder.
        needs: the packages that must be installed to load it.
    """

    write: Callable[[Comparison, Path, str], Written]
    files: tuple[str, ...]
    usage: str
    needs: str

    @property
    def own_files(self) -> tuple[str, ...]:
        """The names of its files that the format "module" does not also have."""
        return tuple(file for file in self.files if file not in (NETWORK_CODE, WEIGHTS, PROGRAM))


def write_code(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write source and weights; if no source can be generated, a program of `torch.export`, which contains both."""
    try:
        return _write_code(comparison, folder, title)
    except LoweringError as error:
        written = write_program(comparison, folder, title)
        return replace(written, note=f"no source, but a program of torch.export: {error}")


def _write_code(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write source and weights. LoweringError if no source with the network's outputs can be written."""
    shared = overlapping_parameters(comparison.network)
    only_inference = f"its {shared[0]} shares memory with another weight, and source has no such weights" if shared else ""
    any_size = True
    while True:
        source = network_source(comparison.network, comparison.inputs, only_inference=only_inference, any_size=any_size)
        made = code_of(source.text(title), "network").Network()
        made.load_state_dict(source.state(comparison.network))
        weights = content_of(made)
        mode = f"; for inference: {source.only_inference}" if source.only_inference else ""
        text = source.text(f"{title}{mode}", checksum(weights))
        write_whole(folder / NETWORK_CODE, text)
        write_whole(folder / WEIGHTS, weights)
        network = code_of(text, str(folder / NETWORK_CODE)).load()
        try:
            agreement = comparison.agreement(network)
        except WrongOutputError as error:  # a branch on the type of a value, which torch.fx takes for a tensor
            raise LoweringError(f"source that torch.fx traces fails: {error}") from error
        if agreement.wrong and source.samples is None:
            any_size = False
        elif agreement.wrong:
            raise LoweringError(f"source that torch.fx traces computes something else at {at(agreement.wrong)}")
        elif source.only_inference or not (
            only_inference := training_difference(comparison.network, network, comparison.batch_of_3)
        ):
            return Written((NETWORK_CODE, WEIGHTS), network, agreement, source.only_inference)


def write_program(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write a program of `torch.export`, with the weights."""

    def write(program: torch.export.ExportedProgram) -> Run:
        buffer = BytesIO()
        torch.export.save(program, buffer)
        write_whole(folder / PROGRAM, buffer.getvalue())
        again: Run = torch.export.load(folder / PROGRAM).module()
        return again

    return _first_equal(comparison, (PROGRAM,), write, PROGRAM_MODE)


def write_onnx(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write an ONNX file. Its input is `x` and its output `y`; several inputs have the names of the arguments of `forward`."""
    require_packages(NEEDS_FOR_ONNX, "ONNX files", "onnx")
    import onnxruntime

    note = ""

    def write(program: torch.export.ExportedProgram) -> Run:
        nonlocal note
        is_single = isinstance(comparison.inputs, torch.Tensor)
        axes = (names_of_free_axes(program),) if is_single else None
        model = onnx_model(program, dynamic_shapes=axes, is_single=is_single)
        inputs, outputs = model.inputs, model.outputs
        note = "" if is_single and outputs == ("y",) else f"inputs {', '.join(inputs)}; outputs {', '.join(outputs)}"
        write_whole(folder / ONNX, model.content)
        session = onnxruntime.InferenceSession(model.content, providers=["CPUExecutionProvider"])

        def run(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(inputs, (one.contiguous().numpy() for one in first_inputs((args, kwargs))), strict=True))
            return model.output_of(map(torch.from_numpy, session.run(outputs, given)))

        return run

    return replace(_first_equal(comparison, (ONNX,), write, "an ONNX file has no training mode"), note=note)


def write_package(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write a package of AOTInductor: machine code of this processor, with the weights."""
    file = folder / PACKAGE

    def write(program: torch.export.ExportedProgram) -> Run:
        with without_warnings(), replaced(file) as temporary, TemporaryDirectory(prefix="syno-package-") as made:
            package = Path(made) / "network.pt2"
            try:
                torch._inductor.aoti_compile_and_package(program, package_path=str(package), inductor_configs=AOTI_OPTIONS)
            except Exception as error:  # there are very many kinds
                raise LoweringError(f"AOTInductor cannot compile the network: {first_line(error)}") from error
            temporary.write_bytes(package.read_bytes())
        return loaded_package(file, comparison.inputs)

    note = "for processors like this machine's"
    options: dict[str, Any] = {"sizes": False, "batch": AOTI_BATCH}  # code for one size of samples is faster
    return _first_equal(comparison, (PACKAGE,), write, COMPILED_MODE, note, **options)


def loaded_package(file: Path, example: Inputs) -> Run:
    """Load a package of AOTInductor as a function that checks the sizes of its inputs."""
    with patch.dict(os.environ, {CHECKS_OF_AOTI: "1"}):  # it is looked up once, at the first call
        again: Run = torch._inductor.aoti_load_package(str(file))
        call(again, example)
    return _without_errors(again)


def _without_errors(run: Run) -> Run:
    """Return the function with its machine code's prints to stderr silenced; errors are raised as before."""

    def run_quietly(*args: Any, **kwargs: Any) -> Any:
        kept = os.dup(2)
        try:
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            return run(*args, **kwargs)
        finally:
            os.dup2(kept, 2)
            os.close(kept)

    return run_quietly


def write_library(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write a library for TVM's runtime, whose function "main" takes one picture, with the weights. It is not tuned."""
    from syno.lower.tvm.installed import tvm
    from syno.measure.tvm.compilation import TvmModule, built, fused, scheduled
    from syno.measure.tvm.network import import_network
    from syno.measure.tvm.targets import target

    module, to = tvm(), target("host")
    inputs = comparison.of_batch(1)
    network = with_identifiers(comparison)
    network = network if isinstance(inputs, torch.Tensor) else OfTensors(network, inputs)
    executable = built(scheduled(fused(import_network(network, *first_inputs(inputs)), to), to), to)
    file = folder / LIBRARY
    with replaced(file) as temporary, TemporaryDirectory(prefix="syno-library-") as made:
        library = Path(made) / "network.so"
        try:
            executable.export_library(str(library))
        except (RuntimeError, ValueError, OSError) as error:
            raise LoweringError(f"the network's library cannot be linked (is g++ there?): {first_line(error)}") from error
        temporary.write_bytes(library.read_bytes())
    main = TvmModule(module.runtime.load_module(str(file)), "cpu")

    def again(*args: Any, **kwargs: Any) -> Any:
        return main(*first_inputs((args, kwargs)))

    agreement = comparison.agreement(again, batch=1)
    require_equal(agreement, (LIBRARY,))
    return Written((LIBRARY,), again, agreement, COMPILED_MODE, 1, "for processors like this machine's")


def _first_equal(
    comparison: Comparison,
    files: tuple[str, ...],
    write: Callable[[torch.export.ExportedProgram], Run],
    only_inference: str,
    note: str = "",
    *,
    sizes: bool = True,
    batch: int = BATCH,
) -> Written:
    """Write a file from the exported program with the most general input shapes whose outputs are all right.

    Exporters can freeze a length or a decision of the example, such as a branch on the batch size. Then outputs for other
    shapes are wrong, and the next, less general program is tried, whose file refuses other shapes.

    Args:
        comparison: the network, and the inputs that are compared.
        files: names of the format's files.
        write: writes a program to the file, and returns the network that was read back from it.
        only_inference, note: see `Written`.
        sizes, batch: arguments of `exports`.

    Raises LoweringError if the network cannot be exported, WrongOutputError if all programs have wrong outputs.
    """
    agreement = None
    for program, only in exports(with_identifiers(comparison), comparison.inputs, sizes=sizes, batch=batch):
        again = write(program)
        for shape in _beyond(program, comparison.inputs) if isinstance(comparison.inputs, torch.Tensor) else ():
            comparison.compare_at(shape)
        agreement = comparison.agreement(again, only)
        if not agreement.wrong:
            return Written(files, again, agreement, only_inference, only, note)
    assert agreement is not None
    require_equal(agreement, files)
    raise AssertionError("one of the files is equal")


def _beyond(program: torch.export.ExportedProgram, inputs: torch.Tensor) -> Iterator[tuple[int, ...]]:
    """Yield input shapes just outside the ranges of lengths that a program declares.

    Outside these ranges, the network may take another branch, and not all formats check lengths.
    """
    (shape,) = (node.meta["val"].shape for node in program.graph.nodes if node.name in program.graph_signature.user_inputs)
    symbols = [None if isinstance(length, int) else length.node.expr for length in shape]
    for symbol in dict.fromkeys(symbols):
        limits = program.range_constraints.get(symbol)
        for length in () if limits is None else (limits.lower - 1, limits.upper + 1):
            if not str(length).isdecimal() or int(length) < 2:  # infinite, or the lower bound 2 that every exported length has
                continue
            found = tuple(int(length) if one == symbol else other for one, other in zip(symbols, inputs.shape, strict=True))
            if prod(found) <= MOST_TIMES * inputs.numel():
                yield found


def with_identifiers(comparison: Comparison) -> nn.Module:
    """Return the network; if layers have names such as `in`, which are no identifiers, the network of its generated source.

    PyTorch exports a network with such names, but cannot load the exported file.

    Raises LoweringError if there are such names, and no source can be generated.
    """
    parts = {part for name, _ in comparison.network.named_modules() for part in name.split(".") if part}
    parts |= {name.rpartition(".")[2] for name in comparison.network.state_dict()}
    wrong = sorted(part for part in parts if iskeyword(part) or not (part.isidentifier() or part.isdecimal()))
    if not wrong:
        return comparison.network
    try:
        source = network_source(comparison.network, comparison.inputs)
    except LoweringError as error:
        raise LoweringError(f'a layer is named "{wrong[0]}", which PyTorch cannot export: give it another name') from error
    network: nn.Module = code_of(source.text("A network"), "network").Network()
    network.load_state_dict(source.state(comparison.network))
    return network.eval()


def require_equal(agreement: Agreement, files: tuple[str, ...]) -> None:
    """Raise WrongOutputError if a file's outputs differ from the network's at some shape."""
    if agreement.wrong:
        raise WrongOutputError(
            f"{' and '.join(files)} differs from the trained network by {max(agreement.wrong.values()):.2g} of the largest "
            f"output at {at(agreement.wrong)}, where {TOLERANCE:g} is allowed; nothing was written; take another format (--to)"
        )


def exports(
    network: nn.Module, inputs: Inputs, *, sizes: bool = True, batch: int = BATCH
) -> Iterator[tuple[torch.export.ExportedProgram, int | None]]:
    """Yield exported programs from general to special input shapes, each with its only batch size, or None if it takes any.

    With `sizes`, the first program takes any batch size and any sizes of samples; the next takes any batch size and the
    example's size of samples; the last takes the example's shape only. Programs that PyTorch cannot export are left out.

    Args:
        network: the network in evaluation mode.
        inputs: a batch of inputs, the example.
        sizes: whether to try samples of any size, if the network has one input.
        batch: the batch size of the example from which programs for any batch size are exported.

    Raises LoweringError if the network cannot be exported.
    """
    any_batch, count = {0: torch.export.Dim("N")}, len_of_batch(inputs)
    positions: dict[int, Any] = {}
    if sizes and isinstance(inputs, torch.Tensor) and inputs.is_floating_point():  # else they are tokens, or several
        positions = dict.fromkeys(range(2, inputs.dim()), torch.export.Dim.DYNAMIC)
    failed: Exception | None = None
    is_exported = False
    expanded = mapped(torch.Tensor.contiguous, of_batch(of_batch(inputs, 1), batch))
    for dynamic in ([{**any_batch, **positions}] if positions else []) + [any_batch, {}]:
        given = expanded if dynamic else inputs
        args, kwargs = arguments_of(given)
        shapes: Any = (dynamic,)
        if not isinstance(inputs, torch.Tensor):
            shapes = pytree.tree_map(partial(_free_axes, dynamic, len_of_batch(given)), kwargs or args)
        with without_warnings(), plain_outputs(network):
            try:
                program = torch.export.export(network, args, kwargs, dynamic_shapes=shapes)
            except Exception as error:  # there are very many kinds
                failed = error
                continue
        is_exported = True
        yield program, None if dynamic else count
    if not is_exported:
        assert failed is not None
        raise LoweringError(f"PyTorch cannot export the network: {first_line(failed)}") from failed


def _free_axes(free: dict[int, Any], batch: int, value: object) -> dict[int, Any] | None:
    """Return the free axes of an input: `free` if its first axis is the batch's, else None."""
    return free if isinstance(value, torch.Tensor) and value.dim() and len(value) == batch else None


def names_of_free_axes(program: torch.export.ExportedProgram) -> dict[int, str]:
    """Return the input's axes of symbolic length in a program, each with a name; axes of equal length share a name."""
    (shape,) = (node.meta["val"].shape for node in program.graph.nodes if node.name in program.graph_signature.user_inputs)
    free = {axis: str(length) for axis, length in enumerate(shape) if not isinstance(length, int)}
    names = {length: NAMES_OF_AXES.get(axis, f"axis_{axis}") for axis, length in reversed(free.items())}
    return {axis: names[length] for axis, length in free.items()}


NETWORK_FORMATS: Registry[NetworkFormat] = Registry("format of a trained network")
NETWORK_FORMATS.register("module")(
    NetworkFormat(write_code, (NETWORK_CODE, WEIGHTS), "import network\n\nmodel = network.load()", "torch and safetensors")
)
NETWORK_FORMATS.register("export")(
    NetworkFormat(write_program, (PROGRAM,), f'import torch\n\nmodel = torch.export.load("{PROGRAM}").module()', "torch")
)
NETWORK_FORMATS.register("onnx")(
    NetworkFormat(
        write_onnx,
        (ONNX,),
        f'import onnxruntime\n\nsession = onnxruntime.InferenceSession("{ONNX}")\ny = session.run(["y"], {{"x": x}})[0]',
        "onnxruntime",
    )
)
NETWORK_FORMATS.register("aoti")(
    NetworkFormat(
        write_package,
        (PACKAGE,),
        f'import os\n\nos.environ["{CHECKS_OF_AOTI}"] = "1"  # else inputs of another size give nonsense\nimport torch\n\n'
        f'model = torch._inductor.aoti_load_package("{PACKAGE}")',
        "torch, and this processor",
    )
)
NETWORK_FORMATS.register("tvm")(
    NetworkFormat(
        write_library,
        (LIBRARY,),
        f'import tvm\n\nlibrary = tvm.runtime.load_module("{LIBRARY}")\n'
        'machine = tvm.relax.VirtualMachine(library, tvm.cpu())\ny = machine["main"](tvm.runtime.tensor(x))',
        "apache-tvm",
    )
)
