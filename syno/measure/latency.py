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
MOST_INPUTS = 4096  # in a pool: tiny inputs need not fill the whole cache, where a call's overhead is all there is


class Latency(Timing):
    """The latency of a call, and what makes the figure credible.

    Attributes:
        threads: CPU threads, pinned while measuring.
        inputs: the number of inputs that were used in turn.
        exceeds_cache: whether together they are larger than the largest cache, so that each call reads its own from memory.
        checked: whether outputs were compared with a reference, that of the last timed call among them.
        largest_relative_error, share_of_allowed, rounding_error: the largest deviation, as in
            `syno.measure.output_check.Deviation`; None if nothing was compared.
        flops_per_second, bytes_per_second: computed from the median; multiply-adds count as one FLOP, every input, weight and
            output as moved once. None if not known.
        limit_ms: the milliseconds in which the machine, at its peak, computes and moves so much; None if the peak is not known.
            Fast algorithms for convolutions, which do fewer multiply-adds than are counted, can take less.
        suspicious: whether either is impossible by the machine's own peak (`syno.measure.machine.Peak.is_below`): then a call
            did not do the work.
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
        """Return the latency for a timing and what is known beside it. For `inside` see `against`."""
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
        """Return the same, compared with a peak of the machine, for the least share of the FLOPs that must be done."""
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
        check: compares the output of the last timed call, and those for inputs of its own; None: nothing is compared.
        flops, weight_bytes: of one call, for the comparison with `peak`.
        inside: the least share of the FLOPs that must be done, since they read no padding.
        peak: the peak of the machine (`syno.measure.machine.peak`).
        stopwatch: instead of the device's own.

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
    """Return inputs that together exceed the cache, two at least; and whether they do."""
    pool = [make_inputs(), make_inputs()]
    each = bytes_of(pool[0])
    cache = cache_bytes(next((tensor.device for tensor in tensors_in(pool[0])), torch.device("cpu")))
    while len(pool) < MOST_INPUTS and 0 < each * len(pool) <= min(cache, MOST_POOL_BYTES):
        pool.append(make_inputs())
    return pool, each * len(pool) > cache


def bytes_of(value: Any) -> int:
    """Return the bytes of the tensors in a value."""
    return sum(int(tensor.numel() * tensor.element_size()) for tensor in tensors_in(value))


@contextmanager
def pinned(settings: LatencySettings) -> Iterator[None]:
    """Set torch's threads and rounding to those of the settings within the context."""
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
