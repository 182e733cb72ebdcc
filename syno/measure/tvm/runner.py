"""Measuring MetaSchedule's candidates on a remote device, whatever happens to its servers meanwhile.

MetaSchedule's own RPC runner waits for ever once its device is gone. Here every measurement has a limit and is tried again on
another server, and when the device is lost, tuning ends at once with the reason: what was measured is in the database, and
what could not be is not recorded as if it were slow.

    with reached("jetson", device) as found, rpc_runner(found, device) as runner:
        ms.tune_tir(..., runner=runner, measure_callbacks=callbacks(runner))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

from syno.base.errors import DeviceError
from syno.measure.tvm.answers import Reached, reach
from syno.measure.tvm.devices import DeviceSettings
from syno.measure.tvm.health import Health
from syno.measure.tvm.sessions import Lease, time_candidate, workers

Outcome: TypeAlias = tuple[list[float] | None, str | None]  # seconds of each repeat, or what went wrong

NOT_MEASURED = "not measured: "  # begins the message about a candidate that is not to blame


class Measuring:
    """The work of a runner: candidates go to the servers of a device, to all at once.

    Args:
        lease: of the device.
        settings: of the device.
        evaluator: how often a candidate is called: MetaSchedule's `EvaluatorConfig`.
    """

    def __init__(self, lease: Lease, settings: DeviceSettings, evaluator: Sequence[Any]) -> None:
        self.health = Health(lease.device, settings)
        self._lease, self._attempts, self._evaluator = lease, 1 + settings.retries, tuple(evaluator)
        self._workers = workers(lease)
        self._threads = ThreadPoolExecutor(lease.device.servers)

    def begin(self, artifact: str, kind: str, arguments: Sequence[Any]) -> Future[Outcome]:
        """Measure a candidate that was built, as soon as there is a server."""
        return self._threads.submit(self._measure, artifact, kind, arguments)

    def close(self) -> None:
        """End what is still measured, and the workers."""
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
            except Exception as error:  # of whatever kind: TVM's, the worker's, the network's
                why = str(error) or f"no answer within {self._lease.limit_seconds:g} s"
                too_slow = isinstance(error, TimeoutError) or "RPCSessionTimeoutError" in why
                blamed = too_slow or not isinstance(error, DeviceError)
                self.health.failed(why)
                if too_slow:
                    break  # it would be again
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
    """A `meta_schedule.runner.Runner` for a remote device; its workers end with the context.

    Args:
        device: as `syno.measure.tvm.tracker.reached` found it; it is looked at again.
        settings: of the device.
        evaluator: of each candidate: calls in a repeat, repeats, least milliseconds of a repeat.
        threads: CPU threads on the device; None leaves it what it has.

    Raises DeviceError, within seconds, if the device does not answer; and at the end in place of what TVM makes of it, if the
    device was lost meanwhile.
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
    """What tuning with such a runner calls after each batch, in place of MetaSchedule's own: the database comes first."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule import measure_callback as calls

    health = runner.measuring.health

    class AddMeasured(calls.PyMeasureCallback):  # type: ignore[misc]
        """Writes all but those that are not to blame."""

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
