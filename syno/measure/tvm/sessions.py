"""What is done in one session with a device. It runs in a worker's process, which a device that hangs can be left to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from syno.base.errors import DeviceError
from syno.measure.tvm.answers import Reached, reach

ASK_SECONDS = 5.0  # to be in a tracker's queue before looking whether there still is a server
BIG_CORES = 1  # of TVM's modes of its thread pool: the fast cores, where a processor has two kinds


@dataclass(frozen=True)
class Lease:
    """How a device is borrowed.

    Attributes:
        device: which.
        seconds: of a session, after which its server ends it.
        wait_seconds: for a free server.
        threads: CPU threads on the device; None leaves it what it has.
    """

    device: Reached
    seconds: float
    wait_seconds: float
    threads: int | None = None

    @property
    def limit_seconds(self) -> float:
        """After this long nothing more is to be expected: the device or its network hangs."""
        return self.wait_seconds + self.seconds + 5


def borrow(lease: Lease) -> Any:
    """A session (`tvm.rpc.RPCSession`) with a free server. DeviceError if there is none in time, or no server at all."""
    device, end = lease.device, time.monotonic() + lease.wait_seconds
    while True:
        reach(device.name, device.tracker, device.key)  # TVM would not notice that nothing is to be waited for
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
    tracker._sock.settimeout(wait_seconds)  # TVM waits for ever
    return tracker.request(device.key, session_timeout=seconds, max_retry=1)


def time_candidate(lease: Lease, evaluator: Sequence[int], artifact: str, kind: str, arguments: Sequence[Any]) -> list[float]:
    """Time a kernel that was built: seconds of each repeat.

    Args:
        lease: of the device.
        evaluator: MetaSchedule's `EvaluatorConfig` as a tuple.
        artifact: the file with the kernel.
        kind: of device, as TVM calls it.
        arguments: shapes and types of its arguments, as MetaSchedule writes them into JSON.
    """
    from pathlib import Path

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


class Workers:
    """Processes that hold sessions, one for each server: what hangs is ended with its process. Get them from `workers`.

    Args:
        pool: TVM's `PopenPoolExecutor`.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns, in a worker. TimeoutError after its lease's limit; else it raises what the function does."""
        return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        """End the processes, busy or not."""
        for worker in list(self._pool._worker_map.values()):
            if worker.is_alive():
                worker._proc.kill()  # the pool would first wait for what it is busy with
        self._pool.shutdown()


def workers(lease: Lease) -> Workers:
    """As many as the device has servers."""
    from tvm.support.popen_pool import PopenPoolExecutor

    return Workers(PopenPoolExecutor(max_workers=lease.device.servers, timeout=lease.limit_seconds))
