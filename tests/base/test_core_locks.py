"""Locks of cores: trainings share them, measurements have them alone, and nobody waits for a process that has died."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command_lines import HANGS_AFTER
from torch import nn

from syno.base import core_locks
from syno.base.core_locks import alone, computing, given_up, make_way, waiting_line
from syno.train.data_sets import load_data
from syno.train.settings import TrainingSettings
from syno.train.training import train

CORE = min(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYNO_CORE_LOCKS", str(tmp_path / "cores"))
    return tmp_path / "cores"


def is_free(file: Path, way: int) -> bool:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, way | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def state(folder: Path) -> str:
    core = folder / f"{CORE}.core"
    return "free" if is_free(core, fcntl.LOCK_EX) else "shared" if is_free(core, fcntl.LOCK_SH) else "alone"


def child(work: Callable[[], None]) -> int:
    number = os.fork()
    if number == 0:
        try:
            work()
        finally:
            os._exit(0)
    return number


def wait_until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS_AFTER
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_trainings_share_and_measurements_have_the_cores_alone(folder: Path) -> None:
    with computing() as waited:
        assert state(folder) == "shared" and waited < 60
        with computing():
            pass
        assert state(folder) == "shared"  # a block within another one ends nothing
        with alone():
            assert state(folder) == "alone"
            with computing(), alone():
                assert state(folder) == "alone"
        assert state(folder) == "shared"
        with given_up():
            assert state(folder) == "free"
        assert state(folder) == "shared"
    assert state(folder) == "free"


def test_gpus_have_leases_instead(folder: Path) -> None:
    with computing("cuda"), alone("cuda"):
        assert not folder.exists()


def test_the_lock_of_a_killed_process_is_free(folder: Path) -> None:
    def measure() -> None:
        with alone():
            time.sleep(1000)

    one = child(measure)
    wait_until(lambda: (folder / f"{CORE}.core").exists() and state(folder) == "alone")
    os.kill(one, signal.SIGKILL)
    with computing():  # waits for the end of the process, and not for its 1000 s
        os.waitpid(one, 0)


def test_a_measurement_that_waits_comes_before_later_trainings(folder: Path) -> None:
    def measure() -> None:
        with alone():
            (folder / "measured").touch()

    with computing():
        one = child(measure)
        wait_until(lambda: not is_free(folder / f"{CORE}.next", fcntl.LOCK_EX))  # where a later training would wait
        assert not (folder / "measured").exists()
    os.waitpid(one, 0)
    assert (folder / "measured").exists()


def test_a_training_makes_way_for_a_measurement_that_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on after it, and does not count the time as its own."""
    monkeypatch.setattr(core_locks, "LOOK_SECONDS", 0.0)

    def measure() -> None:
        with alone():
            (folder / "measured").touch()
            time.sleep(0.3)

    class Waiting(nn.Linear):  # type: ignore[misc]
        one = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.one:
                self.one = child(measure)
                wait_until(lambda: not is_free(folder / f"{CORE}.next", fcntl.LOCK_EX))
            seen.append((folder / "measured").exists())
            return super().forward(x.flatten(1))

    seen: list[bool] = []
    assert make_way() == 0.0
    data, began = load_data("glyphs", {"preset": "micro", "train": 32, "test": 8}), time.perf_counter()
    network = Waiting(768, 6)
    found = train(network, data, TrainingSettings(epochs=1, batch=16))
    assert time.perf_counter() - began - found.seconds >= 0.3 and state(folder) == "free"
    os.waitpid(network.one, 0)
    assert seen[:2] == [False, True]  # in the first step of two, and in the second


def training_child(folder: Path) -> int:
    """Start a process that computes until it is killed, and return its number once it holds the cores."""

    def train() -> None:
        with computing():
            (folder / "trains").touch()
            time.sleep(1000)

    number = child(train)
    wait_until((folder / "trains").exists)
    return number


def test_a_process_that_waits_says_how_long_for_how_many_cores_and_which_process_holds_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = training_child(folder)
    os.kill(one, signal.SIGSTOP)
    os.waitid(os.P_PID, one, os.WSTOPPED)
    monkeypatch.setattr(core_locks, "SAY_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(core_locks, "_own_processes", lambda: {os.getpid()})  # a child of the test stands for a stranger
    monkeypatch.setattr(time, "sleep", lambda _: os.kill(one, signal.SIGKILL))  # who reads the line does so
    with alone():
        pass
    os.waitpid(one, 0)
    (line, *_) = capsys.readouterr().err.splitlines()
    cores = len(os.sched_getaffinity(0))
    assert line.startswith(f"waiting for 0 s for {cores} processor core")
    assert f" held by process {one} (stopped: " in line and line.endswith("); SYNO_CORE_LOCKS=off waits for nobody")


def test_children_of_a_process_that_waits_hold_no_cores_of_others(folder: Path) -> None:
    one = training_child(folder)
    assert "held by another process, perhaps in another container" in waiting_line(40)
    os.kill(one, signal.SIGKILL)
    os.waitpid(one, 0)


def test_locks_can_be_turned_off_and_never_end_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("SYNO_CORE_LOCKS", "off")
    with computing(), alone():
        assert not folder.exists()
    (tmp_path / "file").touch()
    monkeypatch.setenv("SYNO_CORE_LOCKS", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="locks of cores in .*file cannot be used .*SYNO_CORE_LOCKS"), computing():
        pass


def test_a_training_holds_its_cores_in_an_epoch_and_not_between_two(folder: Path) -> None:
    seen: dict[str, set[str]] = {"in an epoch": set(), "between two": set()}

    class Looking(nn.Linear):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen["in an epoch"].add(state(folder))
            return super().forward(x.flatten(1))

    def report(number: int, score: float) -> bool:
        seen["between two"].add(state(folder))
        return True

    data = load_data("glyphs", {"preset": "micro", "train": 32, "test": 8})
    train(Looking(768, 6), data, TrainingSettings(epochs=2, batch=16), report=report)
    assert seen == {"in an epoch": {"shared"}, "between two": {"free"}}
