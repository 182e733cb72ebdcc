"""The latency of a function of tensors: measured, checked against a reference, and compared with the machine's peak.

>>> settings = LatencySettings(batch=8)
>>> check = OutputCheck(lambda x: x.clamp(min=0), [(torch.randn(8, 64),)])
>>> measure(torch.relu, lambda: (torch.randn(8, 64),), settings, check=check).checked
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from syno.measure.machine import Peak, cache_bytes
from syno.measure.output_check import Deviation, Inputs, OutputCheck, relative_error
from syno.measure.timing import LatencySettings, Stopwatch, Timing, stopwatch_of, time_calls
from syno.model.outputs import tensors_in

__all__ = ["Latency", "LatencySettings", "measure", "pinned", "relative_error"]

MOST_POOL_BYTES = 2**30
MOST_INPUTS = 4096  # in a pool: for tiny inputs, whose calls are all overhead, the pool need not exceed the cache


class Latency(Timing):
    """The latency of a call, with the evidence that it is credible.

    Attributes:
        threads: number of CPU threads, fixed during the measurement.
        inputs: the number of different inputs, used in turn.
        exceeds_cache: whether the inputs together exceed the largest cache, so that each call reads its input from memory.
        checked: whether outputs were compared with a reference, including that of the last timed call.
        largest_relative_error, share_of_allowed, rounding_error: the largest deviation, as in
            `syno.measure.output_check.Deviation`; None if nothing was compared.
        flops_per_second, bytes_per_second: computed from the median latency, where a multiply-add is one FLOP, and each input,
            weight and output is moved once. None if not known.
        limit_ms: lower bound of the latency by the machine's peak FLOP/s and bandwidth, in milliseconds; None if the peak is
            not known. Fast convolution algorithms (Winograd), which do fewer multiply-adds than are counted, can take less.
        suspicious: whether one of the speeds exceeds the machine's peak (`syno.measure.machine.Peak.is_below`), so that a call
            cannot have done its work.
    """

    threads: int
    inputs: int
    exceeds_cache: bool
    checked: bool
    largest_relative_error: float | None = None
    share_of_allowed: float | None = None
    rounding_error: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    limit_ms: float | None = None
    suspicious: bool = False

    @classmethod
    def of(
        cls,
        timing: Timing,
        *,
        threads: int,
        inputs: int,
        exceeds_cache: bool,
        deviation: Deviation | None,
        flops: int | None,
        moved_bytes: int,
        inside: float = 1.0,
        peak: Peak | None = None,
    ) -> Latency:
        """Return the latency for a timing, with derived speeds. For `inside` see `against`."""
        seconds = max(timing.median_ms / 1e3, 1e-12)
        found = cls(
            **timing.model_dump(),
            threads=threads,
            inputs=inputs,
            exceeds_cache=exceeds_cache,
            checked=deviation is not None,
            largest_relative_error=None if deviation is None else deviation.relative,
            share_of_allowed=None if deviation is None else deviation.of_allowed,
            rounding_error=None if deviation is None else deviation.rounding,
            flops_per_second=flops / seconds if flops else None,
            bytes_per_second=moved_bytes / seconds,
        )
        return found if peak is None else found.against(peak, inside)

    def against(self, peak: Peak, inside: float = 1.0) -> Latency:
        """Return the latency compared with the machine's peak; `inside` is the share of the FLOPs that cannot be skipped."""
        speeds = inside * (self.flops_per_second or 0.0), self.bytes_per_second or 0.0
        seconds = max(self.median_ms / 1e3, 1e-12)
        limit = peak.limit_seconds(*(round(speed * seconds) for speed in speeds))
        return self.model_copy(update={"limit_ms": 1e3 * limit, "suspicious": peak.is_below(*speeds)})


def measure(
    function: Callable[..., Any],
    make_inputs: Callable[[], Inputs],
    settings: LatencySettings,
    *,
    check: OutputCheck | None = None,
    flops: int | None = None,
    weight_bytes: int = 0,
    inside: float = 1.0,
    peak: Peak | None = None,
    stopwatch: Stopwatch | None = None,
) -> Latency:
    """Measure `function` without gradients, on the device of its inputs.

    Args:
        function: takes the tensors of one input and returns tensors, also in tuples, lists or mappings.
        make_inputs: makes one input. It is called until the inputs exceed the cache, and they are used in turn.
        settings: how to measure.
        check: checks the output of the last timed call, and outputs for inputs of its own; None: no check.
        flops, weight_bytes: multiply-adds of one call and bytes of the weights, for the comparison with `peak`.
        inside: the share of the FLOPs that read no padding, and so cannot be skipped.
        peak: the peak of the machine (`syno.measure.machine.peak`).
        stopwatch: times a series of calls; None: the stopwatch of the device.

    Raises:
        WrongOutputError: an output differs from the reference by more than is allowed.
    """
    with torch.no_grad(), pinned(settings):
        pool, exceeds_cache = pool_of(make_inputs)
        device = next((tensor.device.type for tensor in tensors_in(pool)), "cpu")
        turn, output = -1, None

        def call() -> None:
            nonlocal turn, output
            turn = (turn + 1) % len(pool)
            output = function(*pool[turn])

        timing = time_calls(call, settings, stopwatch or stopwatch_of(device))
        found = None
        if check is not None:  # the last output first: another call may write into it
            found = check.require(check.of_output(output, pool[turn]), "the output of a timed call")
            found = found.worse(check.require(check.of(function)))
        return Latency.of(
            timing,
            threads=settings.threads,
            inputs=len(pool),
            exceeds_cache=exceeds_cache,
            deviation=found,
            flops=flops,
            moved_bytes=weight_bytes + bytes_of(pool[turn]) + bytes_of(output),
            inside=inside,
            peak=peak,
        )


def pool_of(make_inputs: Callable[[], Inputs]) -> tuple[list[Inputs], bool]:
    """Return at least two inputs, enough to exceed the largest cache if possible; and whether they exceed it."""
    pool = [make_inputs(), make_inputs()]
    each = bytes_of(pool[0])
    cache = cache_bytes(next((tensor.device for tensor in tensors_in(pool[0])), torch.device("cpu")))
    while len(pool) < MOST_INPUTS and 0 < each * len(pool) <= min(cache, MOST_POOL_BYTES):
        pool.append(make_inputs())
    return pool, each * len(pool) > cache


def bytes_of(value: Any) -> int:
    """Return the number of bytes of all tensors in a value."""
    return sum(int(tensor.numel() * tensor.element_size()) for tensor in tensors_in(value))


@contextmanager
def pinned(settings: LatencySettings) -> Iterator[None]:
    """Set torch's number of threads and its TF32 rounding as the settings say, within the context."""
    threads, convolutions = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    products = torch.get_float32_matmul_precision()
    torch.set_num_threads(settings.threads)
    torch.set_float32_matmul_precision("high" if settings.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = settings.tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
