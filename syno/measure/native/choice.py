"""Choice of the code of each layer, native kernel or PyTorch's, and of the format of the tensors between them.

A tensor that only kernels write and read can be in the format "lanes", so that no kernel transposes it. So a kernel that alone
is slower than PyTorch's code can be worthwhile between two others. The choice minimizes the sum of measured times by an exact
search, layer by layer, over the formats of tensors that later layers read.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from filelock import FileLock
from pydantic import BaseModel, TypeAdapter

from syno.base.core_locks import make_way
from syno.base.errors import LoweringError, WrongOutputError, first_line
from syno.base.files import checksum
from syno.base.record import Positive
from syno.ir.coordinates import Array
from syno.lower.native.layouts import Format
from syno.lower.native.target import own_target
from syno.measure.native.build import BuildError
from syno.measure.native.kernels import Kernel, Request, kernel_for
from syno.measure.native.layers import End, Layer, PlacedLayer
from syno.measure.native.store import make_store, read_entry, write_entry
from syno.measure.native.torch_operator import make_callable, torch_operator

Formats: TypeAlias = tuple[Format, Format]  # of the input and of the output
USUAL: Formats = ("contiguous", "contiguous")
IN_LANES: Formats = ("lanes", "lanes")
SECONDS_TIMED, LEAST_ROUNDS = 0.06, 8  # duration and rounds of the timing of a kernel against PyTorch's code
REPEAT_SECONDS = 5e-4  # minimum duration of a repeat
SHORTEST_MS = 0.02  # library calls that are shorter consist of overhead, so that no kernel is tried
CLEARLY = (
    0.6  # a kernel above this share of the eager module's time is also compared with the compiled module, which takes long
)
LEAST_IN_LANES = 1 << 13  # elements: transposing smaller tensors takes no time
NO_KERNEL = (LoweringError, BuildError, WrongOutputError)  # after these errors, PyTorch's code computes the layer
MILLISECONDS = TypeAdapter(dict[Literal["milliseconds"], list[Positive]])  # content of a stored entry of times
MOST_STATES = 256  # beam width of the search for formats


class LayerChoice(BaseModel):
    """The code that computes a layer, with the measured times.

    Attributes:
        name: the layer's name in the network.
        is_native: whether a native kernel computes it.
        native_ms: latency of the kernel with its fused epilogue, in ms; None if there is no kernel.
        other_ms: latency of PyTorch's code, in ms.
        reason: the reason why there is no kernel.
        is_faulty: whether a generated kernel did not compile, or computed a wrong output.
        formats: the formats of the kernel's input and output.
    """

    name: str
    is_native: bool
    native_ms: float | None = None
    other_ms: float | None = None
    reason: str = ""
    is_faulty: bool = False
    formats: Formats = USUAL


@dataclass(frozen=True)
class Times:
    """Latencies of a layer, in milliseconds.

    Attributes:
        native: latencies of kernels with their fused epilogue, by the formats of input and output.
        other: latency of PyTorch's code; None if there is no kernel to compare it with.
        reason: the reason why there is no kernel.
        is_faulty: whether a generated kernel did not compile, or computed a wrong output.
    """

    native: Mapping[Formats, float] = field(default_factory=dict)
    other: float | None = None
    reason: str = ""
    is_faulty: bool = False


@dataclass(frozen=True)
class Call:
    """A call of a kernel with its constant tensors.

    Attributes:
        kernel: the kernel.
        name: the kernel's registered name in this process.
        factors: the packed weights.
        scale, shift: factor and summand of each channel in the epilogue; None if there is none.
        shape: the shape of the output.
    """

    kernel: Kernel
    name: str
    factors: torch.Tensor
    scale: torch.Tensor | None
    shift: torch.Tensor | None
    shape: tuple[int, ...]

    def arguments(self, x: Any, factors: Any, scale: Any, shift: Any, residual: Any) -> tuple[Any, ...]:
        """Return the arguments of the torch operator `syno::native`."""
        return x, factors, scale, shift, residual, self.name, list(self.shape), self.kernel.program.samples


class Workshop:
    """Makes kernels, and times them against PyTorch's code.

    Args:
        store: the folder of kernels and times.
        threads: number of CPU threads.
    """

    def __init__(self, store: Path, threads: int) -> None:
        self.store, self.threads = store, threads
        self._hopeless: dict[Layer, str] = {}
        self._kernels: dict[Request, Kernel] = {}

    def chosen(self, layers: Sequence[PlacedLayer]) -> list[LayerChoice]:
        """Return the choice for each layer that minimizes the sum of the times of all layers."""
        possible = tensors_between(layers)
        worth = {
            tensor
            for layer in layers
            if layer.layer.is_alone and not self._why_hopeless(layer.layer)
            for tensor in (layer.input, layer.end.residual, layer.last)
            if tensor in possible
        }
        lanes = [(layer.input in worth, layer.last in worth) for layer in layers]
        self._make(layers, lanes)
        times = []
        for layer, one in zip(layers, lanes, strict=True):
            make_way()  # let measurements of other processes go first: these times are only for the choice
            times.append(self._times(layer.layer, layer.end, one))
        found = fastest_formats(layers, times)
        return [_choice(layer.layer, formats, one) for layer, formats, one in zip(layers, found, times, strict=True)]

    def alone(self, layer: Layer) -> LayerChoice:
        """Return the choice for a single layer outside of a graph: a kernel without epilogue, or PyTorch's code."""
        times = self._times(layer, End.of(layer), (False, False))
        is_native = USUAL in times.native and times.native[USUAL] < (times.other or 0.0)
        return _choice(layer, USUAL if is_native else None, times)

    def call(self, layer: Layer, end: End, formats: Formats, shape: Sequence[int]) -> Call:
        """Return a call of the layer's fastest kernel. `shape` is the shape of the output if it is contiguous."""
        kernel = self._kernel(layer, end, formats)
        if formats[1] == "lanes":
            shape = kernel.request.stored_shapes(own_target().lanes)[1]
        return Call(
            kernel,
            make_callable(kernel, self.store),
            aligned(kernel.factors(layer.weights)),
            None if end.scale is None else aligned(end.scale),
            None if end.shift is None else aligned(end.shift),
            tuple(int(length) for length in shape),
        )

    def _make(self, layers: Sequence[PlacedLayer], lanes: Sequence[tuple[bool, bool]]) -> None:
        """Make the kernels of layers in parallel; kernels that differ only in the epilogue in sequence, to share trials."""
        same: dict[Request, list[tuple[Layer, End, Formats]]] = {}
        for one, which in zip(layers, lanes, strict=True):
            wanted = [(one.layer, one.end, formats) for formats in self._wanted(one.layer, which)]
            same.setdefault(one.layer.request, []).extend(wanted)

        def make(wanted: Sequence[tuple[Layer, End, Formats]]) -> None:
            for layer, end, formats in wanted:
                with suppress(*NO_KERNEL):  # `_times` says why
                    self._kernel(layer, end, formats)

        kernels, count = list(same.values()), os.cpu_count() or 1
        with ThreadPoolExecutor(count) as pool:
            for place in range(0, len(kernels), count):
                make_way()
                list(pool.map(make, kernels[place : place + count]))

    def _wanted(self, layer: Layer, lanes: tuple[bool, bool]) -> list[Formats]:
        """Return the formats of input and output with which a kernel may be faster than PyTorch's code.

        For `lanes` see `_times`.
        """
        if not any(lanes) and self._why_hopeless(layer):
            return []
        inner: Formats = ("lanes" if lanes[0] else "contiguous", "lanes" if lanes[1] else "contiguous")
        return [formats for formats in dict.fromkeys((USUAL, inner)) if formats != USUAL or layer.is_alone]

    def _why_hopeless(self, layer: Layer) -> str:
        if layer not in self._hopeless:
            self._hopeless[layer] = hopeless(layer, self.threads, self.store)
        return self._hopeless[layer]

    def _times(self, layer: Layer, end: End, lanes: tuple[bool, bool]) -> Times:
        """Return the latencies of a layer's kernels, by formats, and of PyTorch's code.

        A kernel from "lanes" to another format, or back, is not timed: its time is that of the kernel from "lanes" to "lanes",
        plus the time of transposing that was measured with the schedules.

        Args:
            layer: the layer.
            end: the layer's epilogue.
            lanes: whether the input, and the output, may be in the format "lanes".
        """
        reason, is_faulty = "" if any(lanes) else self._why_hopeless(layer), False
        kernels: dict[Formats, Kernel] = {}
        for formats in self._wanted(layer, lanes):
            try:
                kernels[formats] = self._kernel(layer, end, formats)
            except NO_KERNEL as error:
                reason, is_faulty = reason or first_line(error), not isinstance(error, LoweringError)
        if not kernels:
            return Times(reason=reason or "it is no kernel but between tensors in lanes", is_faulty=is_faulty)
        other, *native = self._measured(layer, end, list(kernels.values()))
        times = dict(zip(kernels, native, strict=True))
        if IN_LANES in times:
            trial = kernels[IN_LANES].choice
            times["contiguous", "lanes"] = times[IN_LANES] + trial.bringing_in_ms
            times["lanes", "contiguous"] = times[IN_LANES] + trial.bringing_out_ms
        return Times(times, other)

    def _kernel(self, layer: Layer, end: End, formats: Formats) -> Kernel:
        epilogue = end.epilogue(layer.channel)
        request = replace(layer.request, formats=formats, epilogue=epilogue, threads=self.threads)
        if request not in self._kernels:
            self._kernels[request] = stored_kernel(request, self.store)
        return self._kernels[request]

    def _measured(self, layer: Layer, end: End, kernels: Sequence[Kernel]) -> list[float]:
        """Return the latencies in ms of PyTorch's code and of the kernels, from the store or measured now."""

        def measured() -> tuple[float, ...]:
            native = [self._native(layer, end, kernel.request) for kernel in kernels]
            times = fastest_in_turns(layer.other(), *native)
            if layer.compiled is not None and min(times[1:]) > CLEARLY * times[0]:
                times = fastest_in_turns(layer.compiled(), *native)
            return times

        key = (layer.code, *(kernel.program.name for kernel in kernels))
        return stored_times(key, measured, self.threads, self.store)

    def _native(self, layer: Layer, end: End, request: Request) -> Callable[[], object]:
        into, out = request.stored_shapes(own_target().lanes)
        call = self.call(layer, end, request.formats, out)
        residual = None if end.residual is None else torch.randn(out)
        arguments = call.arguments(torch.randn(into), call.factors, call.scale, call.shift, residual)
        return partial(torch_operator(self.store), *arguments)


def _choice(layer: Layer, formats: Formats | None, times: Times) -> LayerChoice:
    """Return the choice of the kernel with these formats; if `formats` is None, of PyTorch's code."""
    return LayerChoice(
        name=layer.name,
        is_native=formats is not None,
        native_ms=min(times.native.values(), default=None) if formats is None else times.native[formats],
        other_ms=times.other,
        reason=times.reason,
        is_faulty=times.is_faulty,
        formats=formats or USUAL,
    )


def tensors_between(layers: Sequence[PlacedLayer]) -> set[Any]:
    """Return the nodes of tensors that may be in the format "lanes": only kernels write and read them, and they are large."""
    inside = {node for layer in layers for node in layer.end.nodes}
    found = {}
    for layer in layers:
        shape = layer.layer.shapes[1]
        if 2 * shape[0] > own_target().lanes and math.prod(shape) >= LEAST_IN_LANES and inside.issuperset(layer.last.users):
            found[layer.last] = shape
    for layer in layers:  # a tensor that is read in another shape would have another order in lanes
        for tensor, shape in zip((layer.input, layer.end.residual), layer.layer.shapes, strict=True):
            if found.get(tensor, shape) != shape:
                del found[tensor]
    return set(found)


def fastest_formats(layers: Sequence[PlacedLayer], times: Sequence[Times]) -> list[Formats | None]:
    """Return the formats of each layer's kernel, or None for PyTorch's code, that minimize the sum of times.

    The layers are in the order of their outputs. A state of the search is the set of live tensors in the format "lanes"; all
    others are contiguous. A residual must have the format of its kernel's output.
    """
    last_use = {tensor: at for at, layer in enumerate(layers) for tensor in (layer.input, layer.end.residual)}
    states: dict[frozenset[Any], tuple[float, tuple[Formats | None, ...]]] = {frozenset(): (0.0, ())}
    for at, (layer, one) in enumerate(zip(layers, times, strict=True)):
        after: dict[frozenset[Any], tuple[float, tuple[Formats | None, ...]]] = {}
        for state, (total, before) in states.items():
            for formats, took in ((None, one.other or 0.0), *one.native.items()):
                into, out = formats or USUAL
                residual = out if layer.end.residual is None else _format(layer.end.residual, state)
                if into != _format(layer.input, state) or out != residual:
                    continue
                made = state | {layer.last} if out == "lanes" else state
                kept = frozenset(tensor for tensor in made if last_use.get(tensor, -1) > at)
                if kept not in after or total + took < after[kept][0]:
                    after[kept] = total + took, (*before, formats)
        states = dict(sorted(after.items(), key=lambda item: item[1][0])[:MOST_STATES])
    return list(states[frozenset()][1])


def _format(tensor: Any, in_lanes: frozenset[Any]) -> Format:
    return "lanes" if tensor in in_lanes else "contiguous"


def hopeless(layer: Layer, threads: int, store: Path) -> str:
    """Return the reason why no kernel can be faster than PyTorch's code for a layer; "" if a kernel may be faster.

    The library's speed must not be a reason. When fast library layers were excluded, they had no kernels in the original
    network but had some beside operators, which overstated the operators' speedup by up to a third.
    """
    if not layer.is_library:
        return ""
    key = (layer.code, repr(layer.request), str(threads))
    (latency_ms,) = stored_times(key, lambda: fastest_in_turns(layer.other()), threads, store)
    if latency_ms < SHORTEST_MS:
        return f"PyTorch's code takes {1e3 * latency_ms:.0f} microseconds, hardly more than a call"
    return ""


def stored_times(key: Iterable[str], measure: Callable[[], Iterable[float]], threads: int, store: Path) -> list[float]:
    """Return the stored latencies in ms for a cache key; if there are none, call `measure` and store its result."""
    place = store / f"times_{checksum(' '.join([torch.__version__, *key]).encode())[:20]}.json"
    kept = read_entry(place, MILLISECONDS.validate_python)
    if kept is not None:
        return kept["milliseconds"]
    with torch.no_grad(), pinned_threads(threads):
        times = list(measure())
    write_entry(place, {"milliseconds": times})
    return times


def stored_kernel(request: Request, store: Path) -> Kernel:
    """Return a kernel from the store; if it is missing, one process makes it, and others wait. Raises as `kernel_for`."""
    with FileLock(make_store(store) / f"{checksum(repr(request).encode())[:20]}.lock"):
        return kernel_for(request, store)


def aligned(values: Array) -> torch.Tensor:
    """Return values as a float32 tensor whose memory is aligned for vector loads."""
    return torch.empty(values.shape).copy_(torch.from_numpy(np.ascontiguousarray(values)))


@contextmanager
def pinned_threads(threads: int) -> Iterator[None]:
    """Set PyTorch's number of threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fastest_in_turns(*calls: Callable[[], object]) -> tuple[float, ...]:
    """Time calls in turns, and return the minimum of each in ms.

    With one thread, its CPU time is measured, so that other load does not count.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    counts = []
    for call in calls:
        call()
        began = clock()
        call()
        counts.append(max(1, math.ceil(REPEAT_SECONDS / max(clock() - began, 1e-7))))
    least = [math.inf] * len(calls)
    end, rounds = time.monotonic() + SECONDS_TIMED * len(calls), 0
    while rounds < LEAST_ROUNDS or time.monotonic() < end:
        rounds += 1
        for number, (call, count) in enumerate(zip(calls, counts, strict=True)):
            began = clock()
            for _ in range(count):
                call()
            least[number] = min(least[number], 1e3 * (clock() - began) / count)
    return tuple(least)
