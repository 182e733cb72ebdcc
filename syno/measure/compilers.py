"""Compilers, by name: what turns a module into what is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from syno.base.errors import MissingPackageError
from syno.base.registry import Registry
from syno.measure.timing import LatencySettings
from syno.measure.tvm.settings import TvmSettings
from syno.measure.tvm.summary import TrialCount

if TYPE_CHECKING:
    import torch
    from torch import nn

    from syno.measure.output_check import OutputCheck

Phase: TypeAlias = Literal["starting", "building", "compiling", "tuning", "measuring"]


@dataclass(frozen=True)
class Job:
    """What a compiler gets.

    Attributes:
        module: in evaluation mode, on `device`.
        example: one input, on `device`.
        make_inputs: makes another.
        device: "cpu", "cuda" or "cuda:1".
        settings: how the result will be measured.
        check: compares the outputs of what is compiled with those of the reference.
        name: of the module, as a file may be called; different modules have different names.
        folder: where files can be kept that a later run may use.
        tvm: settings of TVM.
        deadline: a time of `time.monotonic`, after which nothing that can be left out should be begun.
        begin: to be called with the name of a phase that begins.
        found: to be called with fields for the record.
        count: to be called with the trials that there are while TVM tunes.
        lacks: to be called with a sentence where the result runs, but is not what was asked for.
    """

    module: nn.Module
    example: tuple[torch.Tensor, ...]
    make_inputs: Callable[[], tuple[torch.Tensor, ...]]
    device: str
    settings: LatencySettings
    check: OutputCheck
    name: str
    folder: Path
    tvm: TvmSettings
    deadline: float
    begin: Callable[[Phase], None]
    found: Callable[..., None]
    count: Callable[[TrialCount], None]
    lacks: Callable[[str], None]


Compiler: TypeAlias = "Callable[[Job], Callable[..., Any]]"

COMPILERS: Registry[Compiler] = Registry("compiler")

TVM = "tvm"
DENSE = frozenset({TVM})  # those that take tensors in the order of their axes only, not in channels-last format

# The tolerance of compilers that compute in coarser numbers than the module's: it stands in place of what rounding explains.
# A larger one that is set for a run holds instead; the record has that which held.
LEAST_TOLERANCES = {"inductor-int8": 0.1}

_PACKAGES = {"inductor-int8": ("torchao", "int8")}  # what a compiler needs, and the extra that brings it


def require(compiler: str) -> None:
    """MissingPackageError if what the compiler needs is not installed, UnknownNameError if there is no such compiler."""
    COMPILERS[compiler]
    package, extra = _PACKAGES.get(compiler, ("", ""))
    if package and find_spec(package) is None:
        raise MissingPackageError(
            f"the compiler {compiler} needs {package}, which is not installed: pip install 'syno[{extra}]'"
        )


@COMPILERS.register("eager")
def eager(job: Job) -> Callable[..., Any]:
    """The module as it is: PyTorch's own kernels, one after another."""
    call: Callable[..., Any] = job.module
    return call


@COMPILERS.register("inductor")
def inductor(job: Job) -> Callable[..., Any]:
    """`torch.compile` for inference, as it comes but for constant weights (`freezing`), for the shapes of the example."""
    from syno.measure.inductor import frozen  # here, so that names can be listed without torch

    return frozen(job.module, job.example)


@COMPILERS.register("inductor-max-autotune")
def inductor_max_autotune(job: Job) -> Callable[..., Any]:
    """The same, where several kernels for each product and convolution are timed, and the fastest is taken."""
    from syno.measure.inductor import frozen

    return frozen(job.module, job.example, mode="max-autotune")


@COMPILERS.register("inductor-int8")
def inductor_int8(job: Job) -> Callable[..., Any]:
    """`inductor` after quantization to 8-bit integers, on x86 CPUs: another function, within a tolerance of 0.1 or more."""
    from syno.measure.inductor import CALIBRATIONS, frozen, quantized

    inputs = [job.example, *(job.make_inputs() for _ in range(CALIBRATIONS - 1))]
    return frozen(quantized(job.module, inputs), job.example)


@COMPILERS.register(TVM)
def tvm(job: Job) -> Callable[..., Any]:
    """TVM, with schedules that MetaSchedule finds by measuring on the device."""
    from syno.measure.tvm.compiler import compiled  # here, because it needs TVM and torch

    return compiled(job)
