"""Calling a built network with PyTorch's tensors, without copying them."""

from __future__ import annotations

from typing import Any

import torch

from syno.base.errors import ShapeError


class TvmModule:
    """A built network as a function of PyTorch tensors on its device. Memory is shared both ways.

    Args:
        executable: a `relax.VMExecutable`.
        device: "cpu" or "cuda", this process's first.
    """

    def __init__(self, executable: Any, device: str) -> None:
        import tvm
        from tvm import relax

        self._machine = relax.VirtualMachine(executable, tvm.runtime.device(device, 0))
        self._main = self._machine["main"]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """The network's output, a tensor or a list of them.

        Raises ShapeError for a tensor that is not dense in the order of its axes, such as one in channels-last format.
        """
        import tvm_ffi

        for tensor in tensors:
            if not tensor.is_contiguous():
                raise ShapeError(
                    f"TVM takes tensors that are dense in the order of their axes; this one has shape {tuple(tensor.shape)} "
                    f'and strides {tensor.stride()}: use the memory format "contiguous"'
                )
        return _tensors(self._main(*(tvm_ffi.from_dlpack(tensor.detach()) for tensor in tensors)))


def _tensors(output: Any) -> Any:
    if hasattr(output, "__dlpack__"):
        return torch.from_dlpack(output)
    return [_tensors(part) for part in output]
