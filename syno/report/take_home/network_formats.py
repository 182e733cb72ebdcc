"""The formats of a trained network: a file each, and what reads it again, to be compared with the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from syno.base.errors import LoweringError
from syno.base.files import replaced, write_whole
from syno.base.registry import Registry
from syno.model.saved import NETWORK_CODE, PROGRAM, WEIGHTS, code_of
from syno.report.take_home.network_source import network_source
from syno.report.take_home.program import NEEDS_FOR_ONNX, first_line, require_packages, without_warnings
from syno.train.weights import content_of

NAMES_OF_AXES = {0: "N", 2: "height", 3: "width"}  # of pictures
BATCH = 2  # pictures of the example: exporters like to take a length of 1 for a constant


@dataclass(frozen=True)
class Written:
    """A trained network that was written.

    Attributes:
        files: names of the files in the folder.
        again: the network that was read from them; it takes a batch, and returns logits.
        batch: the only size of a batch that it takes; None if it takes any.
        note: what a user should know about the format; "" if nothing.
    """

    files: tuple[str, ...]
    again: Callable[[torch.Tensor], torch.Tensor]
    batch: int | None = None
    note: str = ""


@dataclass(frozen=True)
class NetworkFormat:
    """A format of trained networks.

    Attributes:
        write: writes a network into a folder. Takes the network in evaluation mode, a batch, the folder, and a title.
        usage: Python that loads it, from inside the folder.
        needs: what has to be installed to load it.
    """

    write: Callable[[nn.Module, torch.Tensor, Path, str], Written]
    usage: str
    needs: str


def write_code(network: nn.Module, inputs: torch.Tensor, folder: Path, title: str) -> Written:
    """Write source and weights; where no source can be written, a program of `torch.export` that has both."""
    try:
        source = network_source(network)
    except LoweringError as error:
        written = write_program(network, inputs, folder, title)
        return Written(written.files, written.again, written.batch, f"no source, but a program of torch.export: {error}")
    text = source.text(title)
    copied = code_of(text, "network").Network()
    copied.load_state_dict(source.state(network))
    write_whole(folder / NETWORK_CODE, text)
    write_whole(folder / WEIGHTS, content_of(copied))
    return Written((NETWORK_CODE, WEIGHTS), code_of(text, str(folder / NETWORK_CODE)).load(folder / WEIGHTS))


def write_program(network: nn.Module, inputs: torch.Tensor, folder: Path, title: str) -> Written:
    """Write a program of `torch.export`, with the weights."""
    program, batch = exported(network, inputs)
    buffer = BytesIO()
    torch.export.save(program, buffer)
    write_whole(folder / PROGRAM, buffer.getvalue())
    return Written((PROGRAM,), torch.export.load(folder / PROGRAM).module(), batch)


def write_onnx(network: nn.Module, inputs: torch.Tensor, folder: Path, title: str) -> Written:
    """Write an ONNX file, whose input is `x` and whose output is `y`."""
    require_packages(NEEDS_FOR_ONNX, "ONNX files", "onnx")
    import onnxruntime

    program, batch = exported(network, inputs)
    with without_warnings():
        try:
            made = torch.onnx.export(
                program,
                input_names=["x"],
                output_names=["y"],
                dynamic_shapes=(names_of_free_axes(program),),
                verbose=False,
                external_data=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise LoweringError(f"the network cannot be written as ONNX: {first_line(error)}") from error
    content = made.model_proto.SerializeToString()
    write_whole(folder / "network.onnx", content)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return Written(("network.onnx",), lambda x: torch.from_numpy(session.run(["y"], {"x": x.contiguous().numpy()})[0]), batch)


def write_package(network: nn.Module, inputs: torch.Tensor, folder: Path, title: str) -> Written:
    """Write a package of AOTInductor: machine code of this processor, with the weights."""
    program, batch = exported(network, inputs, sizes=False)  # code for one size of the samples is faster
    file = folder / "network_aoti.pt2"
    with without_warnings(), replaced(file) as temporary, TemporaryDirectory(prefix="syno-package-") as made:
        package = Path(made) / "network.pt2"
        try:
            torch._inductor.aoti_compile_and_package(program, package_path=str(package))
        except Exception as error:  # there are very many kinds
            raise LoweringError(f"AOTInductor cannot compile the network: {first_line(error)}") from error
        temporary.write_bytes(package.read_bytes())
    return Written((file.name,), torch._inductor.aoti_load_package(str(file)), batch, "for processors like this machine's")


def write_library(network: nn.Module, inputs: torch.Tensor, folder: Path, title: str) -> Written:
    """Write a library for TVM's runtime, whose function "main" takes one picture, with the weights. It is not tuned."""
    from syno.lower.tvm.installed import tvm
    from syno.measure.tvm.compilation import TvmModule, built, fused, scheduled
    from syno.measure.tvm.network import import_network
    from syno.measure.tvm.targets import target

    module, to = tvm(), target("host")
    executable = built(scheduled(fused(import_network(network, inputs[:1]), to), to), to)
    file = folder / "network_tvm.so"  # Python would import network.so in place of network.py
    with replaced(file) as temporary, TemporaryDirectory(prefix="syno-library-") as made:
        library = Path(made) / "network.so"
        try:
            executable.export_library(str(library))
        except (RuntimeError, ValueError, OSError) as error:
            raise LoweringError(f"the network's library cannot be linked (is g++ there?): {first_line(error)}") from error
        temporary.write_bytes(library.read_bytes())
    return Written(
        (file.name,), TvmModule(module.runtime.load_module(str(file)), "cpu"), 1, "for processors like this machine's"
    )


def exported(
    network: nn.Module, inputs: torch.Tensor, *, sizes: bool = True
) -> tuple[torch.export.ExportedProgram, int | None]:
    """Return a program for batches of any size and, with `sizes`, for samples of any size that the network takes, and None.

    If PyTorch cannot export it so, the program is for samples of this size; or for batches of this size, too, and the size of
    the batch is returned.

    Raises LoweringError if the network cannot be exported.
    """
    batch = {0: torch.export.Dim("N")}
    is_sample = sizes and inputs.is_floating_point()  # else they are tokens
    positions = dict.fromkeys(range(2, inputs.dim()), torch.export.Dim.DYNAMIC) if is_sample else {}
    with without_warnings():
        for dynamic in ({**batch, **positions}, batch, {}):
            try:
                return torch.export.export(network, (inputs,), dynamic_shapes=(dynamic,)), None if dynamic else len(inputs)
            except Exception as error:  # there are very many kinds
                failed = error
    raise LoweringError(f"PyTorch cannot export the network: {first_line(failed)}") from failed


def names_of_free_axes(program: torch.export.ExportedProgram) -> dict[int, str]:
    """Return the input's axes that may have any length in a program, each with a name; axes of one length have one name."""
    (shape,) = (node.meta["val"].shape for node in program.graph.nodes if node.name in program.graph_signature.user_inputs)
    free = {axis: str(length) for axis, length in enumerate(shape) if not isinstance(length, int)}
    names = {length: NAMES_OF_AXES.get(axis, f"axis_{axis}") for axis, length in reversed(free.items())}
    return {axis: names[length] for axis, length in free.items()}


NETWORK_FORMATS: Registry[NetworkFormat] = Registry("format of a trained network")
NETWORK_FORMATS.register("module")(
    NetworkFormat(write_code, "import network\n\nmodel = network.load()", "torch and safetensors")
)
NETWORK_FORMATS.register("export")(
    NetworkFormat(write_program, 'import torch\n\nmodel = torch.export.load("network.pt2").module()', "torch")
)
NETWORK_FORMATS.register("onnx")(
    NetworkFormat(
        write_onnx,
        'import onnxruntime\n\nsession = onnxruntime.InferenceSession("network.onnx")\ny = session.run(["y"], {"x": x})[0]',
        "onnxruntime",
    )
)
NETWORK_FORMATS.register("aoti")(
    NetworkFormat(
        write_package,
        'import torch\n\nmodel = torch._inductor.aoti_load_package("network_aoti.pt2")',
        "torch, and this processor",
    )
)
NETWORK_FORMATS.register("tvm")(
    NetworkFormat(
        write_library,
        'import tvm\n\nlibrary = tvm.runtime.load_module("network_tvm.so")\n'
        'machine = tvm.relax.VirtualMachine(library, tvm.cpu())\ny = machine["main"](tvm.runtime.tensor(x))',
        "apache-tvm",
    )
)
