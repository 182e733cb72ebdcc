"""Sessions with a remote device: candidates are timed in them, and networks are checked and timed.

Each runs in a worker's process: if a device hangs, the process can be ended. The clock is the device's own, so figures do
not include the network in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import DeviceError
from syno.measure.timing import LatencySettings, Timing, time_repeats
from syno.measure.tvm.tracker import Reached, reach

if TYPE_CHECKING:
    from syno.measure.expected import Deviation, Expected
    from syno.measure.latency import Latency

ASK_SECONDS = 5.0  # in a tracker's queue, before looking whether there still is a server
BIG_CORES = 1  # the mode of TVM's thread pool that takes the fast cores, where a processor has two kinds
SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class Lease:
    """The terms on which a device is borrowed.

    Attributes:
        device: the device.
        seconds: of a session, after which its server ends it.
        wait_seconds: for a free server.
        threads: CPU threads on the device; None for the device's default.
    """

    device: Reached
    seconds: float
    wait_seconds: float
    threads: int | None = None

    @property
    def limit_seconds(self) -> float:
        """The seconds after which no answer will come: the device or its network hangs."""
        return self.wait_seconds + self.seconds + 5


def borrow(lease: Lease) -> Any:
    """Return a session (`tvm.rpc.RPCSession`) with a free server. Raises DeviceError if there is none in time, or no server."""
    device, end = lease.device, time.monotonic() + lease.wait_seconds
    while True:
        reach(device.name, device.tracker, device.key)  # TVM would wait even if there is no server at all
        try:
            session = _request(device, min(ASK_SECONDS, lease.wait_seconds), lease.seconds)
            break
        except RuntimeError as error:
            if time.monotonic() > end:
                raise DeviceError(f"{device.describe()} lent no server within {lease.wait_seconds:g} s: {error}") from None
    if lease.threads is not None:
        session.get_function("runtime.config_threadpool")(BIG_CORES, lease.threads)
    return session


def _request(device: Reached, wait_seconds: float, seconds: float) -> Any:
    from tvm import rpc

    tracker = rpc.connect_tracker(*device.tracker)
    tracker._sock.settimeout(wait_seconds)  # TVM sets no limit
    return tracker.request(device.key, session_timeout=seconds, max_retry=1)


class Workers:
    """Processes that hold sessions, one for each server of a device; a hanging session is ended with its process."""

    def __init__(self, lease: Lease) -> None:
        from tvm.support.popen_pool import PopenPoolExecutor

        self._pool = PopenPoolExecutor(max_workers=lease.device.servers, timeout=lease.limit_seconds)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the function's result from a worker. Raises TimeoutError after its lease's limit, or the function's error."""
        return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        """End the processes, busy or not."""
        for worker in list(self._pool._worker_map.values()):
            if worker.is_alive():
                worker._proc.kill()  # the pool would first wait for the end of its work
        self._pool.shutdown()


def last_words(text: str) -> str:
    """Return the last line of an error's text, where Python and TVM give its reason."""
    return (text.strip().splitlines() or [""])[-1].strip()[:SHOWN_CHARACTERS]


# ---- candidates ----------------------------------------------------------------------------------------------------------


def time_candidate(lease: Lease, evaluator: Sequence[int], artifact: str, kind: str, arguments: Sequence[Any]) -> list[float]:
    """Time a built kernel, in a worker's process, and return the seconds of each repeat.

    Args:
        lease: of the device.
        evaluator: MetaSchedule's `EvaluatorConfig` as a tuple.
        artifact: the file with the kernel.
        kind: of device, as TVM calls it.
        arguments: shapes and types of its arguments, as MetaSchedule writes them into JSON.
    """
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
    from tvm.s_tir.meta_schedule.runner import rpc_runner as steps

    session = borrow(lease)
    device, name = session.device(kind, 0), Path(artifact).name
    try:
        kernel = steps.default_upload_module(session, artifact, name)
        filled = steps.default_alloc_argument(session, device, arguments, 1)
        return list(steps.default_run_evaluator(session, kernel, device, EvaluatorConfig(*evaluator), filled))
    finally:
        steps.default_cleanup(session, name)


# ---- networks ------------------------------------------------------------------------------------------------------------


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
    """Upload a network, check its output, time it, and check the output of the last timed call.

    Args:
        library: a Relax module that `export_library` wrote, as .tar (linked on the device) or .so; its function is `main`.
        expected: inputs of `main` and their expected outputs; timed calls have the last of the inputs.
        device: as `syno.measure.tvm.tracker.reached` found it.
        settings: how to measure.
        kind: "cpu" or "cuda".
        seconds: for the whole session.
        wait_seconds: for a free server.
        flops: of one call.

    Raises:
        WrongOutputError: an output differs by more than is allowed.
        DeviceError: there is no server, the session took too long, or the device failed or died; within seconds if the
            device's system tells, and after `seconds` at the latest if it cannot.
    """
    from syno.measure.latency import Latency  # imported here: workers that time candidates need no torch
    from syno.measure.output_check import wrong_output

    device = reach(device.name, device.tracker, device.key)
    lease = Lease(device, seconds, wait_seconds, settings.threads)
    processes = Workers(lease)
    try:
        found, timing = processes.call(run_session, lease, str(library), kind, list(expected), settings)
    except Exception as failure:  # of any kind: TVM's, the worker's, the network's
        said = last_words(str(failure)) or f"no answer within {lease.limit_seconds:g} s"
        raise DeviceError(f"{device.describe()} failed while it measured {library.name}: {said}") from None
    finally:
        processes.close()
    if timing is None:
        raise wrong_output(found, settings.tolerance, f"on {device.describe()} the output")
    timed = expected[-1]
    return Latency.of(
        timing,
        threads=settings.threads,
        inputs=1,
        exceeds_cache=False,  # there is one input, and the size of the device's cache is not known here
        deviation=found,
        flops=flops,
        moved_bytes=sum(one.nbytes for one in timed.inputs) + sum(4 * one.numel() for one in timed.exact),
    )


def run_session(
    lease: Lease, library: str, kind: str, expected: Sequence[Expected], settings: LatencySettings
) -> tuple[Deviation, Timing | None]:
    """Return the largest deviation of an output, and the timing if that is small enough; in a worker's process."""

    network = Uploaded(borrow(lease), library, kind)
    found = network.check(expected)
    if not found.of_allowed <= 1:
        return found, None
    timing = time_repeats(network.evaluate, settings)
    found = found.worse(network.deviation(expected[-1]))
    return found, timing if found.of_allowed <= 1 else None


class Uploaded:
    """A network on a device, in a session; in a worker's process."""

    def __init__(self, session: Any, library: str, kind: str) -> None:
        from tvm import relax

        name, self._device = Path(library).name, session.device(kind, 0)
        session.upload(library)
        devices = [self._device, session.cpu(0)] if kind != "cpu" else self._device
        self._machine = relax.VirtualMachine(session.load_module(name), devices)

    def check(self, expected: Sequence[Expected]) -> Deviation:
        """Call the network on all inputs, and return the largest deviation of an output. Timed calls have the last input."""
        import tvm

        from syno.measure.expected import Deviation

        found = Deviation(0.0, 0.0, None)
        for one in expected:
            inputs = (tvm.runtime.tensor(tensor.detach().cpu().numpy(), self._device) for tensor in one.inputs)
            self._machine.set_input("main", *inputs)
            self._machine.invoke_stateful("main")
            found = found.worse(self.deviation(one))
        return found

    def deviation(self, one: Expected) -> Deviation:
        """Return the deviation of the output of the last call."""
        import torch

        output = self._machine.get_outputs("main")
        parts = output if isinstance(output, tuple | list) else [output]
        return one.deviation([torch.from_numpy(part.numpy()) for part in parts])

    def evaluate(self, calls: int, repeats: int) -> list[float]:
        """Return the milliseconds of one call in each repeat. Each series makes one call more, which it does not time."""
        evaluator = self._machine.time_evaluator("invoke_stateful", self._device, number=calls, repeat=repeats)
        return [1e3 * seconds for seconds in evaluator("main").results]
