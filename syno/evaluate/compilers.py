"""Compilers, by name: what turns a module into what is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from syno.errors import MissingPackageError
from syno.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Job:
    """What a compiler gets.

    Attributes:
        module: in evaluation mode.
        example: one input, on the module's device.
        make_inputs: makes another.
    """

    module: nn.Module
    example: tuple[torch.Tensor, ...]
    make_inputs: Callable[[], tuple[torch.Tensor, ...]]


Compiler: TypeAlias = "Callable[[Job], Callable[..., Any]]"

COMPILERS: Registry[Compiler] = Registry("compiler")

# The least tolerance of compilers that round: what else is set for a run is raised to it, and so it is in the record.
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
    from syno.evaluate.inductor import frozen  # here, so that names can be listed without torch

    return frozen(job.module, job.example)


@COMPILERS.register("inductor-max-autotune")
def inductor_max_autotune(job: Job) -> Callable[..., Any]:
    """The same, where several kernels for each product and convolution are timed, and the fastest is taken."""
    from syno.evaluate.inductor import frozen

    return frozen(job.module, job.example, mode="max-autotune")


@COMPILERS.register("inductor-int8")
def inductor_int8(job: Job) -> Callable[..., Any]:
    """`inductor` after quantization to 8-bit integers, on x86 CPUs: another function, within a tolerance of 0.1 or more."""
    from syno.evaluate.inductor import CALIBRATIONS, frozen, quantized

    inputs = [job.example, *(job.make_inputs() for _ in range(CALIBRATIONS - 1))]
    return frozen(quantized(job.module, inputs), job.example)
