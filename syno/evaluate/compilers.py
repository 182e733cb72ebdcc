"""Compilers, by name: what turns a module into what is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from syno.evaluate.tvm.settings import TvmSettings
from syno.lower.timing import LatencySettings
from syno.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import nn

Phase: TypeAlias = Literal["starting", "building", "compiling", "tuning", "measuring"]


@dataclass(frozen=True)
class Job:
    """What a compiler gets.

    Attributes:
        module: in evaluation mode, on `device`.
        example: one input, on `device`.
        device: "cpu", "cuda" or "cuda:1".
        settings: how the result will be measured.
        name: of the module, as a file may be called; different modules have different names.
        folder: where files can be kept that a later run may use.
        tvm: settings of TVM.
        deadline: a time of `time.monotonic`, after which nothing that can be left out should be begun.
        begin: to be called with the name of a phase that begins.
        found: to be called with fields for the record.
        lacks: to be called with a sentence where the result runs, but is not what was asked for.
    """

    module: nn.Module
    example: tuple[torch.Tensor, ...]
    device: str
    settings: LatencySettings
    name: str
    folder: Path
    tvm: TvmSettings
    deadline: float
    begin: Callable[[Phase], None]
    found: Callable[..., None]
    lacks: Callable[[str], None]


Compiler: TypeAlias = "Callable[[Job], Callable[..., Any]]"

COMPILERS: Registry[Compiler] = Registry("compiler")

TVM = "tvm"
DENSE = frozenset({TVM})  # those that take tensors in the order of their axes only, not in channels-last format


@COMPILERS.register("eager")
def eager(job: Job) -> Callable[..., Any]:
    """The module as it is: PyTorch's own kernels, one after another."""
    call: Callable[..., Any] = job.module
    return call


@COMPILERS.register("inductor")
def inductor(job: Job) -> Callable[..., Any]:
    """`torch.compile` as it comes, for the shapes of the first call. It compiles when it is first called."""
    import torch  # here, so that names can be listed without torch

    return torch.compile(job.module, dynamic=False)  # type: ignore[no-any-return]


@COMPILERS.register("inductor-max-autotune")
def inductor_max_autotune(job: Job) -> Callable[..., Any]:
    """`torch.compile` that times several kernels for each product and convolution, and takes the fastest."""
    import torch

    return torch.compile(job.module, dynamic=False, mode="max-autotune")  # type: ignore[no-any-return]


@COMPILERS.register(TVM)
def tvm(job: Job) -> Callable[..., Any]:
    """TVM, with schedules that MetaSchedule finds by measuring on the device."""
    from syno.evaluate.tvm.compiler import compiled  # here, because it needs TVM and torch

    return compiled(job)
