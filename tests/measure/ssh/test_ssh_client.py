"""The client of ssh devices returns records, waits for lost connections, and turns messages of ssh into clear errors."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from syno.base.errors import DeviceError
from syno.ir.library import OPERATORS
from syno.measure import protocol, ssh
from syno.measure.devices import SshSettings
from syno.measure.protocol import Code, Findings, Request, line
from syno.measure.ssh import about, measured_there
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import Device, TuningRecord

CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
REQUEST = Request(subject=CONV2D, compiler="eager", device="cpu", settings=LatencySettings())
RECORD = TuningRecord(
    name="conv2d",
    operator_id=None,
    subject=CONV2D,
    compiler="eager",
    device=Device(kind="cpu", name="a board", threads=1),
    settings=LatencySettings(),
    status="ok",
    latency_ms=1.5,
    versions={},
    date=datetime(2026, 1, 2, tzinfo=UTC),
)
BOARD = SshSettings(kind="ssh", host="jetson", python="~/my env/bin/python", wait_seconds=20)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(protocol, "LOOK_SECONDS", 0.05)


def prints(*lines: str) -> str:
    """A shell command that prints."""
    return "printf %s " + shlex.quote("".join(lines))


def fails(code: int, said: str) -> str:
    return f"printf '%s\\n' {shlex.quote(said)} >&2; exit {code}"


ITS_RECORD = line("findings", Findings(status="ok", fields=RECORD.model_dump(mode="json")))
HELLO = line("hello", Code.of_this())
BUILDING = line("findings", Findings(phase="building"))


def test_a_record_comes_back(says: Any) -> None:
    welcome = "Welcome to the board!\n"  # such as a login shell prints
    folder = says(f"read -r order; {prints(welcome, HELLO, BUILDING, ITS_RECORD)}")
    phases: list[str] = []
    assert measured_there("board", BOARD, REQUEST, lambda found: phases.append(found.phase)) == RECORD
    assert "building" in phases
    arguments = (folder / "arguments").read_text(encoding="utf-8").splitlines()
    assert arguments[:3] == ["-T", "-o", "BatchMode=yes"]  # the first value of an option holds
    assert arguments[-3:] == ["--", "jetson", "~/'my env/bin/python' -m syno.measure.answering there"]
    assert not any("StrictHostKeyChecking" in word for word in arguments)


def test_over_a_connection_that_is_lost_and_made_again_the_same_is_ordered(says: Any, tmp_path: Path) -> None:
    first = f"head -n 1 > {tmp_path}/first; {prints(HELLO, BUILDING)}; {fails(255, 'Connection reset by peer')}"
    second = fails(255, "ssh: Could not resolve hostname jetson: Temporary failure")  # the network comes back step by step
    third = f"head -n 1 > {tmp_path}/third; {prints(HELLO, ITS_RECORD)}; cat > /dev/null"
    says(first, second, third)
    with pytest.warns(UserWarning, match="Connection reset by peer.*trying again, and the measurement begins anew"):
        assert measured_there("board", BOARD, REQUEST) == RECORD
    sent = [(tmp_path / name).read_text(encoding="utf-8") for name in ("first", "third")]
    assert sent[0] == sent[1] == REQUEST.model_dump_json() + "\n"


@pytest.mark.filterwarnings("ignore:.*trying again")
def test_a_connection_that_does_not_come_back_is_an_error(says: Any) -> None:
    lost = fails(255, "ssh: connect to host jetson port 22: No route to host")
    says(f"{prints(HELLO)}; {lost}", *[lost] * 99)
    with pytest.raises(DeviceError, match=r"No route to host.*within 0.05 s \(wait_seconds\)"):
        measured_there("board", BOARD.model_copy(update={"wait_seconds": 0.05}), REQUEST)


@pytest.mark.filterwarnings("ignore:.*trying again")
def test_a_connection_that_is_lost_each_time_is_given_up(says: Any) -> None:
    folder = says(*[f"{prints(HELLO, BUILDING)}; {fails(255, 'Connection reset by peer')}"] * 99)
    with pytest.raises(DeviceError, match=r"Connection reset by peer.*it was lost 5 times, and with it what was measured"):
        measured_there("board", BOARD, REQUEST)
    assert (folder / "calls").read_text(encoding="utf-8") == "x\n" * ssh.MOST_LOSSES


def test_each_side_hears_of_the_other(says: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "SIGN_OF_LIFE_SECONDS", 0.0)
    says(f"{prints(HELLO, BUILDING)}; head -n 2 > {tmp_path}/heard; {prints(ITS_RECORD)}")
    assert measured_there("board", BOARD, REQUEST) == RECORD
    assert (tmp_path / "heard").read_text(encoding="utf-8") == REQUEST.model_dump_json() + "\n\n"


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("ssh: Could not resolve hostname jetson: Name or service not known", "there is no such host: look at the name"),
        ("Host key verification failed.", "its host key is not known here: run `ssh jetson` once"),
        (
            "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.",
            "its host key is not the one .*ssh-keygen -R jetson",
        ),
        ("root@jetson: Permission denied (publickey).", "it refuses the login: .*ssh-copy-id jetson"),
        ("ssh: connect to host jetson port 22: Connection refused", "nothing listens at its ssh port"),
        ("ssh: connect to host jetson port 22: Connection timed out", "it does not answer"),
        ("x: line 1: Bad configuration option: hots", "ssh has a wrong setting"),
    ],
)
def test_what_ssh_says_of_the_first_connection_is_an_error_at_once(says: Any, said: str, meaning: str) -> None:
    folder = says(fails(255, said))
    with pytest.raises(DeviceError, match=rf'device "board" \(ssh jetson\): {meaning}.*{re.escape(said.splitlines()[-1])}'):
        measured_there("board", BOARD, REQUEST)
    assert (folder / "calls").read_text(encoding="utf-8") == "x\n"


@pytest.mark.parametrize(
    ("code", "said", "meaning"),
    [
        (127, "sh: 1: /opt/python: not found", 'there is no program "~/my env/bin/python" there: give the setting python'),
        (126, "sh: 1: /opt/python: Permission denied", "it cannot execute"),
        (1, "(ModuleNotFoundError: No module named 'syno')", "Syno is not installed there: ~/my env/bin/python -m pip install"),
        (1, "python: No module named syno.measure.answering", "Syno there is of another version"),
        (
            1,
            "ModuleNotFoundError: No module named 'pydantic'",
            "the package pydantic, which Syno needs, is not installed there",
        ),
        (1, "ImportError: cannot import name 'UTC'", "ended there with exit code 1 .*cannot import name 'UTC'"),
    ],
)
def test_a_python_that_does_not_do_it(says: Any, code: int, said: str, meaning: str) -> None:
    says(fails(code, said))
    with pytest.raises(DeviceError, match=meaning):
        measured_there("board", BOARD, REQUEST)


def test_what_is_wrong_there_is_an_error_here(says: Any) -> None:
    says(f"{prints(HELLO, line('fault', 'the disk of /root is full'))}; head -n 2 > /dev/null")
    with pytest.raises(DeviceError, match=r'device "board" \(ssh jetson\): the disk of /root is full'):
        measured_there("board", BOARD, REQUEST)


def test_a_record_that_means_nothing_is_an_error(says: Any) -> None:
    says(prints(HELLO, ITS_RECORD.replace("1.5", "-1.5")))
    with pytest.raises(DeviceError, match="its record cannot be read"):
        measured_there("board", BOARD, REQUEST)


def test_an_interruption_ends_the_connection(says: Any, tmp_path: Path) -> None:
    def interrupt(found: Findings) -> None:
        if found.phase == "building":
            raise KeyboardInterrupt

    says(f"echo $$ > {tmp_path}/process; {prints(HELLO, BUILDING)}; exec sleep 100")
    with pytest.raises(KeyboardInterrupt):
        measured_there("board", BOARD, REQUEST, interrupt)
    assert not psutil.pid_exists(int((tmp_path / "process").read_text(encoding="utf-8")))


def test_the_state_of_a_machine_is_that_of_the_same_syno(says: Any) -> None:
    found = {"device": "a board", "python": "3.11.2", "torch": "2.13.0", "tvm": "", "free_mib": 2048, "cpp": "g++ 12"}
    other = json.dumps({"syno": "0.0.9", "fields": ""})
    says(prints(HELLO, line("about", found)), prints(f"syno:hello {other}\n", line("about", found)))
    assert about("board", BOARD).model_dump() == found
    with pytest.raises(DeviceError, match=r"Syno is 0\.0\.9 there and .* here: python -m pip install syno-operators=="):
        about("board", BOARD)


def test_without_the_command_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="ssh is not installed here"):
        about("board", BOARD)
