"""The trained network with native kernels in it: functions in native.cpp that compute several layers each.

    import native, torch

    model = native.load()
    with torch.no_grad():
        y = model(x)

The first call compiles native.cpp into the folder native_cache, with g++ or clang++, or the compiler in the environment
variable CXX. What is damaged there, or other users can write, is not loaded, but compiled again. Kernels compute what they were
made for: the evaluation mode without gradients, on the CPU, for the weights that were loaded and inputs of one shape, `SHAPE`.
PyTorch's code computes everything else, and also where the processor lacks the instructions, or where there is no compiler.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from hashlib import blake2b
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from torch import nn

HERE = Path(__file__).parent
# What follows is of this network.
NETWORK = "network.py"  # PyTorch's code
CHECKSUM = ""  # of native.pt2: 128 bits of blake2b
SOURCE = ""  # the checksum of native.cpp
OPERATOR = "native"  # the name in torch.ops.syno
SHAPE: tuple[int, ...] = ()
DTYPE = "float32"
PROCESSOR = "x86_64"
INSTRUCTIONS: frozenset[str] = frozenset()
FLAGS: tuple[str, ...] = ()
LAYOUT_OPTIMIZATION = True
# The end of a library, before its checksum; loaders do not read it.
MARK = b"\nchecksum "
OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # of this process, where the folder cannot be written


class CannotBuildError(Exception):
    """There are no kernels on this machine; the message says why."""


def load(device: torch.device | str = "cpu", *, compiled: bool = False) -> nn.Module:
    """Return the trained network in evaluation mode, which computes with kernels where it can.

    Args:
        device: where the network shall be. Kernels are for the CPU.
        compiled: whether TorchInductor compiles what kernels do not compute, at the first call. It then takes the time that was
            measured; otherwise PyTorch runs its operations one by one.
    """
    return Network(network().to(device), compiled)


def network() -> nn.Module:
    """Return the trained network without kernels."""
    if NETWORK.endswith(".pt2"):
        program: nn.Module = torch.export.load(HERE / NETWORK).module()
        return program
    spec = spec_from_file_location("network", HERE / NETWORK)
    assert spec is not None and spec.loader is not None
    code = module_from_spec(spec)
    spec.loader.exec_module(code)
    loaded: nn.Module = code.load()
    return loaded


class Network(nn.Module):  # type: ignore[misc]
    """A network whose layers are computed by kernels where that is possible, and else by PyTorch's code.

    Args:
        network: PyTorch's code, with the weights of the kernels.
        compiled: see `load`.
    """

    def __init__(self, network: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.network, self.compiled = network, compiled
        self.training = network.training
        self.made_for = self._weights()
        self.program: list[Any] = []  # no submodule: its weights are no others
        self.said: set[str] = set()

    def forward(self, x: torch.Tensor) -> Any:
        """Return the network's output."""
        if self.training or tuple(x.shape) != SHAPE or x.device.type != "cpu" or x.dtype != getattr(torch, DTYPE):
            return self.network(x)
        if reason := self.reason(x):
            if reason not in self.said:
                self.said.add(reason)
                warnings.warn(f"PyTorch's code computes this network, and native kernels do not: {reason}", stacklevel=2)
            return self.network(x)
        if not self.program:
            self.program.append(_compiled_program(x) if self.compiled else _program())
        return self.program[0](x)

    def reason(self, x: torch.Tensor) -> str:
        """Return why kernels cannot compute the output for an input of their shape; "" if they can."""
        tensors = (x, *self.network.parameters())
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return "they have no gradients: call it within torch.no_grad()"
        if self._weights() != self.made_for:
            return "they have the weights that were loaded, which have changed"
        return obstacle()

    def _weights(self) -> list[tuple[int, int]]:
        """Return where each weight is, and how often it was written to, as PyTorch counts it."""
        tensors = (*self.network.parameters(), *self.network.buffers())
        return [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]


def _program() -> nn.Module:
    """Return the network as a program that calls the kernels."""
    file = HERE / "native.pt2"
    if blake2b(file.read_bytes(), digest_size=16).hexdigest() != CHECKSUM:
        raise ValueError(f"{file} is damaged, or not the file of this network: copy the folder again")
    program: nn.Module = torch.export.load(file).module(check_guards=False)
    return program


def _compiled_program(x: torch.Tensor) -> Any:
    """Return the same, compiled with constant weights by a first call."""
    program = torch.compile(_program(), dynamic=False)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True, layout_optimization=LAYOUT_OPTIMIZATION):
        program(x)
    return program


# ---- the library of kernels --------------------------------------------------------------------------------------------


@functools.cache
def obstacle() -> str:
    """Return why this machine has no kernels; "" if it has. Then PyTorch knows of them."""
    try:
        _build()
    except CannotBuildError as error:
        return str(error)
    return ""


def _build() -> None:
    """Compile the kernels, unless that was done before, and load them as `torch.ops.syno.OPERATOR`."""
    if hasattr(torch.ops.syno, OPERATOR):  # by another copy of this file
        return
    if missing := _missing_instructions():
        raise CannotBuildError(missing)
    library = _library()
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise CannotBuildError(f"{library} cannot be loaded: {error}") from error
    torch.library.register_fake(f"syno::{OPERATOR}", _fake)


def _missing_instructions() -> str:
    """Return in words what the kernels need and the processor lacks; "" if it has everything."""
    if platform.machine() != PROCESSOR:
        return f"they are for {PROCESSOR}, and this machine is {platform.machine()}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    listed = next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    missing = ", ".join(sorted(INSTRUCTIONS - listed))
    return f"this processor lacks the instructions {missing}" if missing else ""


def _library() -> Path:
    """Return the library, which is compiled if it is not there yet."""
    compiler = next((found for name in (os.environ.get("CXX"), "g++", "clang++") if name and (found := shutil.which(name))), "")
    if not compiler:
        raise CannotBuildError("there is no C++ compiler: install g++ or clang, or give one in the environment variable CXX")
    source, place, folder = HERE / "native.cpp", Path(torch.__file__).parent, HERE / "native_cache"
    text = source.read_bytes() if source.is_file() else b""
    if blake2b(text, digest_size=16).hexdigest() != SOURCE:
        raise CannotBuildError(f"{source} is damaged, or not the file of this network: copy the folder again")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    parts = (SOURCE, *FLAGS, compiler, version, torch.__version__)
    name = f"{blake2b(chr(0).join(parts).encode(), digest_size=8).hexdigest()}.so"
    if _is_own(folder, stat.S_ISDIR) and _is_whole(folder / name):
        return folder / name
    try:
        with tempfile.TemporaryDirectory(prefix="native-") as temporary:
            file = Path(temporary) / name
            linked = (f"-I{place / 'include'}", f"-L{place / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu")
            command = [compiler, *FLAGS, *linked, "-o", str(file), "-x", "c++", "-"]
            said = subprocess.run(command, input=text, capture_output=True, check=False)
            if said.returncode:
                reason = said.stderr.decode(errors="replace").strip()[:1000]
                raise CannotBuildError(f"{compiler} does not compile {source}: {reason}")
            content = file.read_bytes()
            try:
                return _kept(content, _own_folder(folder), name)
            except OSError:  # it cannot be written
                if not _TEMPORARY:
                    _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="native-"))
                return _kept(content, Path(_TEMPORARY[0].name), name)
    except OSError as error:
        raise CannotBuildError(f"the kernels cannot be written: {error}") from error


def _own_folder(folder: Path) -> Path:
    """Return a folder, in which only this user can write from now on. Raises OSError if that is not possible."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~OF_OTHERS)
    if not _is_own(folder, stat.S_ISDIR):
        raise PermissionError(f"{folder} is a link, or another user's")
    return folder


def _kept(content: bytes, folder: Path, name: str) -> Path:
    """Write a library with its checksum into a folder."""
    descriptor, temporary = tempfile.mkstemp(dir=folder)  # it gets its name when it is whole
    with os.fdopen(descriptor, "wb") as file:
        file.write(content + MARK + blake2b(content, digest_size=16).hexdigest().encode())
        file.flush()
        os.fsync(descriptor)
    return Path(temporary).replace(folder / name)


def _is_own(path: Path, of_kind: Callable[[int], bool]) -> bool:
    """Return whether a path is this user's, no link, and nobody else can write it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return of_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & OF_OTHERS


def _is_whole(library: Path) -> bool:
    """Return whether a library is this user's own, and as it was written."""
    if not _is_own(library, stat.S_ISREG):
        return False
    content, mark, written = library.read_bytes().rpartition(MARK)
    return bool(mark) and written == blake2b(content, digest_size=16).hexdigest().encode()


def _fake(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
    return x.new_empty(next(one for one in arguments if isinstance(one, list | tuple)))
