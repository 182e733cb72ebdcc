"""Trackers and servers on this machine, as if they were elsewhere: what works, and what is said when it does not."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tvm_servers import KEY, LONG, SIDE, Here, free_port, measuring, outcomes, sessions, wait_for
from typer.testing import CliRunner

from syno.base.errors import DeviceError, WrongOutputError
from syno.cli import app
from syno.measure.latency import LatencySettings
from syno.measure.output_check import OutputCheck
from syno.measure.tvm.sessions import measure_remote, rpc_runner
from syno.measure.tvm.targets import Address
from syno.measure.tvm.tracker import Reached, Servers, await_servers, reach, reached, servers_of

tvm = pytest.importorskip("tvm", reason="TVM is not installed: pip install 'syno-operators[tvm]'")
psutil = pytest.importorskip("psutil", reason="psutil is not installed: pip install 'syno-operators[tvm]'")


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


@pytest.mark.slow
def test_candidates_go_to_all_servers(here: Here, kernel: str) -> None:
    before = [sessions(one) for one in here.servers]
    work = measuring(here, 100)
    try:
        found = [one.result(LONG) for one in outcomes(work, kernel, 8)]
    finally:
        work.close()
    assert all(error is None and 0 < seconds[0] < 1 for seconds, error in found)
    used = [sessions(one) - earlier for one, earlier in zip(here.servers, before, strict=True)]
    assert sum(used) == 8 and min(used) >= 1


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_network_is_checked_and_timed(here: Here, network: Path) -> None:
    left, right = np.random.default_rng(0).random((2, SIDE, SIDE), dtype=np.float32)
    device = reach("jetson", here.tracker, KEY)
    settings = LatencySettings(warm_up_ms=1, least_ms=10, least_repeats=7)
    expected = OutputCheck(torch.matmul, [(torch.from_numpy(left), torch.from_numpy(right))]).expected
    latency = measure_remote(network, expected, device, settings, flops=SIDE**3)
    assert latency.checked and latency.largest_relative_error is not None and latency.largest_relative_error < 1e-5
    assert latency.repeats >= 7 and 0 < latency.low_ms <= latency.median_ms <= latency.high_ms
    assert latency.flops_per_second == pytest.approx(SIDE**3 / latency.median_ms * 1e3)
    assert latency.share_of_allowed is not None and latency.share_of_allowed < 1
    slightly_larger = [replace(one, exact=tuple(1.0001 * tensor for tensor in one.exact)) for one in expected]
    with pytest.raises(WrongOutputError, match='device "jetson".*differs from its reference by 0.0001'):
        measure_remote(network, slightly_larger, device, settings)


@pytest.mark.slow
def test_servers_end_when_the_process_that_started_them_is_killed() -> None:
    code = (
        "from syno.measure.tvm.tracker import _served\n"
        "with _served(['tracker']) as one: print(one.process.pid, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        served = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    served.wait(LONG)
