"""The latency of a network that TVM built, on a remote device: checked first, then measured as everything is.

The clock is the device's own: the network between here and there is in no figure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from syno.base.errors import DeviceError
from syno.measure.output_check import Deviation, Expected, wrong_output
from syno.measure.timing import REPEAT_MS, LatencySettings, Timing, interval_of_median
from syno.measure.tvm.answers import Reached, reach
from syno.measure.tvm.health import last_words
from syno.measure.tvm.sessions import Lease, borrow, workers

if TYPE_CHECKING:
    from torch import Tensor

    from syno.measure.latency import Latency

Evaluate: TypeAlias = Callable[[int, int], list[float]]  # calls in a repeat, repeats: milliseconds of a call in each repeat

LEAST_CALL_MS = 1e-4  # what is faster is taken as this, so that a clock that stands still ends, too


def measure_remote(
    library: Path,
    expected: Sequence[Expected],
    device: Reached,
    settings: LatencySettings,
    *,
    kind: str = "cpu",
    seconds: float = 60,
    wait_seconds: float = 30,
    flops: int | None = None,
) -> Latency:
    """Upload a network, check its output, time it, and check the output of the last call that was timed.

    Args:
        library: what `export_library` wrote of a Relax module, as .tar (linked on the device) or .so; its function is `main`.
        expected: inputs of `main`, and what it has to return for them; timed calls have the last of the inputs.
        device: as `syno.measure.tvm.tracker.reached` found it.
        settings: how to measure.
        kind: "cpu" or "cuda".
        seconds: for the whole session.
        wait_seconds: for a free server.
        flops: of one call.

    Raises:
        WrongOutputError: an output differs by more than is allowed.
        DeviceError: there is no server, the session took too long, or the device failed or died; within seconds, where the
            device's system tells, and after `seconds` at the latest where it cannot.
    """
    device = reach(device.name, device.tracker, device.key)
    lease = Lease(device, seconds, wait_seconds, settings.threads)
    processes = workers(lease)
    try:
        found, timing = processes.call(run_session, lease, str(library), kind, list(expected), settings)
    except Exception as failure:  # of whatever kind: TVM's, the worker's, the network's
        said = last_words(str(failure)) or f"no answer within {lease.limit_seconds:g} s"
        raise DeviceError(f"{device.describe()} failed while it measured {library.name}: {said}") from None
    finally:
        processes.close()
    if timing is None:
        raise wrong_output(found, settings.tolerance, f"on {device.describe()} the output")
    return _latency(timing, found, expected[-1], settings, flops)


def run_session(
    lease: Lease, library: str, kind: str, expected: Sequence[Expected], settings: LatencySettings
) -> tuple[Deviation, Timing | None]:
    """In a worker's process: the largest deviation of an output, and the timing if that is small enough."""
    import tvm
    from tvm import relax

    session = borrow(lease)
    name, device = Path(library).name, session.device(kind, 0)
    session.upload(library)
    machine = relax.VirtualMachine(session.load_module(name), [device, session.cpu(0)] if kind != "cpu" else device)

    def deviation(one: Expected) -> Deviation:
        return one.deviation(_tensors(machine.get_outputs("main")))

    found = Deviation(0.0, 0.0, None)
    for one in expected:
        machine.set_input("main", *(tvm.runtime.tensor(tensor.detach().cpu().numpy(), device) for tensor in one.inputs))
        machine.invoke_stateful("main")
        found = found.worse(deviation(one))
    if not found.of_allowed <= 1:
        return found, None

    def evaluate(calls: int, repeats: int) -> list[float]:
        evaluator = machine.time_evaluator("invoke_stateful", device, number=calls, repeat=repeats)
        return [1e3 * seconds for seconds in evaluator("main").results]

    timing = time_repeats(evaluate, settings)
    found = found.worse(deviation(expected[-1]))
    return found, timing if found.of_allowed <= 1 else None


def time_repeats(evaluate: Evaluate, settings: LatencySettings) -> Timing:
    """As `syno.measure.timing.time_calls`, with a clock that takes whole series of repeats, so that the way there and back is
    not between them. Each series makes one call more, which it does not time."""
    fastest = max(min(evaluate(1, 2)), LEAST_CALL_MS)
    warm = 2 * fastest
    while warm < settings.warm_up_ms:
        more = evaluate(1, _within(1, (settings.warm_up_ms - warm) / fastest, settings.most_repeats))
        warm += sum(max(call, LEAST_CALL_MS) for call in more)
        fastest = max(min(fastest, *more), LEAST_CALL_MS)
    calls = max(1, math.ceil(REPEAT_MS / fastest))
    taken: list[float] = []
    total = 0.0
    while len(taken) < settings.most_repeats and (len(taken) < settings.least_repeats or total < settings.least_ms):
        lacking = max(settings.least_repeats - len(taken), (settings.least_ms - total) / (fastest * calls))
        more = evaluate(calls, _within(1, lacking, settings.most_repeats - len(taken)))
        taken += more
        total += calls * sum(more)
    taken.sort()
    low, high = interval_of_median(taken)
    return Timing(
        median_ms=statistics.median(taken),
        low_ms=low,
        high_ms=high,
        minimum_ms=taken[0],
        repeats=len(taken),
        calls_per_repeat=calls,
    )


def _within(least: int, wanted: float, most: int) -> int:
    return max(least, min(math.ceil(wanted), most))


def _tensors(output: Any) -> Sequence[Tensor]:
    import torch

    parts = output if isinstance(output, tuple | list) else [output]
    return [torch.from_numpy(part.numpy()) for part in parts]


def _latency(timing: Timing, found: Deviation, timed: Expected, settings: LatencySettings, flops: int | None) -> Latency:
    from syno.measure.latency import Latency

    seconds = max(timing.median_ms / 1e3, 1e-12)
    return Latency(
        **timing.model_dump(),
        threads=settings.threads,
        inputs=1,
        exceeds_cache=False,  # there is one input, and nobody here knows the device's cache
        checked=True,
        largest_relative_error=found.relative,
        share_of_allowed=found.of_allowed,
        rounding_error=found.rounding,
        flops_per_second=flops / seconds if flops else None,
        bytes_per_second=(sum(one.nbytes for one in timed.inputs) + sum(4 * one.numel() for one in timed.exact)) / seconds,
    )
