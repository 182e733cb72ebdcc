"""The trained network with native kernels in it: functions in native.cpp that compute several layers each.

    import native, torch

    model = native.load()
    with torch.no_grad():
        y = model(x)

The first call compiles native.cpp into the folder native_cache, with g++ or clang++, or the compiler in the environment
variable CXX. A library that is damaged, or that other users can write, is not loaded, but compiled again. Kernels are used in
evaluation mode without gradients, on the CPU, for the weights that were loaded and inputs of one shape, `SHAPE`. In all other
cases, PyTorch's code computes the output, also if the processor lacks the instructions or there is no compiler. It also takes
over, with a warning, after weights, layers, their settings or their hooks have changed (see `_Loaded`).
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
from ctypes import c_char
from hashlib import blake2b
from importlib.util import module_from_spec, spec_from_file_location
from operator import is_, itemgetter
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

HERE = Path(__file__).parent
# These constants are filled in for each network.
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
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # the process's library folder if `native_cache` cannot be written


class CannotBuildError(Exception):
    """The kernels cannot be built or used on this machine; the message says why."""


def load(device: torch.device | str = "cpu", *, compiled: bool = False) -> nn.Module:
    """Return the trained network in evaluation mode, which computes with kernels where it can.

    Args:
        device: the device of the network. Kernels are for the CPU.
        compiled: whether TorchInductor compiles the layers without kernels at the first call. The latency is then the measured
            one; otherwise PyTorch runs these layers eagerly.
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
        network: the network as PyTorch's code, with the same weights as the kernels.
        compiled: see `load`.
    """

    def __init__(self, network: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.network, self.compiled = network, compiled
        self.training = network.training
        self.loaded = _Loaded(network)
        self.may_differ = False  # whether the network was called in training mode or with gradients since the last full check
        self.program: list[Any] = []  # in a list, so that it is no submodule, whose weights would be counted twice
        self.said: set[str] = set()

    def forward(self, x: torch.Tensor) -> Any:
        """Return the network's output."""
        if self.training or torch.is_grad_enabled():
            self.may_differ = True
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
        """Return why kernels cannot be used for an input of the shape `SHAPE`; "" if they can."""
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *self.network.parameters())):
            return "they have no gradients: call it within torch.no_grad()"
        if reason := self.loaded.difference(self.may_differ):
            return reason
        self.may_differ = False
        return obstacle()


class _Loaded:
    """Snapshot of a loaded network, compared at each call: the kernels keep the weights and settings of loading time.

    PyTorch's version counter of a weight shows most changes, but none by fused optimizers, through `weight.data`, or in memory
    that NumPy shares. So each call also compares a few bytes of each weight, and one piece of 16 KiB, in turn, of all weights.
    A call compares all weights after a step of any optimizer in this process, and after a call in training mode or with
    gradients.
    """

    def __init__(self, network: nn.Module) -> None:
        modules = list(network.modules())
        self.tables = [table for one in modules for table in (one._parameters, one._buffers, one._modules)]
        self.entries = [list(table.values()) for table in self.tables]
        self.hooks = [hooks for one in modules for hooks in (one._forward_hooks, one._forward_pre_hooks)] + [*GLOBAL_HOOKS]
        self.hook_counts = [*map(len, self.hooks)]
        self.settings = []  # such as the eps of a normalization, and the mode
        for one in modules:
            names = sorted(name for name, value in vars(one).items() if isinstance(value, SETTINGS) and name[0] != "_")
            read = itemgetter("training", *names)
            self.settings.append((vars(one), read, read(vars(one))))
        self.tensors = [one for entries in self.entries for one in entries if isinstance(one, torch.Tensor)]
        self.places = self._places()
        on_host = [one for one in self.tensors if one.device.type == "cpu" and one.layout is torch.strided]
        storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in on_host}
        memories = [memoryview((c_char * one.nbytes()).from_address(at)) for at, one in storages.items() if one.nbytes()]
        self.storages = list(storages.values())  # keeps their memory alive, since `pieces` point into it
        self.pieces = [one[at : at + PIECE_BYTES] for one in memories for at in range(0, len(one), PIECE_BYTES)]
        self.checksums = [*map(crc32, self.pieces)]
        self.samples = [one[at : at + 8] for one in memories for at in (0, len(one) // 16 * 8)]
        self.numbers = [*map(bytes, self.samples)]
        self.steps, self.next, self.have_changed = _Steps.taken, 0, False

    def difference(self, may_differ: bool) -> str:
        """Return a clause on the layers, hooks, settings or weights that changed since the network was loaded; "" if none did.

        Args:
            may_differ: whether to compare all weights instead of a part.
        """
        for table, entries in zip(self.tables, self.entries, strict=True):
            if len(table) != len(entries) or not all(map(is_, table.values(), entries)):
                return "they have the layers and the weights that were loaded, of which some were exchanged"
        if [*map(len, self.hooks)] != self.hook_counts:
            return "they call no hooks, and layers have got some"
        if any(read(values) != before for values, read, before in self.settings):
            return "they have the settings of layers that were loaded, such as an eps or a mode, which have changed"
        self.have_changed = self.have_changed or self._places() != self.places or self._differs(may_differ)
        if self.have_changed:
            return "they have the weights that were loaded, which have changed"
        return ""

    def _places(self) -> list[tuple[int, int]]:
        """Return the address and PyTorch's version counter of each weight and buffer."""
        return [(one.data_ptr(), 0 if one.is_inference() else one._version) for one in self.tensors]

    def _differs(self, may_differ: bool) -> bool:
        """Return whether the compared parts of the weights' memory differ from the snapshot."""
        if may_differ or self.steps != _Steps.taken:
            self.steps = _Steps.taken
            return [*map(crc32, self.pieces)] != self.checksums
        at = self.next = (self.next + 1) % max(len(self.pieces), 1)
        return [*map(bytes, self.samples)] != self.numbers or [*map(crc32, self.pieces[at : at + 1])] != self.checksums[
            at : at + 1
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Copied, ()


class _Copied:
    """Replaces `_Loaded` in a copied or unpickled network, whose weights are not those of the kernels: it forbids kernels."""

    def difference(self, may_differ: bool) -> str:
        """Return the clause that says that the network is a copy, so that kernels are never used."""
        return "they have the weights that were loaded, and this is a copy: call load() again"


class _Steps:
    """A counter of the steps of all optimizers in this process, incremented by a hook of PyTorch."""

    taken = 0

    @classmethod
    def count(cls, *_: Any) -> None:
        cls.taken += 1


register_optimizer_step_post_hook(_Steps.count)
PIECE_BYTES = 1 << 14
SETTINGS = (bool, int, float, str, tuple)
GLOBAL_HOOKS = (nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks)


def _program() -> nn.Module:
    """Return the network as a program that calls the kernels, read from native.pt2."""
    file = HERE / "native.pt2"
    if blake2b(file.read_bytes(), digest_size=16).hexdigest() != CHECKSUM:
        raise ValueError(f"{file} is damaged, or not the file of this network: copy the folder again")
    program: nn.Module = torch.export.load(file).module(check_guards=False)
    return program


def _compiled_program(x: torch.Tensor) -> Any:
    """Return the program with the kernels, compiled by TorchInductor with constant weights."""
    program = torch.compile(_program(), dynamic=False)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True, layout_optimization=LAYOUT_OPTIMIZATION):
        program(x)
    return program


@functools.cache
def obstacle() -> str:
    """Build and load the kernels. Return why this machine cannot use them; "" if it can."""
    try:
        _build()
    except CannotBuildError as error:
        return str(error)
    return ""


def _build() -> None:
    """Compile the kernels, unless a library exists, and load them as `torch.ops.syno.OPERATOR`."""
    if hasattr(torch.ops.syno, OPERATOR):  # another copy of this file has loaded them
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
    """Return the instructions that the kernels need and the processor lacks, in words; "" if it lacks none."""
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
    """Return the path of the kernels' library; compile it if there is none."""
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
            except OSError:  # the folder cannot be written
                if not _TEMPORARY:
                    _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="native-"))
                return _kept(content, Path(_TEMPORARY[0].name), name)
    except OSError as error:
        raise CannotBuildError(f"the kernels cannot be written: {error}") from error


def _own_folder(folder: Path) -> Path:
    """Make a folder, remove write permission of other users, and return it. Raises OSError if it is not this user's."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~OF_OTHERS)
    if not _is_own(folder, stat.S_ISDIR):
        raise PermissionError(f"{folder} is a link, or another user's")
    return folder


def _kept(content: bytes, folder: Path, name: str) -> Path:
    """Write a library followed by its checksum into a folder, and return its path."""
    descriptor, temporary = tempfile.mkstemp(dir=folder)  # renamed to `name` when it is complete
    with os.fdopen(descriptor, "wb") as file:
        file.write(content + MARK + blake2b(content, digest_size=16).hexdigest().encode())
        file.flush()
        os.fsync(descriptor)
    return Path(temporary).replace(folder / name)


def _is_own(path: Path, of_kind: Callable[[int], bool]) -> bool:
    """Return whether a path belongs to this user, is no link, and cannot be written by other users."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return of_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & OF_OTHERS


def _is_whole(library: Path) -> bool:
    """Return whether a library belongs to this user, and its content has the checksum at its end."""
    if not _is_own(library, stat.S_ISREG):
        return False
    content, mark, written = library.read_bytes().rpartition(MARK)
    return bool(mark) and written == blake2b(content, digest_size=16).hexdigest().encode()


def _fake(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
    return x.new_empty(next(one for one in arguments if isinstance(one, list | tuple)))
