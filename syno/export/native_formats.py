"""Trained networks with native kernels: as source that is compiled at the first call, and in a package of AOTInductor.

Both call the kernels through a PyTorch operator with a unique name, so that one process can load the networks of several
folders.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch._inductor import config

from syno.base.errors import LoweringError, WrongOutputError, first_line
from syno.base.files import checksum, replaced, write_whole
from syno.base.quoting import comment
from syno.base.release import VERSION
from syno.base.text_tables import plural
from syno.export.comparison import Comparison, Run
from syno.export.network_formats import (
    CHECKS_OF_AOTI,
    COMPILED_MODE,
    NETWORK_FORMATS,
    NetworkFormat,
    Written,
    loaded_package,
    require_equal,
    with_identifiers,
    write_code,
)
from syno.lower.native.program import whole_file
from syno.lower.native.target import INSTRUCTIONS, Target, own_target
from syno.measure.inductor import FLAGS as OF_INDUCTOR
from syno.measure.machine import processor
from syno.measure.native.build import FLAGS, compiler, compiler_version
from syno.measure.native.kernels import Kernel
from syno.measure.native.network import NativeNetwork, native_network, store_of_user
from syno.measure.native.network_graph import written_tensors
from syno.measure.native.torch_operator import CALLABLE, SOURCE, input_elements, torch_operator
from syno.measure.onnx_model import without_warnings
from syno.model.saved import NETWORK_CODE, WEIGHTS, code_of
from syno.model.saved import PROGRAM as NETWORK_PROGRAM

CODE, KERNELS, PROGRAM, PACKAGE, CACHE = "native.py", "native.cpp", "native.pt2", "native_aoti.pt2", "native_cache"
WITH_KERNELS = {"module": "native", "aoti": "native-aoti"}  # formats, each with the corresponding format with kernels
AT_HOME = Path(__file__).with_name("native_at_home.py")
OWN_LINES = re.compile(r"^([A-Z_]+)(: [\w\[\], .]+)? = [^#\n]*", re.MULTILINE)  # the constants of a network in `AT_HOME`
CALL = (  # of kernels, in a package; see operator.cpp
    "AOTITorchError {name}(AtenTensorHandle x, AtenTensorHandle factors, AtenTensorHandle* scale, AtenTensorHandle* shift, "
    "AtenTensorHandle* residual, const char* kernel, const int64_t* shape, int64_t axes, int64_t samples, AtenTensorHandle* y)"
)


@dataclass(frozen=True)
class NativeCode:
    """A trained network with kernels.

    Attributes:
        network: the network, whose layers with kernels call the PyTorch operator `syno::native`.
        source: C++ source of the kernels and of this PyTorch operator.
        operator: the name of the PyTorch operator that calls the kernels.
        example: a batch of inputs.
        target: the processor for which the kernels are built.
        summary: a sentence that says which layers have kernels.
    """

    network: NativeNetwork
    source: str
    operator: str
    example: torch.Tensor
    target: Target
    summary: str

    @property
    def flags(self) -> tuple[str, ...]:
        """The C++ compiler's arguments for the source."""
        return (*FLAGS, *self.target.flags, "-fopenmp")

    def at_home(self, network: str, program: str = "") -> str:
        """Return the source of the file `CODE`, the Python module that loads the network.

        Args:
            network: the name of the file with PyTorch's code.
            program: the checksum of `PROGRAM`.
        """
        own = {
            "NETWORK": network,
            "CHECKSUM": program,
            "SOURCE": checksum(self.source.encode()),
            "OPERATOR": self.operator,
            "SHAPE": tuple(self.example.shape),
            "DTYPE": str(self.example.dtype).removeprefix("torch."),
            "PROCESSOR": platform.machine(),
            "INSTRUCTIONS": frozenset(INSTRUCTIONS.get(self.target.name, ())),
            "FLAGS": self.flags,
            "LAYOUT_OPTIMIZATION": config.layout_optimization and not self.network.is_mostly_native,
        }

        def line(match: re.Match[str]) -> str:
            name, kind = match[1], match[2] or ""
            if name not in own:
                return match[0]
            value = own[name]
            text = f"frozenset({sorted(value)!r})" if isinstance(value, frozenset) else repr(value)
            return f"{name}{kind} = {text}{'  ' if match[0].endswith(' ') else ''}"

        return OWN_LINES.sub(line, AT_HOME.read_text(encoding="utf-8"))

    def program(self) -> torch.export.ExportedProgram:
        """Return the network as a program that calls the PyTorch operator, which must be registered.

        Raises LoweringError if PyTorch cannot export it.
        """
        module = self.network.module
        assert isinstance(module, fx.GraphModule)
        own, native = getattr(torch.ops.syno, self.operator).default, torch_operator(store_of_user())
        graph = fx.GraphModule(module, module.graph)
        for node in graph.graph.nodes:
            if node.target is native:
                node.target = own
        graph.recompile()
        with torch.no_grad(), without_warnings():
            try:
                return torch.export.export(graph, (self.example,))
            except Exception as error:  # there are very many kinds
                raise LoweringError(f"PyTorch cannot export the network with its kernels: {first_line(error)}") from error


def native_code(comparison: Comparison, title: str) -> NativeCode:
    """Return a network with kernels where these are faster on this machine than PyTorch's code.

    Raises:
        MissingPackageError: there is no C++ compiler.
        LoweringError: the network cannot be exported, or no kernel is faster.
    """
    example, threads, target = comparison.of_batch(comparison.calls.batch), comparison.calls.threads, own_target()
    if not isinstance(example, torch.Tensor):
        raise LoweringError("it has no native kernels: they are put into networks with one input only")
    made = native_network(with_identifiers(comparison), (example,), store_of_user(), threads)
    if made.reason:
        raise LoweringError(f"it has no native kernels: {made.reason}")
    if written := sorted(written_tensors(made.module)):
        raise LoweringError(
            f"it has no native kernels: its forward changes the buffer {written[0]}, and kernels would have one of their own"
        )
    count = made.kernels
    if not count:
        raise LoweringError("it has no native kernels: none is faster on this machine than PyTorch's code")
    native = torch_operator(store_of_user())
    calls = Counter(
        next(one for one in node.args if isinstance(one, str)) for node in made.module.graph.nodes if node.target is native
    )
    needs = ", ".join(sorted(INSTRUCTIONS.get(target.name, ())))
    where = f"{platform.machine()}{f' with {needs}' if needs else ''}"
    summary = f"native kernels for {plural(count, 'layer')} at batches of {comparison.calls.batch}, on {where}"
    kernels = [CALLABLE[name] for name in calls]
    body = _source(kernels, target)
    operator = f"native_{checksum(body.encode())[:12]}"
    head = _head(title, kernels, calls, where, threads, operator)
    return NativeCode(made, f"{head}\n{body}", operator, example, target, summary)


def _source(kernels: Sequence[Kernel], target: Target) -> str:
    """Return the C++ of the kernels, and of the PyTorch operator that looks them up by their names."""
    known = "\n".join(
        f'  syno_register("{one.program.name}", (void*)&{one.program.name}_code::{one.program.name}, {one.program.scratch}, '
        f"{input_elements(one)});"
        for one in kernels
    )
    operator = SOURCE.read_text(encoding="utf-8").replace('extern "C" void syno_register', "static void syno_register")
    return (
        f"{whole_file([one.program for one in kernels], target.lanes)}\n{operator}\n"
        f"// The kernels of this file.\nstatic const bool registered = [] {{\n{known}\n  return true;\n}}();\n"
    )


def _head(title: str, kernels: Sequence[Kernel], calls: Counter[str], where: str, threads: int, operator: str) -> str:
    """Return the comment at the beginning of the C++ file, with the operators' texts and the names of the kernels."""
    lines = [
        title,
        "",
        f"For {where}; the fastest of several schedules for {plural(threads, 'thread')} on {processor() or 'this processor'},",
        f"by Syno {VERSION} with {compiler_version(compiler())}. native.py compiles this file, and calls it.",
    ]
    for kernel in kernels:
        request, choice = kernel.request, kernel.choice
        ends = [name for name in ("scale", "shift", "residual") if getattr(request.epilogue, name)]
        ends += [request.epilogue.activation] if request.epilogue.activation != "identity" else []
        sizes = ", ".join(f"{name}={value}" for name, value in request.values)
        lines += [
            "",
            f"{kernel.program.name}, {plural(calls[kernel.program.name], 'call')}:",
            f"  sizes: {sizes}; vectors lie across {choice.form.lanes}{'; then: ' if ends else ''}{', '.join(ends)}",
            *(f"  {line}" for line in request.operator.strip().splitlines()),
        ]
    head = comment("\n".join(lines), "//")
    return f'{head}\n#define SYNO_OPERATOR "{operator}"\n'


def _without_obstacle(code: ModuleType) -> None:
    """Compile the operator and register it in PyTorch. Raises LoweringError if it cannot be compiled."""
    if reason := code.obstacle():
        raise LoweringError(f"its native kernels cannot be used: {reason}")


def write_native(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write the kernels' C++, a program that calls them, and Python that loads both, beside the network's source."""
    plain, made = write_code(comparison, folder, title), native_code(comparison, title)
    write_whole(folder / KERNELS, made.source)
    write_whole(folder / CODE, made.at_home(plain.files[0]))
    try:
        _without_obstacle(code_of((folder / CODE).read_text(encoding="utf-8"), str(folder / CODE)))
        torch.export.save(made.program(), folder / PROGRAM)
        text = made.at_home(plain.files[0], checksum((folder / PROGRAM).read_bytes()))
        write_whole(folder / CODE, text)
        again = code_of(text, str(folder / CODE)).load()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("error", "PyTorch's code computes this network")
            again(made.example)
        agreement = comparison.agreement(again)
    finally:
        shutil.rmtree(folder / CACHE, ignore_errors=True)
    require_equal(agreement, (KERNELS,))
    files = (*plain.files, CODE, KERNELS, PROGRAM)
    note = "; ".join(filter(None, (plain.note, made.summary)))
    return replace(plain, files=files, again=again, agreement=agreement, note=note)


def write_native_package(comparison: Comparison, folder: Path, title: str) -> Written:
    """Write a package of AOTInductor that contains the network, its weights and the kernels."""
    made, file = native_code(comparison, title), folder / PACKAGE
    with TemporaryDirectory(prefix="syno-native-") as place:
        here = Path(place)
        write_whole(here / KERNELS, made.source)
        write_whole(here / CODE, made.at_home(""))
        _without_obstacle(code_of((here / CODE).read_text(encoding="utf-8"), str(here / CODE)))
        program, package = made.program(), here / "network.pt2"
        shim, library = f"aoti_torch_cpu_{made.operator}", f"syno_{made.operator}"
        _archive(made, here, shim, here / f"lib{library}.a")
        options: dict[str, Any] = {
            **OF_INDUCTOR,
            "layout_optimization": config.layout_optimization and not made.network.is_mostly_native,
            "aot_inductor.custom_ops_to_c_shims": {getattr(torch.ops.syno, made.operator).default: [CALL.format(name=shim)]},
            "aot_inductor.custom_op_libs": [library],
        }
        paths = os.pathsep.join(filter(None, (place, os.environ.get("LIBRARY_PATH"))))
        with without_warnings(), replaced(file) as temporary, patch.dict(os.environ, {"LIBRARY_PATH": paths}):
            try:
                torch._inductor.aoti_compile_and_package(program, package_path=str(package), inductor_configs=options)
            except Exception as error:  # there are very many kinds
                raise LoweringError(f"AOTInductor cannot compile the network with kernels: {first_line(error)}") from error
            temporary.write_bytes(package.read_bytes())
    again: Run = loaded_package(file, made.example)
    agreement = comparison.agreement(again, comparison.calls.batch)
    require_equal(agreement, (PACKAGE,))
    return Written((PACKAGE,), again, agreement, COMPILED_MODE, comparison.calls.batch, made.summary)


def _archive(made: NativeCode, folder: Path, shim: str, file: Path) -> None:
    """Compile the kernels and the function `shim`, which packages call, into an archive that is linked into a package."""
    place, compiled = Path(torch.__file__).parent, folder / "native.o"
    flags = [flag for flag in made.flags if flag != "-shared"]
    command = [compiler(), *flags, f"-DSYNO_PACKAGE={shim}", f"-I{place / 'include'}", "-c", "-o", str(compiled)]
    for words in ([*command, str(folder / KERNELS)], ["ar", "rcs", str(file), str(compiled)]):
        try:
            said = subprocess.run(words, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise LoweringError(f"kernels cannot be put into a package: there is no program {words[0]}") from error
        if said.returncode:
            raise WrongOutputError(f"{words[0]} fails: {said.stderr.strip()[:500]}")


NETWORK_FORMATS.register("native")(
    NetworkFormat(
        write_native,
        (NETWORK_CODE, WEIGHTS, NETWORK_PROGRAM, CODE, KERNELS, PROGRAM),
        "import native, torch\n\nmodel = native.load()  # or with compiled=True: TorchInductor compiles the rest, as measured\n"
        "with torch.no_grad():\n    y = model(x)",
        "torch and safetensors; and g++ or clang, without which PyTorch's code computes",
    )
)
NETWORK_FORMATS.register("native-aoti")(
    NetworkFormat(
        write_native_package,
        (PACKAGE,),
        f'import os\n\nos.environ["{CHECKS_OF_AOTI}"] = "1"  # else inputs of another size give nonsense\nimport torch\n\n'
        f'model = torch._inductor.aoti_load_package("{PACKAGE}")  # the kernels are in it',
        "torch, and this processor",
    )
)
