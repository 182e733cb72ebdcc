"""The latency of a function of tensors: measured, checked against a reference, and held against what the machine can do.

>>> settings = LatencySettings(batch=8)
>>> measure(torch.relu, lambda: (torch.randn(8, 64),), settings, reference=lambda x: x.clamp(min=0)).checked
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch

from syno.errors import WrongOutputError
from syno.evaluate.machine import Peak, cache_bytes
from syno.lower.timing import LatencySettings, Stopwatch, Timing, stopwatch_of, time_calls

__all__ = ["Latency", "LatencySettings", "measure", "pinned", "relative_error"]

Inputs: TypeAlias = tuple[Any, ...]

MOST_POOL_BYTES = 2**30
MOST_INPUTS = 4096  # in a pool: tiny inputs need not fill the whole cache, where a call's overhead is all there is


class Latency(Timing):
    """How long a call took, and what makes the figure credible.

    Attributes:
        threads: CPU threads, pinned while measuring.
        inputs: how many inputs were taken in turn.
        exceeds_cache: whether together they are larger than the largest cache, so that each call reads its own from memory.
        checked: whether the output of a timed call was compared with a reference.
        largest_relative_error: of that output, relative to the reference's largest value; None where not checked.
        flops_per_second, bytes_per_second: what the median amounts to; multiply-adds count as one FLOP, every input,
            weight and output as moved once. None where not known.
        suspicious: whether either is above the machine's own peak: then a call did not do the work, or its data never left
            the cache.
    """

    threads: int
    inputs: int
    exceeds_cache: bool
    checked: bool
    largest_relative_error: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    suspicious: bool = False


def measure(
    function: Callable[..., Any],
    make_inputs: Callable[[], Inputs],
    settings: LatencySettings,
    *,
    reference: Callable[..., Any] | None = None,
    flops: int | None = None,
    weight_bytes: int = 0,
    peak: Peak | None = None,
    stopwatch: Stopwatch | None = None,
) -> Latency:
    """Measure `function` without gradients, on the device where its inputs are.

    Args:
        function: takes the tensors of one input; what it returns is tensors, in tuples, lists or mappings if need be.
        make_inputs: makes one input. It is called until the inputs exceed the cache, and they are taken in turn.
        settings: how to measure.
        reference: computes what the output has to be; it gets the input of the last timed call.
        flops, weight_bytes: of one call, for the comparison with `peak`.
        peak: what the machine can do (`syno.evaluate.machine.peak`).
        stopwatch: instead of the device's own.

    Raises:
        WrongOutputError: the output differs from the reference by more than the tolerance.
    """
    with torch.no_grad(), pinned(settings):
        pool, exceeds_cache = _pool(make_inputs)
        device = next((tensor.device.type for tensor in _tensors(pool)), "cpu")
        turn, output = -1, None

        def call() -> None:
            nonlocal turn, output
            turn = (turn + 1) % len(pool)
            output = function(*pool[turn])

        timing = time_calls(call, settings, stopwatch or stopwatch_of(device))
        error = None if reference is None else relative_error(output, reference(*pool[turn]))
        moved = weight_bytes + sum(map(_bytes, _tensors(pool[turn]))) + sum(map(_bytes, _tensors(output)))
    if error is not None and not error <= settings.tolerance:
        raise WrongOutputError(
            f"the output of a timed call differs from its reference by {error:.2g} of the reference's largest value; at most "
            f"{settings.tolerance:g} is allowed: mend the compiler's settings, or raise the tolerance if the error is expected"
        )
    seconds = max(timing.median_ms / 1e3, 1e-12)
    computed_per_second, moved_per_second = flops / seconds if flops else None, moved / seconds
    return Latency(
        **timing.model_dump(),
        threads=settings.threads,
        inputs=len(pool),
        exceeds_cache=exceeds_cache,
        checked=error is not None,
        largest_relative_error=error,
        flops_per_second=computed_per_second,
        bytes_per_second=moved_per_second,
        suspicious=peak is not None and peak.is_below(computed_per_second or 0.0, moved_per_second),
    )


def relative_error(output: Any, expected: Any) -> float:
    """The largest difference of any two numbers, over the largest value expected in that tensor; infinite for other shapes
    or numbers of tensors, and where only one of the two is no finite number."""
    computed, correct = list(_tensors(output)), list(_tensors(expected))
    if [tensor.shape for tensor in computed] != [tensor.shape for tensor in correct] or not correct:
        return float("inf")
    return max(map(_error, computed, correct))


def _error(computed: torch.Tensor, correct: torch.Tensor) -> float:
    if not correct.numel():
        return 0.0
    found, right = computed.detach().double().cpu(), correct.detach().double().cpu()
    finite = right.isfinite()
    same_elsewhere = torch.equal(found[~finite].nan_to_num(nan=0.5), right[~finite].nan_to_num(nan=0.5))
    if not same_elsewhere or not found[finite].isfinite().all():
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(float(right[finite].abs().max()), 1e-30)
    return float((found[finite] - right[finite]).abs().max()) / scale


def _pool(make_inputs: Callable[[], Inputs]) -> tuple[list[Inputs], bool]:
    """Inputs that together exceed the cache, two at least; and whether they do."""
    pool = [make_inputs(), make_inputs()]
    each = sum(map(_bytes, _tensors(pool[0])))
    cache = cache_bytes(next((tensor.device for tensor in _tensors(pool[0])), torch.device("cpu")))
    while len(pool) < MOST_INPUTS and 0 < each * len(pool) <= min(cache, MOST_POOL_BYTES):
        pool.append(make_inputs())
    return pool, each * len(pool) > cache


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


@contextmanager
def pinned(settings: LatencySettings) -> Iterator[None]:
    """Within, torch has the threads and the rounding of the settings; what was set before is restored."""
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
