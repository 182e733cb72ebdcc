"""Compilers, by name: what turns a module into what is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from syno.registry import Registry

if TYPE_CHECKING:
    from torch import nn

Compiler: TypeAlias = "Callable[[nn.Module], Callable[..., Any]]"

COMPILERS: Registry[Compiler] = Registry("compiler")


@COMPILERS.register("eager")
def eager(module: nn.Module) -> Callable[..., Any]:
    """The module as it is: PyTorch's own kernels, one after another."""
    call: Callable[..., Any] = module
    return call


@COMPILERS.register("inductor")
def inductor(module: nn.Module) -> Callable[..., Any]:
    """`torch.compile` as it comes, for the shapes of the first call. It compiles when it is first called."""
    import torch  # here, so that names can be listed without torch

    return torch.compile(module, dynamic=False)  # type: ignore[no-any-return]


@COMPILERS.register("inductor-max-autotune")
def inductor_max_autotune(module: nn.Module) -> Callable[..., Any]:
    """`torch.compile` that times several kernels for each product and convolution, and takes the fastest."""
    import torch

    return torch.compile(module, dynamic=False, mode="max-autotune")  # type: ignore[no-any-return]
