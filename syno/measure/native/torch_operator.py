"""The torch operator `syno::native`, which calls a native kernel.

It is C++, compiled once per machine, so that `torch.compile`, `torch.export` and AOTInductor support it.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from pathlib import Path
from typing import Any

import torch

from syno.lower.native.target import own_target
from syno.measure.native.build import library, loaded
from syno.measure.native.kernels import Kernel

SOURCE = Path(__file__).with_name("operator.cpp")


_LOADED: list[Path] = []  # the library of this process: PyTorch cannot load a second one from another store


def torch_operator(store: Path) -> Any:
    """Return the torch operator `syno::native`, compiled into the store unless it is there, and loaded into this process.

    Raises MissingPackageError if there is no C++ compiler, BuildError if it does not compile PyTorch's headers.
    """
    if not _LOADED:
        path = compiled_operator(store)
        torch.ops.load_library(str(path))
        torch.library.register_fake("syno::native", _fake)
        _LOADED.append(path)
    return torch.ops.syno.native.default


def compiled_operator(store: Path) -> Path:
    """Return the library file of the torch operator, compiled into the store unless it is there."""
    place = Path(torch.__file__).parent
    linked = (f"-I{place / 'include'}", f"-L{place / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu")
    source = f"// PyTorch {torch.__version__}\n{SOURCE.read_text()}"
    return library(source, own_target(), store, "operator", linked)


def _fake(
    x: torch.Tensor,
    factors: torch.Tensor,
    scale: torch.Tensor | None,
    shift: torch.Tensor | None,
    residual: torch.Tensor | None,
    kernel: str,
    shape: list[int],
    samples: int,
) -> torch.Tensor:
    return x.new_empty(shape)


@functools.cache
def _register(store: Path) -> Any:
    torch_operator(store)
    function = loaded(_LOADED[0]).syno_register
    function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return function


CALLABLE: dict[str, Kernel] = {}  # kernels that are registered in this process, by name


def make_callable(kernel: Kernel, store: Path) -> str:
    """Register a kernel for calls of `syno::native` in this process, and return its registered name."""
    name, function = kernel.program.name, ctypes.cast(kernel.function, ctypes.c_void_p)
    _register(store)(name.encode(), function, kernel.program.scratch, input_elements(kernel))
    CALLABLE[name] = kernel
    return name


def input_elements(kernel: Kernel) -> int:
    """Return the number of elements of a kernel's input in its stored format."""
    return prod(kernel.request.stored_shapes(own_target().lanes)[0])
