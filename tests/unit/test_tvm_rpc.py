"""Trackers and servers on this machine, as if they were elsewhere: what works, and what is said when it does not."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from syno.cli import app
from syno.errors import DeviceError, WrongOutputError
from syno.evaluate.latency import LatencySettings
from syno.evaluate.subjects import OperatorSubject
from syno.evaluate.tuning import tune
from syno.evaluate.tvm.answers import Reached, Servers, reach, servers_of
from syno.evaluate.tvm.devices import Address, DeviceSettings
from syno.evaluate.tvm.remote import measure_remote
from syno.evaluate.tvm.runner import NOT_MEASURED, Measuring, callbacks, rpc_runner
from syno.evaluate.tvm.sessions import Lease
from syno.evaluate.tvm.settings import TvmSettings
from syno.evaluate.tvm.tracker import Served, await_servers, reached, server, tracker
from syno.ir.library import OPERATORS

tvm = pytest.importorskip("tvm", reason="TVM is not installed: pip install 'syno[tvm]'")
psutil = pytest.importorskip("psutil", reason="psutil is not installed: pip install 'syno[tvm]'")
ms = pytest.importorskip("tvm.s_tir.meta_schedule", reason="TVM lacks packages that tuning needs: pip install 'syno[tvm]'")

KEY, SIDE = "here", 32
TARGET = {"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1}
ARGUMENTS = [["TENSOR", "float32", [SIDE, SIDE]]] * 3
LONG = 120.0  # seconds that nothing here comes near to, on however busy a machine


class Here:
    """A tracker with two servers, each of which is started again if a test killed it."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.tracker = stack.enter_context(tracker())
        self.servers: list[Served] = []

    def ready(self) -> Here:
        self.servers = [one for one in self.servers if one.process.poll() is None]
        while len(self.servers) < 2:
            self.servers.append(self.stack.enter_context(server(self.tracker, KEY)))
        await_servers(self.tracker, self.servers, {KEY: 2})
        return self

    def settings(self, **changes: Any) -> DeviceSettings:
        return DeviceSettings(**{"target": TARGET, "tracker": str(self.tracker), "key": KEY, **changes})


@pytest.fixture(scope="module")
def processes() -> Iterator[Here]:
    before = set(psutil.Process().children(recursive=True))
    with ExitStack() as stack:
        yield (here := Here(stack))
    for one in here.servers:
        with pytest.raises(ProcessLookupError):
            os.killpg(one.process.pid, 0)
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.fixture
def here(processes: Here) -> Here:
    return processes.ready()


@pytest.fixture(scope="module")
def product() -> Any:
    from tvm import te

    left, right = te.placeholder((SIDE, SIDE), name="left"), te.placeholder((SIDE, SIDE), name="right")
    k = te.reduce_axis((0, SIDE), name="k")
    made = te.compute((SIDE, SIDE), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="made")
    return tvm.IRModule({"main": te.create_prim_func([left, right, made]).with_attr("global_symbol", "main")})


@pytest.fixture(scope="module")
def kernel(product: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("kernel") / "kernel.tar"
    tvm.tirx.build(product, target=tvm.target.Target(TARGET)).export_library(str(file))
    return str(file)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product of two matrices."""
    from tvm import relax

    builder = relax.BlockBuilder()
    sides = [relax.Var(name, relax.TensorType((SIDE, SIDE), "float32")) for name in ("left", "right")]
    with builder.function("main", sides):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(relax.op.matmul(*sides)))
        builder.emit_func_output(output)
    file = tmp_path_factory.mktemp("network") / "network.tar"
    relax.build(builder.get(), tvm.target.Target(TARGET)).export_library(str(file))
    return file


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def sessions(one: Served) -> int:
    return one.said().count("connected from")


def wait_for(what: Any) -> None:
    end = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_tracker_lists_its_servers(here: Here) -> None:
    assert servers_of(here.tracker) == {KEY: Servers(total=2, free=2)}
    with reached("jetson", here.settings()) as found:
        assert found == Reached("jetson", here.tracker, KEY, 2)


def test_an_absent_tracker_and_a_wrong_key_are_clear_errors_at_once(here: Here) -> None:
    nowhere = Address("127.0.0.1", free_port())
    with pytest.raises(DeviceError, match=f"the tracker {nowhere} does not answer .*syno devices serve"):
        reach("jetson", nowhere, KEY)
    words = f'device "jetson".*{here.tracker} has no server of key "there"; its keys: "{KEY}".*server --tracker {here.tracker}'
    for function in (reach, lambda *given: rpc_runner(Reached(*given, 1), here.settings()).__enter__()):
        with pytest.raises(DeviceError, match=words):
            function("jetson", here.tracker, "there")


def test_the_command_says_which_devices_answer(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    good = {"target": "host", "tracker": str(here.tracker), "key": KEY}
    devices = {"good": good, "mine": {"target": "host", "tracker": "local"}}
    bad = {"bad": {**good, "key": "there"}}

    def check(described: dict[str, Any]) -> Any:
        import yaml

        file.write_text(yaml.safe_dump({"workload": {}, "tune": {"remote_devices": described}}))
        return CliRunner().invoke(app, ["devices", "check", str(file)])

    done = check(devices)
    assert done.exit_code == 0, done.output
    assert "| 2 of 2 free" in done.stdout and "| made when needed" in done.stdout
    done = check({**devices, **bad})
    assert done.exit_code == 1 and 'no server of key "there"' in done.stderr


def measuring(here: Here, each_ms: int, **changes: Any) -> Measuring:
    device = reach("jetson", here.tracker, KEY)
    return Measuring(Lease(device, 60, 60, threads=1), here.settings(**changes), (1, 1, each_ms))


def outcomes(work: Measuring, kernel: str, count: int) -> Sequence[Any]:
    return [work.begin(kernel, "cpu", ARGUMENTS) for _ in range(count)]


def test_candidates_go_to_all_servers(here: Here, kernel: str) -> None:
    before = [sessions(one) for one in here.servers]
    work = measuring(here, 300)
    try:
        found = [one.result(LONG) for one in outcomes(work, kernel, 8)]
    finally:
        work.close()
    assert all(error is None and 0 < seconds[0] < 1 for seconds, error in found)
    used = [sessions(one) - earlier for one, earlier in zip(here.servers, before, strict=True)]
    assert sum(used) == 8 and min(used) >= 1


@pytest.mark.slow
def test_when_one_of_two_servers_dies_the_other_does_the_rest(here: Here, kernel: str) -> None:
    dying, before = here.servers[0], sessions(here.servers[0])
    work = measuring(here, 300)
    try:
        begun = outcomes(work, kernel, 6)
        wait_for(lambda: sessions(dying) > before)
        dying.kill()
        found = [one.result(LONG) for one in begun]
    finally:
        work.close()
    assert [error for _, error in found] == [None] * 6
    assert work.health.lost is None


@pytest.mark.slow
def test_when_both_die_what_was_not_measured_is_not_blamed(here: Here, kernel: str) -> None:
    work = measuring(here, 300, wait_seconds=1)
    try:
        begun = outcomes(work, kernel, 6)
        begun[0].result(LONG)
        for one in here.servers:
            one.kill()
        found = [one.result(LONG) for one in begun]
    finally:
        work.close()
    assert found[0][1] is None
    failed = [error for _, error in found if error is not None]
    assert failed and all(error.startswith(NOT_MEASURED) for error in failed)
    assert work.health.lost is not None and 'device "jetson"' in str(work.health.lost) and "is gone" in str(work.health.lost)


def test_what_fails_again_and_again_ends_it(here: Here, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"not a library")
    work = measuring(here, 1, most_failures=3, retries=1)
    try:
        found = [one.result(LONG) for one in outcomes(work, str(broken), 4)]
    finally:
        work.close()
    assert all(seconds is None for seconds, _ in found)
    assert work.health.lost is not None and "failed 3 measurements in a row" in str(work.health.lost)


def test_a_server_goes_on_after_a_session_that_crashed(here: Here) -> None:
    from tvm import rpc

    one = here.servers[0]
    session = rpc.connect_tracker(*here.tracker).request(KEY)
    wait_for(lambda: any(psutil.Process(each.process.pid).children() for each in here.servers))
    one = next(each for each in here.servers if psutil.Process(each.process.pid).children())
    psutil.Process(one.process.pid).children()[0].send_signal(signal.SIGSEGV)
    await_servers(here.tracker, here.servers, {KEY: 2})
    assert one.process.poll() is None and "begins again" in one.said()
    del session


def test_a_network_is_checked_and_timed(here: Here, network: Path) -> None:
    left, right = np.random.default_rng(0).random((2, SIDE, SIDE), dtype=np.float32)
    device = reach("jetson", here.tracker, KEY)
    settings = LatencySettings(warm_up_ms=1, least_ms=10, least_repeats=7)
    latency = measure_remote(network, [left, right], device, settings, [left @ right], flops=SIDE**3)
    assert latency.checked and latency.largest_relative_error is not None and latency.largest_relative_error < 1e-5
    assert latency.repeats >= 7 and 0 < latency.low_ms <= latency.median_ms <= latency.high_ms
    assert latency.flops_per_second == pytest.approx(SIDE**3 / latency.median_ms * 1e3)
    with pytest.raises(WrongOutputError, match='device "jetson".*differs from its reference by'):
        measure_remote(network, [left, right], device, settings, [left @ right + 1])


@pytest.mark.slow
def test_a_session_that_takes_too_long_or_dies_is_an_error(here: Here, network: Path) -> None:
    import threading

    left = np.ones((SIDE, SIDE), np.float32)
    device, endless = reach("jetson", here.tracker, KEY), LatencySettings(least_ms=1e9, most_repeats=10**9)
    with pytest.raises(DeviceError, match="session has expired"):
        measure_remote(network, [left, left], device, endless, [left @ left], seconds=2)
    here.ready()
    before = [sessions(one) for one in here.servers]

    def kill() -> None:
        wait_for(lambda: [sessions(one) for one in here.servers] != before)
        for one in here.servers:
            one.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(DeviceError, match="failed while it measured network.tar"):
        measure_remote(network, [left, left], device, endless, [left @ left], seconds=LONG)
    killer.join()


def test_servers_end_when_the_process_that_started_them_is_killed() -> None:
    code = (
        "from syno.evaluate.tvm.tracker import _served\n"
        "with _served(['tracker']) as one: print(one.process.pid, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        served = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    served.wait(LONG)


@pytest.mark.slow
def test_tuning_keeps_what_was_measured_when_servers_die(here: Here, product: Any, tmp_path: Path) -> None:
    """After each of three batches a server dies: the second is measured by one server, the third by none."""
    from tvm.ir.utils import derived_object

    def build(module: Any, target: Any, parameters: Any) -> Any:
        """Without the layout rewriting of TVM's own, which takes half a minute to load in each worker."""
        import tvm
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        return tvm.tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)

    class Kill(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
            here.servers[len(batches)].kill()
            batches.append([one.error_msg for one in ran])

    batches: list[list[str | None]] = []
    settings = here.settings(wait_seconds=1)
    context = ms.TuneContext(
        product,
        target=tvm.target.Target(TARGET),
        space_generator="post-order-apply",
        search_strategy=ms.search_strategy.EvolutionarySearch(population_size=16, genetic_num_iters=1),
        task_name="product",
        rand_state=1,
        num_threads=1,
        logger=logging.getLogger("syno.test"),
    ).clone()
    with (
        pytest.raises(DeviceError, match=r'device "jetson".*is gone.*What was measured is kept'),
        reached("jetson", settings) as found,
        rpc_runner(found, settings, threads=1) as runner,
    ):
        ms.tune_tasks(
            tasks=[context],
            task_weights=[1.0],
            work_dir=str(tmp_path),
            max_trials_global=12,
            num_trials_per_iter=4,
            builder=ms.builder.LocalBuilder(max_workers=1, f_build=build),
            runner=runner,
            database=ms.database.JSONDatabase(work_dir=str(tmp_path)),
            cost_model=ms.cost_model.RandomModel(),
            measure_callbacks=[*callbacks(runner), derived_object(Kill)()],
            task_scheduler="round-robin",
        )
    assert batches == [[None] * 4] * 2  # the third ended it, in a callback before this one
    assert len((tmp_path / "database_tuning_record.json").read_text().splitlines()) == 8
    assert len(ms.database.JSONDatabase(work_dir=str(tmp_path)).get_all_tuning_records()) == 8


@pytest.mark.slow
def test_an_operator_is_tuned_and_measured_on_a_device(here: Here, tmp_path: Path) -> None:
    subject = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
    few = TvmSettings(trials_per_task=4, trials_per_iteration=4, cost_model="random")
    quick = LatencySettings(warm_up_ms=1, least_ms=1, least_repeats=6)
    before = [sessions(one) for one in here.servers]
    remote = here.settings(target=TARGET)
    record = tune(subject, "tvm", "jetson", quick, tvm=few, folder=tmp_path, remote=remote)
    assert record.status == "ok" and record.checked and record.latency_ms is not None, record.reason
    assert (record.device.kind, record.device.name) == ("cpu", "jetson")
    assert record.tuning is not None and record.tuning.trials == 4
    assert sum(sessions(one) for one in here.servers) - sum(before) >= 5  # four candidates and the operator
    absent = remote.model_copy(update={"tracker": f"127.0.0.1:{free_port()}"})
    record = tune(subject, "tvm", "jetson", quick, tvm=few, folder=tmp_path, remote=absent)
    assert record.latency_ms is None and 'device "jetson"' in record.reason and "does not answer" in record.reason
