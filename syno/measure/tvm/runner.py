"""Measuring MetaSchedule's candidates on a remote device, even if its servers die meanwhile.

MetaSchedule's own RPC runner hangs once its device is gone. Here every measurement has a limit and is tried again on another
server. When the device is lost, tuning ends at once with the reason: measured candidates are in the database, and others are
not recorded as if they were slow.

    with reached("jetson", device) as found, rpc_runner(found, device) as runner:
        ms.tune_tir(..., runner=runner, measure_callbacks=callbacks(runner))
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

from syno.base.errors import DeviceError, SynoError
from syno.measure.tvm.sessions import Lease, Workers, last_words, time_candidate
from syno.measure.tvm.settings import DeviceSettings
from syno.measure.tvm.tracker import ANSWER_SECONDS, LOOK_SECONDS, Reached, reach

Outcome: TypeAlias = tuple[list[float] | None, str | None]  # seconds of each repeat, or what went wrong

NOT_MEASURED = "not measured: "  # begins the message about a candidate that is not to blame


class Health:
    """The health of a device: counts failures in a row, looks for the device after each, and says when it is lost.

    Args:
        device: the device.
        settings: its `wait_seconds` and `most_failures`.

    Attributes:
        lost: the reason why it is not worth measuring on, or None.
    """

    def __init__(self, device: Reached, settings: DeviceSettings) -> None:
        self.device = device
        self.lost: DeviceError | None = None
        self._settings, self._in_a_row, self._lock = settings, 0, threading.Lock()

    def worked(self) -> None:
        """Note that something was measured."""
        with self._lock:
            self._in_a_row = 0

    def failed(self, why: str) -> None:
        """Note a failure. A device that is gone is waited for; one that stays gone, or fails too often, is lost."""
        with self._lock:  # other threads that fail meanwhile need not wait, too
            self._in_a_row += 1
            if self.lost is not None:
                return
            if not comes_back(self.device, self._settings.wait_seconds):
                self.lost = DeviceError(
                    f"{self.device.describe()} is gone: it had no server for {self._settings.wait_seconds:g} s. What was "
                    f"measured is kept. Start a server there ({self.device.how_to_serve()}), and the same command goes on"
                )
            elif self._in_a_row >= self._settings.most_failures:
                self.lost = DeviceError(
                    f"{self.device.describe()} failed {self._in_a_row} measurements in a row; the last one: "
                    f"{last_words(why)}. Look whether it has a C++ compiler and TVM in the same versions, or raise "
                    "session_timeout_seconds or most_failures"
                )


def comes_back(device: Reached, seconds: float) -> bool:
    """Return whether the device has a server, now or within so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            reach(device.name, device.tracker, device.key, min(ANSWER_SECONDS, max(seconds, LOOK_SECONDS)))
            return True
        except SynoError:
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_SECONDS)


class Measuring:
    """The work of a runner: candidates are timed on all servers of a device at once.

    Args:
        lease: of the device.
        settings: of the device.
        evaluator: how often a candidate is called, as a tuple of MetaSchedule's `EvaluatorConfig`.
    """

    def __init__(self, lease: Lease, settings: DeviceSettings, evaluator: Sequence[Any]) -> None:
        self.health = Health(lease.device, settings)
        self._lease, self._attempts, self._evaluator = lease, 1 + settings.retries, tuple(evaluator)
        self._workers = Workers(lease)
        self._threads = ThreadPoolExecutor(lease.device.servers)

    def begin(self, artifact: str, kind: str, arguments: Sequence[Any]) -> Future[Outcome]:
        """Measure a built candidate as soon as there is a server."""
        return self._threads.submit(self._measure, artifact, kind, arguments)

    def close(self) -> None:
        """End running measurements, and the workers."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._workers.close()
        self._threads.shutdown()

    def _measure(self, artifact: str, kind: str, arguments: Sequence[Any]) -> Outcome:
        blamed, why = False, ""
        for _ in range(self._attempts):
            if self.health.lost is not None:
                break
            try:
                seconds = self._workers.call(time_candidate, self._lease, self._evaluator, artifact, kind, arguments)
            except Exception as error:  # of any kind: TVM's, the worker's, the network's
                why = str(error) or f"no answer within {self._lease.limit_seconds:g} s"
                too_slow = isinstance(error, TimeoutError) or "RPCSessionTimeoutError" in why
                blamed = too_slow or not isinstance(error, DeviceError)
                self.health.failed(why)
                if too_slow:
                    break  # it would be too slow again
            else:
                self.health.worked()
                return seconds, None
        if self.health.lost is not None:
            return None, NOT_MEASURED + str(self.health.lost)
        return None, why if blamed else NOT_MEASURED + why


@contextmanager
def rpc_runner(
    device: Reached, settings: DeviceSettings, *, evaluator: Sequence[Any] = (1, 2, 25), threads: int | None = None
) -> Iterator[Any]:
    """Yield a `meta_schedule.runner.Runner` for a remote device; its workers end with the context.

    Args:
        device: as `syno.measure.tvm.tracker.reached` found it; its tracker is asked again.
        settings: of the device.
        evaluator: for each candidate: calls in a repeat, repeats, least milliseconds of a repeat.
        threads: CPU threads on the device; None for its default.

    Raises DeviceError within seconds if the device does not answer; and at the end, in place of TVM's error, if the device was
    lost meanwhile.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule import runner as kinds

    device = reach(device.name, device.tracker, device.key)
    session = settings.session_timeout_seconds
    lease = Lease(device, session, session + settings.wait_seconds, threads)  # someone else's session may come first
    measuring = Measuring(lease, settings, evaluator)

    class Pending(kinds.PyRunnerFuture):  # type: ignore[misc]
        def __init__(self, future: Any) -> None:
            super().__init__()
            self.future = future

        def done(self) -> bool:
            return bool(self.future.done())

        def result(self) -> Any:
            return kinds.RunnerResult(*self.future.result())

    pending = derived_object(Pending)

    class Runner(kinds.PyRunner):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.measuring = measuring

        def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
            return [pending(begin(one)) for one in runner_inputs]

    def begin(one: Any) -> Any:
        return measuring.begin(str(one.artifact_path), str(one.device_type), [info.as_json() for info in one.args_info])

    try:
        yield derived_object(Runner)()
    except Exception as error:
        if measuring.health.lost is None or error is measuring.health.lost:
            raise
        raise measuring.health.lost from error
    finally:
        measuring.close()


def callbacks(runner: Any) -> list[Any]:
    """Return the callbacks of tuning with such a runner after each batch, in place of MetaSchedule's; the database is first."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule import measure_callback as calls

    health = runner.measuring.health

    class AddMeasured(calls.PyMeasureCallback):  # type: ignore[misc]
        """Writes all results but those of candidates that are not to blame for a failure."""

        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
            kept = [index for index, one in enumerate(ran) if not (one.error_msg or "").startswith(NOT_MEASURED)]
            parts = ([whole[index] for index in kept] for whole in (candidates, built, ran))
            calls.AddToDatabase().apply(scheduler, task, *parts)

    class EndWhenLost(calls.PyMeasureCallback):  # type: ignore[misc]
        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
            if health.lost is not None:
                raise health.lost

    return [
        derived_object(AddMeasured)(),
        calls.RemoveBuildArtifact(),
        calls.UpdateCostModel(),
        derived_object(EndWhenLost)(),
    ]
