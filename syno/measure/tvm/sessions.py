"""RPC sessions with a remote device, in which candidates are timed, and networks are checked and timed.

Each session runs in a worker process, which can be killed if the device hangs. Times are measured by the device's own clock, so
that they do not include network latency.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from syno.base.errors import DeviceError, SynoError
from syno.measure.timing import LatencySettings, Timing, time_repeats
from syno.measure.tvm.targets import DeviceSettings
from syno.measure.tvm.tracker import ANSWER_SECONDS, LOOK_SECONDS, Reached, reach

if TYPE_CHECKING:
    from syno.measure.latency import Latency
    from syno.measure.output_check import Deviation, Expected


ASK_SECONDS = 5.0  # in a tracker's queue, before checking again that there is a server
BIG_CORES = 1  # the mode of TVM's thread pool that uses the fast cores of a big.LITTLE processor
SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class Lease:
    """The parameters of a session with a remote device.

    Attributes:
        device: the device.
        seconds: duration after which the server ends the session.
        wait_seconds: timeout of waiting for a free server.
        threads: CPU threads on the device; None for the device's default.
    """

    device: Reached
    seconds: float
    wait_seconds: float
    threads: int | None = None

    @property
    def limit_seconds(self) -> float:
        """Timeout of a call, in seconds: a call that takes longer means that the device or its network hangs."""
        return self.wait_seconds + self.seconds + 5


def borrow(lease: Lease) -> Any:
    """Return a session (`tvm.rpc.RPCSession`) with a free server.

    Raises DeviceError if no server is free in time, or none exists.
    """
    device, end = lease.device, time.monotonic() + lease.wait_seconds
    while True:
        reach(device.name, device.tracker, device.key)  # raises if there is no server, for which TVM would wait forever
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
    """A pool of worker processes, one for each server of a device; a hanging session is killed with its process."""

    def __init__(self, lease: Lease) -> None:
        from tvm.support.popen_pool import PopenPoolExecutor

        self._pool = PopenPoolExecutor(max_workers=lease.device.servers, timeout=lease.limit_seconds)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in a worker, and return its result.

        Raises TimeoutError after the lease's limit, or the function's exception.
        """
        return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        """Kill the worker processes, even if they are busy."""
        for worker in list(self._pool._worker_map.values()):
            if worker.is_alive():
                worker._proc.kill()  # `shutdown` alone would wait for its task
        self._pool.shutdown()


def last_words(text: str) -> str:
    """Return the last line of an error's text, which has the reason in errors of Python and TVM."""
    return (text.strip().splitlines() or [""])[-1].strip()[:SHOWN_CHARACTERS]


def time_candidate(lease: Lease, evaluator: Sequence[int], artifact: str, kind: str, arguments: Sequence[Any]) -> list[float]:
    """Time a built kernel, and return the seconds of each repeat. Runs in a worker process.

    Args:
        lease: the lease of the device.
        evaluator: MetaSchedule's `EvaluatorConfig` as a tuple.
        artifact: the file of the kernel.
        kind: TVM's name of the kind of device.
        arguments: shapes and dtypes of its arguments, in MetaSchedule's JSON form.
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
        expected: inputs of `main` with their expected outputs; timed calls use the last input.
        device: the result of `syno.measure.tvm.tracker.reached`.
        settings: how to measure.
        kind: "cpu" or "cuda".
        seconds: duration limit of the session.
        wait_seconds: timeout of waiting for a free server.
        flops: multiply-adds of one call.

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
    """Return the largest deviation of an output, and the timing if the outputs are right. Runs in a worker process."""

    network = Uploaded(borrow(lease), library, kind)
    found = network.check(expected)
    if not found.of_allowed <= 1:
        return found, None
    timing = time_repeats(network.evaluate, settings)
    found = found.worse(network.deviation(expected[-1]))
    return found, timing if found.of_allowed <= 1 else None


class Uploaded:
    """A network that was uploaded to a device in a session. Used in a worker process."""

    def __init__(self, session: Any, library: str, kind: str) -> None:
        from tvm import relax

        name, self._device = Path(library).name, session.device(kind, 0)
        session.upload(library)
        devices = [self._device, session.cpu(0)] if kind != "cpu" else self._device
        self._machine = relax.VirtualMachine(session.load_module(name), devices)

    def check(self, expected: Sequence[Expected]) -> Deviation:
        """Call the network on all inputs, and return the largest deviation of an output.

        Timed calls then use the last input.
        """
        import tvm

        from syno.measure.output_check import Deviation

        found = Deviation(0.0, 0.0, None)
        for one in expected:
            inputs = (tvm.runtime.tensor(tensor.detach().cpu().numpy(), self._device) for tensor in one.inputs)
            self._machine.set_input("main", *inputs)
            self._machine.invoke_stateful("main")
            found = found.worse(self.deviation(one))
        return found

    def deviation(self, expected: Expected) -> Deviation:
        """Return the deviation of the output of the last call."""
        import torch

        output = self._machine.get_outputs("main")
        parts = output if isinstance(output, tuple | list) else [output]
        return expected.deviation([torch.from_numpy(part.numpy()) for part in parts])

    def evaluate(self, calls: int, repeats: int) -> list[float]:
        """Return the milliseconds per call of each repeat. Each series begins with one untimed call."""
        evaluator = self._machine.time_evaluator("invoke_stateful", self._device, number=calls, repeat=repeats)
        return [1e3 * seconds for seconds in evaluator("main").results]


# A fault-tolerant runner of MetaSchedule's candidates on a remote device.
#
# MetaSchedule's own RPC runner hangs if its device is lost. Here every measurement has a timeout and is retried on another
# server. If the device is lost, tuning ends at once with the reason: measured candidates are in the database, and the others
# are not recorded as failures.
#
#     with reached("jetson", device) as found, rpc_runner(found, device) as runner:
#         ms.tune_tir(..., runner=runner, measure_callbacks=callbacks(runner))


Outcome: TypeAlias = tuple[list[float] | None, str | None]  # seconds of each repeat, or an error message

NOT_MEASURED = "not measured: "  # prefix of messages about failures that the candidate did not cause


class Health:
    """The health of a device: counts consecutive failures, and decides when the device is lost.

    Args:
        device: the device.
        settings: settings of the device: `wait_seconds` and `most_failures`.

    Attributes:
        lost: the error to raise if the device is lost; else None.
    """

    def __init__(self, device: Reached, settings: DeviceSettings) -> None:
        self.device = device
        self.lost: DeviceError | None = None
        self._settings, self._in_a_row, self._lock = settings, 0, threading.Lock()

    def worked(self) -> None:
        """Record a success: the count of consecutive failures is reset."""
        with self._lock:
            self._in_a_row = 0

    def failed(self, why: str) -> None:
        """Record a failure, and wait while the device has no server.

        The device is lost if none comes back, or after too many failures.
        """
        with self._lock:  # threads that fail at the same time wait for the device only once
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
    """Return whether the device has a server now, or gets one within `seconds`."""
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
    """Times candidates in parallel on all servers of a device, for a runner.

    Args:
        lease: the lease of the device.
        settings: the settings of the device.
        evaluator: numbers of calls and repeats, as a tuple of MetaSchedule's `EvaluatorConfig`.
    """

    def __init__(self, lease: Lease, settings: DeviceSettings, evaluator: Sequence[Any]) -> None:
        self.health = Health(lease.device, settings)
        self._lease, self._attempts, self._evaluator = lease, 1 + settings.retries, tuple(evaluator)
        self._workers = Workers(lease)
        self._threads = ThreadPoolExecutor(lease.device.servers)

    def begin(self, artifact: str, kind: str, arguments: Sequence[Any]) -> Future[Outcome]:
        """Schedule the timing of a built candidate on the next free server."""
        return self._threads.submit(self._measure, artifact, kind, arguments)

    def close(self) -> None:
        """Cancel running measurements, and end the workers."""
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
        device: the result of `syno.measure.tvm.tracker.reached`; its tracker is queried again.
        settings: the settings of the device.
        evaluator: for each candidate: calls per repeat, repeats, least milliseconds of a repeat.
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

    def begin(candidate: Any) -> Any:
        return measuring.begin(
            str(candidate.artifact_path), str(candidate.device_type), [info.as_json() for info in candidate.args_info]
        )

    try:
        yield derived_object(Runner)()
    except Exception as error:
        if measuring.health.lost is None or error is measuring.health.lost:
            raise
        raise measuring.health.lost from error
    finally:
        measuring.close()


def callbacks(runner: Any) -> list[Any]:
    """Return MetaSchedule's callbacks for tuning with such a runner, in place of the default ones; the database's is first."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule import measure_callback as calls

    health = runner.measuring.health

    class AddMeasured(calls.PyMeasureCallback):  # type: ignore[misc]
        """Writes all results to the database, except failures that the candidate did not cause."""

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
