"""Measurements over a real SSH server on the loopback address."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from command_lines import HANGS_AFTER
from ssh_server import SshServer, client_config
from typer.testing import CliRunner

from syno.base.errors import DeviceError
from syno.cli import app
from syno.ir.library import OPERATORS
from syno.measure.compilers import CPP, cpp_version
from syno.measure.devices import SshSettings
from syno.measure.ssh import about
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
DIFFER = {"latency_ms", "latency_low_ms", "latency_high_ms", "latency_minimum_ms", "compile_seconds", "date"}
DIFFER |= {"flops_per_second", "bytes_per_second", "limit_ms", "calls_per_repeat", "suspicious"}  # follow from the latency
DIFFER |= {"largest_relative_error", "share_of_allowed"}  # of an input that depends on the number of calls


def wait_until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS_AFTER
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


class Gate:
    """A model whose measurement waits, and the numbers of the processes that have begun it."""

    def __init__(self, folder: Path) -> None:
        self._starts, self._gate = folder / "starts", folder / "gate"
        arguments = {"starts": str(self._starts), "gate": str(self._gate)}
        self.subject = ModelSubject.model_validate(
            {"factory": "tuned_modules:gated", "input_shape": (4,), "arguments": arguments}
        )

    def processes(self) -> list[int]:
        return list(map(int, self._starts.read_text(encoding="utf-8").split())) if self._starts.exists() else []

    def open(self) -> None:
        self._gate.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.open()


@pytest.mark.slow
def test_a_record_over_ssh_is_like_one_from_here(server: SshServer) -> None:
    phases: list[str] = []
    there = tune(
        CONV2D, "eager", "board", FAST, remote=server.settings(), progress=lambda found: phases.append(found.phase)
    ).model_dump()
    here = tune(CONV2D, "eager", "cpu", FAST).model_dump()
    assert there["status"] == "ok" and there["checked"] and there["latency_ms"] > 0
    assert {name: value for name, value in there.items() if name not in DIFFER} == {
        name: value for name, value in here.items() if name not in DIFFER
    }
    assert [name for name in ("connecting", "building", "measuring") if name not in phases] == []


@pytest.mark.slow
def test_a_failure_there_is_a_record(server: SshServer) -> None:
    subject = ModelSubject(factory="tuned_modules:sleep", input_shape=(4,))
    record = tune(subject, "eager", "board", FAST, time_limit_s=0.1, remote=server.settings())
    assert record.status == "timeout" and record.reason.endswith("it was stopped at its time limit of 0.1 s")


@pytest.mark.slow
def test_native_kernels_are_made_and_kept_there(server: SshServer) -> None:
    record = tune(CONV2D, "native", "board", FAST, time_limit_s=550, remote=server.settings())
    assert (record.status, record.reason) == ("ok", "") and record.checked
    assert record.versions[CPP] and record.remark.startswith("native kernels in ") and record.limit_ms
    assert list((server.folder / "cache" / "syno" / "native").glob("kernel_*.so"))


def ended(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_a_connection_that_is_cut_ends_the_measurement_there_and_repeats_it(server: SshServer, gate: Gate) -> None:
    def cut() -> None:
        wait_until(lambda: len(gate.processes()) == 1)
        assert server.cut() > 0
        wait_until(lambda: ended(gate.processes()[0]))
        gate.open()

    cutting = threading.Thread(target=cut)
    cutting.start()
    with pytest.warns(UserWarning, match="trying again, and the measurement begins anew"):
        record = tune(gate.subject, "eager", "board", FAST, remote=server.settings())
    cutting.join()
    assert (record.status, len(gate.processes())) == ("ok", 2)


@pytest.mark.slow
def test_nothing_goes_on_for_a_client_that_is_killed(server: SshServer, gate: Gate) -> None:
    code = (
        "import sys\n"
        "from syno.measure.devices import SshSettings\n"
        "from syno.measure.tuning import LatencySettings, ModelSubject, tune\n"
        "remote = SshSettings.model_validate_json(sys.argv[1])\n"
        "tune(ModelSubject.model_validate_json(sys.argv[2]), 'eager', 'board',\n"
        "     LatencySettings.model_validate_json(sys.argv[3]), remote=remote)\n"
    )
    given = [server.settings().model_dump_json(), gate.subject.model_dump_json(), FAST.model_dump_json()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    asking = subprocess.Popen([sys.executable, "-c", code, *given], env=environment)
    try:
        wait_until(lambda: len(gate.processes()) == 1)
    finally:
        asking.kill()
        asking.wait()
    wait_until(lambda: ended(gate.processes()[0]))
    gate.open()
    assert tune(gate.subject, "eager", "board", FAST, remote=server.settings()).status == "ok"
    assert len(gate.processes()) == 2


@pytest.mark.slow
def test_the_command_says_what_machines_are(server: SshServer, tmp_path: Path) -> None:
    described = server.settings().model_dump(mode="json")
    file = tmp_path / "x.yaml"

    def check(**devices: Any) -> Any:
        file.write_text(yaml.safe_dump({"workload": {}, "tune": {"remote_devices": devices}}), encoding="utf-8")
        return CliRunner().invoke(app, ["devices", "check", str(file)])

    done = check(board=described, cores={"target": "host", "tracker": "local"})
    assert done.exit_code == 0, done.output
    row = next(line for line in done.stdout.splitlines() if line.startswith("| board"))
    assert row.split(" | ")[1].strip() == "board" and "GiB" in row and sys.version.split()[0] in row
    assert cpp_version().get(CPP, "") in row
    assert "| cores" in done.stdout
    done = check(board={**described, "python": "/no/such/python"})
    assert done.exit_code == 1 and 'error: device "board" (ssh board): there is no program "/no/such/python"' in done.stderr


@pytest.mark.slow
def test_a_disk_that_is_full_there(server: SshServer, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        python = tmp_path / "python"
        there = server.folder / "python"
        python.write_text(there.read_text().replace(f"XDG_CACHE_HOME={server.folder}/cache", f"XDG_CACHE_HOME={disk}"))
        python.chmod(0o755)
        with pytest.raises(DeviceError, match=rf"the disk of {disk}/syno/measurements is full: [01] MiB are free"):
            tune(CONV2D, "eager", "board", FAST, remote=server.settings(python=str(python)))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


class TestErrors:
    """The real ssh of this machine prints the messages that the client recognizes."""

    def failing(self, server: SshServer, tmp_path: Path, **options: object) -> str:
        config = tmp_path / "config"
        config.write_text(client_config(server, **options), encoding="utf-8")
        return self.message(server.settings(ssh_config=config))

    def message(self, settings: SshSettings) -> str:
        with pytest.raises(DeviceError) as caught:
            about("board", settings)
        return str(caught.value)

    def test_a_host_that_does_not_exist(self, server: SshServer, tmp_path: Path) -> None:
        assert "there is no such host" in self.failing(server, tmp_path, HostName="x" * 64)  # too long: nobody is asked

    def test_a_server_that_is_not_there(self, server: SshServer, tmp_path: Path) -> None:
        assert "nothing listens at its ssh port" in self.failing(server, tmp_path, Port=1)

    def test_a_key_that_is_not_accepted(self, server: SshServer, tmp_path: Path) -> None:
        assert "it refuses the login" in self.failing(server, tmp_path, IdentityFile=server.folder / "host_key")

    def test_a_host_key_that_is_not_known(self, server: SshServer, tmp_path: Path) -> None:
        known = tmp_path / "known"
        assert "its host key is not known here" in self.failing(server, tmp_path, UserKnownHostsFile=known)
        assert not known.exists()  # nothing was trusted
        key = (server.folder / "key.pub").read_text(encoding="ascii").split()[1]
        known.write_text(f"[127.0.0.1]:{server.port} ssh-ed25519 {key}\n", encoding="ascii")
        assert "its host key is not the one that is known" in self.failing(server, tmp_path, UserKnownHostsFile=known)

    def test_a_wrong_setting(self, server: SshServer, tmp_path: Path) -> None:
        assert "ssh has a wrong setting" in self.failing(server, tmp_path, Hostname="x", Hots="y")
        assert "ssh has a wrong setting" in self.message(server.settings(ssh_config=tmp_path / "none"))

    def test_a_python_that_is_not_there(self, server: SshServer, tmp_path: Path) -> None:
        assert 'there is no program "~/no $HOME/python" there' in self.message(server.settings(python="~/no $HOME/python"))
        (tmp_path / "python").write_text("", encoding="utf-8")
        assert "it cannot execute" in self.message(server.settings(python=str(tmp_path / "python")))

    def test_a_python_without_syno(self, server: SshServer, tmp_path: Path) -> None:
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        assert "Syno is not installed there" in self.message(server.settings(python=str(python)))
