"""The kernels that an operator runs in a layer, traced without running them.

The operator's module is called on meta tensors. The calls that reach PyTorch's dispatcher are those that would run:
convolutions, matrix products, copies, and elementwise operations.

With the compiler "native", an operator is one function. Its parts are loop nests, whose cycles the cost model of schedules
estimates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from syno.ir.graph import PGraph
from syno.measure.native.kernels import Request, expected_nests
from syno.model.module import build


class Kind(StrEnum):
    """The kind of a kernel. READER reads an operator's output; NEST is a loop nest of a native kernel."""

    CONVOLUTION = "convolution"
    PRODUCT = "product"
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    READER = "reader"
    NEST = "nest"


DENSE = (Kind.CONVOLUTION, Kind.PRODUCT)


@dataclass(frozen=True)
class Kernel:
    """A kernel on tensors of given shapes.

    Attributes:
        kind: see `Kind`; all operations that are no convolution, matrix product or copy count as elementwise.
        of_weights: whether it depends on weights alone, so that a compiler can compute it once.
        flops: multiply-adds of a convolution or product; else the number of elements read or written, whichever is larger.
        read: number of elements of its inputs.
        written: number of elements of its result.
        groups: number of groups of a convolution, or of matrices of a batched product.
        channels: number of summands of each result, not counting the taps of a convolution.
        outputs: output channels per group; rows of a weight or columns of a product.
        taps: number of positions of a convolution's window.
        positions: how often a group's weight is used: batch size times output positions; the other side of a product.
        run: number of elements that are contiguous both in the input and in the result; small for a transposing copy. For a
            convolution, the number of channels that are contiguous in the input.
        gap: stride in the input, in elements, between neighbours in the result; 0 if an element is repeated.
        spread: stride in the result between neighbours in the input.
        row_read, row_written: length of the contiguous axis in the input, and in the result.
        cycles: cycles of a loop nest that the cost model estimates.
        share: useful share of a loop nest's work; the rest is in idle lanes, or in margins of bands.
    """

    kind: Kind
    of_weights: bool
    flops: int
    read: int
    written: int
    groups: int = 1
    channels: int = 1
    outputs: int = 1
    taps: int = 1
    positions: int = 1
    run: int = 1
    gap: int = 1
    spread: int = 1
    row_read: int = 1
    row_written: int = 1
    cycles: float = 0.0
    share: float = 1.0


def kernels(operator: PGraph, values: Mapping[str, int]) -> tuple[Kernel, ...]:
    """Return the kernels that an operator runs in a layer, in order.

    Args:
        operator: the operator.
        values: values of its variables in the layer, including the batch.

    Raises:
        ValuationError, SizeError: a value is missing or does not divide.
        LoweringError: the operator cannot be lowered.
    """
    valuation = operator.valuation(values)
    free = operator.unchanged_variables & {"N"}
    sizes = {name: value for name, value in valuation.items() if name not in free}
    with _WithoutInitialization():
        module = build(operator, sizes, device="meta").eval()
    data = torch.empty([valuation.integer(dim.size) for dim in operator.input], device="meta")
    with torch.no_grad(), _Trace(data) as trace:
        made = module(data)
    return (*trace.kernels, _reader(made))


def native_kernels(operator: PGraph, values: Mapping[str, int], threads: int = 1) -> tuple[Kernel, ...]:
    """Return the loop nests of an operator's native kernel in a layer, in order. Nothing is compiled.

    Args:
        operator: the operator.
        values: values of its variables in the layer, including the batch.
        threads: number of CPU threads.

    Raises:
        ValuationError, SizeError: a value is missing or does not divide.
        LoweringError: the operator has no native kernel.
    """
    return tuple(
        Kernel(
            Kind.NEST, False, nest.flops, nest.read, nest.written, channels=nest.summands, cycles=nest.cycles, share=nest.share
        )
        for nest in expected_nests(Request(str(operator), tuple(values.items()), threads=threads))
    )


def _reader(made: torch.Tensor) -> Kernel:
    """Return the kernel that reads an operator's output, such as a normalization: its time depends on the output's strides."""
    plain = torch.empty(made.shape, device="meta")
    size = made.numel()
    return Kernel(Kind.READER, False, size, size, size, **_order(made, plain))


class _WithoutInitialization(TorchFunctionMode):  # type: ignore[misc]  # mypy does not look into torch
    """Skips the initialization of weights (20 % of the time): meta tensors hold no values."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(function, "__module__", None) == "torch.nn.init":
            return given.get("tensor", args[0] if args else None)
        return function(*args, **given)


class _Trace(TorchDispatchMode):  # type: ignore[misc]
    """Records the kernels of the calls in its block."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return false, for PyTorch: nothing is compiled within, and importing the compiler takes seconds."""
        return False

    def __init__(self, data: torch.Tensor) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self._data: list[torch.Tensor] = [data]  # whatever depends on the data; held, so that no two have the same id
        self._ids = {id(data)}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        given = list(_tensors(args))
        of_weights = not any(id(one) in self._ids for one in given)
        results = list(_tensors((made,)))
        if not of_weights:
            self._data += results
            self._ids.update(map(id, results))
        if results and given and not _is_view(function, given, results[0]):
            self.kernels.append(_kernel(str(function.overloadpacket), args, given, results[0], of_weights))
        return made


def _tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _is_view(function: Any, inputs: list[torch.Tensor], result: torch.Tensor) -> bool:
    """Return whether a call returns a view of one of its inputs, so that it moves no elements."""
    own = result.untyped_storage()._cdata
    return not function._schema.is_mutable and any(one.untyped_storage()._cdata == own for one in inputs)


def _kernel(name: str, args: Any, inputs: list[torch.Tensor], result: torch.Tensor, of_weights: bool) -> Kernel:
    read, written = sum(_elements(one) for one in inputs), result.numel()
    if name == "aten.convolution":
        weight, groups = inputs[1], int(args[8])
        outputs, channels, taps = weight.shape[0] // groups, weight.shape[1], math.prod(weight.shape[2:])
        return Kernel(
            Kind.CONVOLUTION, of_weights, written * channels * taps, read, written, groups, channels, outputs, taps,
            written // max(outputs * groups, 1), inputs[0].shape[1] if inputs[0].stride(1) == 1 else 1,
        )  # fmt: skip
    if name in ("aten.bmm", "aten.mm"):
        matrices = result.shape[0] if result.dim() == 3 else 1
        rows, columns = result.shape[-2:]
        inner = inputs[0].shape[-1]
        return Kernel(
            Kind.PRODUCT, of_weights, written * inner, read, written, matrices, inner, min(rows, columns), 1, max(rows, columns)
        )
    kind = Kind.COPY if len(inputs) == 1 and read == written else Kind.ELEMENTWISE
    largest = max(inputs, key=_elements)
    return Kernel(kind, of_weights, max(read, written), read, written, **_order(largest, result))


def _elements(tensor: torch.Tensor) -> int:
    """Return the number of distinct elements of a tensor; an expanded axis counts as one element."""
    return math.prod(length for length, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)


def _run(read: torch.Tensor, result: torch.Tensor) -> int:
    """Return the number of elements that are contiguous in both tensors."""
    if read.shape != result.shape:
        return 1
    run = 1
    axes = sorted(range(result.dim()), key=lambda axis: result.stride(axis))
    for axis in axes:
        if result.shape[axis] == 1:
            continue
        if result.stride(axis) != run or read.stride(axis) != run:
            break
        run *= result.shape[axis]
    return run


def _order(read: torch.Tensor, result: torch.Tensor) -> dict[str, int]:
    """Return the fields of `Kernel` that describe how the memory orders of two tensors differ: `gap`, `spread`, row lengths."""
    gap, row_written = _neighbours(result, read)
    spread, row_read = _neighbours(read, result)
    return {"run": _run(read, result), "gap": gap, "spread": spread, "row_read": row_read, "row_written": row_written}


def _neighbours(tensor: torch.Tensor, other: torch.Tensor) -> tuple[int, int]:
    """Return the stride in `other` along the contiguous axis of `tensor`, and the length of this axis."""
    if tensor.dim() != other.dim():
        return 1, 1
    axes = [axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1 and tensor.stride(axis)]
    fastest = min(axes, key=tensor.stride, default=None)
    return (1, 1) if fastest is None else (int(other.stride(fastest)), tensor.shape[fastest])
