"""Speedups: what is measured is kept, nothing is measured twice, and what is not of this machine is not believed.

The process that measures is a stand-in, which answers at once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from syno.base import core_locks
from syno.base.errors import DeviceError, SpecError
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.measure import machine, measuring_process
from syno.measure.network_subject import NetworkSubject
from syno.measure.speedups import Speedups, SpeedupStore
from syno.measure.timing import LatencySettings

NETWORK = NetworkSubject(model="resnet8", width=0.25, classes=4, image_shape=(1, 8, 8))
FAST = LatencySettings(warm_up_ms=0, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
NAMES = ("conv2d", "conv1x1", "separable_conv2d", "stacked_convolution", "low_rank_conv2d", "grouped_conv2d", "shift_conv1x1")
SEVERAL = [OPERATORS[name]() for name in NAMES]
STAND_IN = Path(__file__).parents[1] / "support" / "speedup_stand_in.py"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the names of all operators that were measured."""
    monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-S", str(STAND_IN)))
    monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("SYNO_MEASURED", str(tmp_path / "log"))
    return tmp_path / "log"


def measured(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").split() if log.exists() else []


def of(store: Path, **changes: Any) -> Speedups:
    return Speedups(NETWORK, "eager", **{"settings": FAST, "store": store, **changes})


def called(name: str, number: int = 0) -> PGraph:
    return SEVERAL[number].renamed(name)


def test_an_operator_is_measured_once(tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store") as speedups:
        first = speedups.of(SEVERAL[0])
        assert (first.status, first.speedup, first.speedup_low, first.speedup_high) == ("ok", 2.0, 1.9, 2.1)
        assert speedups.of(called("other_name")).name == "other_name"  # it is the same operator
        assert speedups.of(SEVERAL[1]).status == "ok"
    with of(tmp_path / "store") as again:  # another study
        assert again.of(SEVERAL[0]) == first and len(list(again.records())) == 2
        assert measured(log) == ["conv2d", "conv1x1"]
        assert again.of(SEVERAL[0], repeat=1) == again.of(SEVERAL[0], repeat=1)  # it is asked for once more
        assert again.of(SEVERAL[0]) == first and len(list(again.records())) == 2
    assert measured(log) == ["conv2d", "conv1x1", "conv2d"]


def test_what_was_begun_is_measured_meanwhile(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is known, or nothing keeps other work from disturbing it."""
    with of(tmp_path / "undisturbed") as speedups:
        speedups.begin(SEVERAL[:2])
        assert speedups.of(SEVERAL[2]).status == "ok" and measured(log) == [*NAMES[2:3]]
    monkeypatch.setenv(core_locks.FOLDER_VARIABLE, str(tmp_path / "cores"))
    with of(tmp_path / "store") as speedups:
        speedups.of(SEVERAL[0])
        speedups.begin(SEVERAL[:3])
        deadline = time.monotonic() + 60
        while len(measured(log)) < 4:
            assert time.monotonic() < deadline, "it waits for `of`"
            time.sleep(0.05)
        assert [speedups.of(one).name for one in (*SEVERAL[2:4], SEVERAL[1])] == [*NAMES[2:4], NAMES[1]]
    assert measured(log) == [NAMES[2], *NAMES[:4]]


def test_other_settings_compilers_versions_and_machines_are_other_measurements(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with of(store) as speedups:
        speedups.of(SEVERAL[0])
    others = [of(store, settings=FAST.model_copy(update={"batch": 4})), of(store, measured="layers")]
    with monkeypatch.context() as patched:
        patched.setattr("syno.measure.compilers.versions", lambda packages: {"torch": "1.0"})
        assert of(store).known(SEVERAL[0]) is None
    with monkeypatch.context() as patched:
        patched.setattr(machine, "MACHINE_ID", tmp_path / "none")
        patched.setattr(machine.platform, "node", lambda: "elsewhere")
        assert of(store).known(SEVERAL[0]) is None
    assert [other.known(SEVERAL[0]) for other in others] == [None, None]
    assert of(store).known(SEVERAL[0]) is not None and len(measured(log)) == 1


def test_a_renamed_or_damaged_record_is_not_believed(tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store") as speedups:
        speedups.of(SEVERAL[0])
        store, (file,) = SpeedupStore(tmp_path / "store"), (tmp_path / "store").glob("*.json")
        wanted = store.file(speedups.conditions(SEVERAL[1]))
        wanted.write_bytes(file.read_bytes())  # the content tells whose it is
        assert speedups.known(SEVERAL[1]) is None and [record.name for record in store.records()] == ["conv2d"]
        wanted.unlink()
        file.write_text(file.read_text(encoding="utf-8").replace("1.9", "1.8"), encoding="utf-8")
        assert speedups.known(SEVERAL[0]) is None and list(store.records()) == []
        assert speedups.of(SEVERAL[0]).speedup_low == 1.9
    assert measured(log) == ["conv2d", "conv2d"]


@pytest.mark.parametrize("phase", ["starting", "building", "compiling", "waiting", "measuring"])
def test_a_process_that_is_killed_in_any_phase_is_tried_again(phase: str, tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store") as speedups:
        assert speedups.of(called(f"dies_twice_{phase}")).status == "ok"
    assert len(measured(log)) == 3


def test_a_process_that_dies_again_and_again_is_said_and_not_stored(tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store") as speedups:
        died = speedups.of(called("dies"))
        assert (died.status, died.speedup) == ("crashed", None)
        assert died.reason.startswith("compiling: the process was ended by signal 9") and "no more memory" in died.reason
        assert "it ended so 3 times, each time as a new process, while the original network was measured" in died.reason
        assert measured(log) == ["dies"] * 3 + ["original"] and not list((tmp_path / "store").glob("*.json"))
        assert speedups.of(called("dies")) == died and len(measured(log)) == 4  # the study does not try it again
        assert speedups.of(SEVERAL[1]).status == "ok"
    with of(tmp_path / "store") as another:
        assert another.known(SEVERAL[0]) is None and another.of(SEVERAL[0]).status == "ok"


def test_where_all_processes_die_the_machine_is_to_blame(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with of(tmp_path / "store") as speedups:
        with pytest.raises(DeviceError, match="cannot start .*it ended so 3 times.*: see whether memory and the disk"):
            speedups.of(called("dies_always_starting"))
        monkeypatch.setenv("SYNO_DYING", "original")
        with pytest.raises(DeviceError, match="died .* and with the original network alone it does not work either"):
            speedups.of(called("dies"))
        assert speedups.of(SEVERAL[0]).status == "ok"  # the same operator, under another name
    assert measured(log) == ["dies_always_starting"] * 3 + ["dies"] * 3 + ["original", "conv2d"]


def test_memory_that_nobody_limits_is_that_of_the_machine(tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store") as speedups:
        assert "measuring: MemoryError; it ended so 3 times" in speedups.of(called("short")).reason
    with of(tmp_path / "store", memory_limit_mib=1e6) as limited:
        limited.of(SEVERAL[1])
        before = len(measured(log))
        found = limited.of(called("short"))
        assert found.status == "out_of_memory" and limited.known(called("short")) == found
    assert measured(log)[before:] == ["short"] * 2  # the memory of what was measured before may have been the reason


def test_no_process_leaves_temporary_files(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # PyTorch sets it in a process that has compiled something
    with of(tmp_path / "store") as speedups:
        speedups.of(SEVERAL[1])
        assert len(list((tmp_path / "temporary").iterdir())) == 1
        speedups.of(called("dies"))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_fault_of_the_device_is_an_error_and_no_record(tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store") as speedups:
        with pytest.raises(DeviceError, match="the device is gone"):
            speedups.of(called("fault"))
        assert speedups.of(SEVERAL[0]).status == "ok"  # the same operator, under another name
    assert measured(log) == ["fault", "conv2d"]


def test_a_limit_of_time_is_a_record_until_the_limit_is_raised(tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store", time_limit_s=0.01) as speedups:
        found = speedups.of(called("hang"))
        assert (found.status, found.reason) == ("timeout", "measuring: it was stopped at its time limit of 0.01 s")
        assert speedups.of(called("hang")) == found and len(measured(log)) == 1
    with of(tmp_path / "store", time_limit_s=1000) as patient:
        assert patient.known(called("hang")) is None
    with pytest.raises(SpecError, match="time_limit_s is 0; it must be above 0"):
        of(tmp_path, time_limit_s=0)


def test_who_waits_for_a_measurement_holds_no_cores(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNO_CORE_LOCKS", str(tmp_path / "cores"))
    held: list[list[int]] = []
    with of(tmp_path / "store") as speedups, core_locks.computing():
        speedups.of(called("dies_twice_measuring"), lambda _: held.append(list(core_locks._held)))
        assert core_locks._held
    assert held and not any(held)


def test_without_a_store_nothing_is_kept(log: Path) -> None:
    with Speedups(NETWORK, "eager", settings=FAST, store=None) as speedups:
        assert [speedups.of(SEVERAL[0]).status for _ in range(2)] == ["ok", "ok"] and speedups.known(SEVERAL[0]) is None
    assert measured(log) == ["conv2d"] * 2


def test_an_original_that_is_slower_than_before_is_measured_again(tmp_path: Path, log: Path) -> None:
    with of(tmp_path / "store") as speedups:
        assert speedups.of(called("slow", 0)).original_ms.value == 5.0  # nothing is known yet
        assert speedups.of(SEVERAL[1]).original_ms.value == 2.0
    log.unlink()
    with of(tmp_path / "store") as speedups:
        speedups.of(SEVERAL[2])
        process = speedups._process._local
        assert speedups.of(called("slow", 3)).original_ms.value == 2.0 and speedups._process._local is process
        assert speedups.of(called("slow_twice", 4)).original_ms.value == 2.0 and speedups._process._local is not process
        # Another process finds the same: it is the machine, whose ratios are as good.
        slow = [speedups.of(called(name, number)) for name, number in (("slow_now", 5), ("slow_now_too", 6))]
        assert [one.original_ms.value for one in slow] == [5.0, 5.0]
    assert measured(log) == [SEVERAL[2].name, *["slow"] * 2, *["slow_twice"] * 3, *["slow_now"] * 3, "slow_now_too"]


def worker(store: Path) -> int:
    """Start a process that measures all operators."""
    number = os.fork()
    if number == 0:
        try:
            with of(store) as speedups:
                for operator in SEVERAL:
                    speedups.of(operator)
        finally:
            os._exit(0)
    return number


def test_killed_anywhere_nothing_written_is_lost_or_measured_again(tmp_path: Path, log: Path) -> None:
    store, chance, kept = tmp_path / "store", random.Random(0), dict[str, bytes]()
    while len(kept) < len(SEVERAL):
        before, known = len(measured(log)), {record.name for record in SpeedupStore(store).records()}
        one, end = worker(store), time.monotonic() + 60
        events = before + len(kept) + chance.randint(1, 5)  # measurements begun, and records written
        while len(measured(log)) + len(list(store.glob("*.json"))) < events and os.waitpid(one, os.WNOHANG) == (0, 0):
            assert time.monotonic() < end
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
            os.waitpid(one, 0)
        now = {file.name: file.read_bytes() for file in store.glob("*.json")}
        assert now.items() >= kept.items()  # no record is lost, or written again
        begun = measured(log)[before:]
        assert known.isdisjoint(begun) and len(begun) <= len(now) - len(kept) + 1  # the last one was in progress
        kept = now


def test_two_workers_measure_nothing_twice(tmp_path: Path, log: Path) -> None:
    for one in [worker(tmp_path / "store") for _ in range(2)]:
        os.waitpid(one, 0)
    assert sorted(measured(log)) == sorted(operator.name for operator in SEVERAL)
    assert list((tmp_path / "store" / "locks").iterdir()) == []
