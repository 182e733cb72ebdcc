"""The side of the machine that measures: one process for equal orders, and what it cannot do is said."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syno.base.errors import DeviceError
from syno.ir.library import OPERATORS
from syno.measure import machine
from syno.measure.measuring import Findings, Request
from syno.measure.remote_measurement import __main__ as program
from syno.measure.remote_measurement import jobs
from syno.measure.ssh.protocol import Code, Order, parsed
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings

CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})


def request(**changes: Any) -> Request:
    given = {"subject": CONV2D, "compiler": "eager", "device": "cpu", "settings": LatencySettings(), "folder": Path()}
    return Request(**{**given, **changes})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return jobs.place()


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[int]]]:
    """Stands for the process of a measurement: it writes down its number, and waits. Returns the numbers of all."""
    stand_in, numbers = tmp_path / "process", tmp_path / "numbers"
    stand_in.write_text(f"#!/bin/sh\necho its last words\necho $$ >> {numbers}\nexec sleep 1000\n", encoding="utf-8")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))

    def started() -> list[int]:
        return list(map(int, numbers.read_text(encoding="utf-8").split())) if numbers.exists() else []

    yield started
    for one in started():
        kill(one)


def kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)  # it is a child of this one
    except (ProcessLookupError, ChildProcessError):
        pass


def wait_until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.005)


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the messages that the device printed, by their kind."""
    found = map(parsed, capsys.readouterr().out.splitlines())
    return dict(message for message in found if message is not None)


class Given:
    """Lines in place of those of the standard input; then the other side is gone."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    @property
    def ended(self) -> bool:
        return not self._lines

    def next(self, seconds: float | None = None) -> str | None:
        return self._lines.pop(0) if self._lines else None


def ordered(given: Order, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Send an order to the device's program, and return its messages."""
    monkeypatch.setattr(program, "Lines", lambda: Given(given.model_dump_json()))
    program.main(["measure"])
    return said(capsys)


def test_a_board_is_called_by_its_name_where_its_processor_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nFeatures : fp asimd\n", encoding="utf-8")  # of an Arm processor
    (tmp_path / "model").write_bytes(b"NVIDIA Jetson Orin Nano Developer Kit\0")
    monkeypatch.setattr(machine, "PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "BOARD", tmp_path / "model")
    assert program.about("cpu").device == "NVIDIA Jetson Orin Nano Developer Kit"


class TestOneProcess:
    def test_equal_orders_are_one_measurement(self, cache: Path, process: Callable[[], list[int]]) -> None:
        folder = cache / Order.of(request()).name
        for _ in range(3):
            jobs.ensure_started(folder, request())
        wait_until(lambda: len(process()) == 1)
        assert jobs.is_alive(folder) and jobs.folders() == [folder]
        jobs.remove(folder)
        assert folder.exists()  # it is still measuring

    def test_another_order_is_another_measurement(self) -> None:
        names = {Order.of(request(**changes)).name for changes in ({}, {"compiler": "inductor"}, {"device": "cuda"})}
        assert len(names) == 3 and Order.of(request()).name in names

    def test_a_process_that_died_is_started_again_and_not_without_end(
        self, cache: Path, process: Callable[[], list[int]]
    ) -> None:
        folder = cache / "x"
        for number in range(1, jobs.MOST_STARTS + 1):
            jobs.ensure_started(folder, request())
            wait_until(lambda: len(process()) == number)  # noqa: B023 - called at once
            kill(process()[-1])
            assert not jobs.is_alive(folder)
        with pytest.raises(DeviceError, match="died 3 times; its last words: its last words"):
            jobs.ensure_started(folder, request())
        assert not folder.exists()

    def test_a_record_that_was_not_fetched_is_kept_and_then_removed(
        self, cache: Path, process: Callable[[], list[int]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order = Order.of(request())
        folder = cache / order.name
        folder.mkdir(parents=True)
        (folder / jobs.RECORD).write_text("the record", encoding="utf-8")
        assert ordered(order, capsys, monkeypatch)["record"] == "the record"
        assert folder.exists()  # nobody has said that it arrived
        monkeypatch.setattr(program, "Lines", lambda: Given(order.model_dump_json(), "received"))
        program.main(["measure"])
        assert not folder.exists() and process() == []

    def test_a_process_that_dies_while_somebody_waits_is_an_error(
        self, cache: Path, process: Callable[[], list[int]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = cache / "x"
        jobs.ensure_started(folder, request())
        wait_until(lambda: len(process()) == 1)
        kill(process()[0])
        with pytest.raises(DeviceError, match="the process of the measurement died; its last words: its last words"):
            program._follow(folder, Given("", ""))  # type: ignore[arg-type]
        assert not folder.exists()

    def test_measurements_wait_for_each_other(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only one at a time: latencies of two would disturb each other."""
        import threading

        seen, gate = list[Path](), threading.Event()
        monkeypatch.setattr(jobs, "_measured", lambda folder, given: (seen.append(folder), gate.wait(30)))
        folders = [cache / "a", cache / "b"]
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / jobs.REQUEST).write_text(request().model_dump_json(), encoding="utf-8")
        threads = [threading.Thread(target=jobs.run, args=[folder]) for folder in folders]
        for one in threads:
            one.start()
        wait_until(lambda: all(jobs.findings(folder) == Findings(phase="waiting") for folder in folders) and bool(seen))
        assert len(seen) == 1
        gate.set()
        for one in threads:
            one.join(30)
        assert sorted(seen) == folders


class TestWhatCannotBeDone:
    def fault(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, order: Order | None = None, **changes: Any
    ) -> str:
        found = ordered(order or Order.of(request(**changes)), capsys, monkeypatch)
        assert Code.model_validate(found["hello"]) == Code.of_this()
        return str(found["fault"])

    def test_other_code(self, capsys: Any, monkeypatch: Any) -> None:
        old = Order(code=Code(syno="", fields="old"), request={"unknown": 1})
        assert "other code: install the same code" in self.fault(capsys, monkeypatch, old)

    def test_no_torch(self, capsys: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        assert self.fault(capsys, monkeypatch).startswith(f"PyTorch is not installed in {sys.executable}")
        program.main(["about", "cpu"])
        assert said(capsys)["fault"].startswith("PyTorch is not installed")

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"subject": ModelSubject(factory="not_here.nets:small", input_shape=(3,))}, 'model "not_here.nets:small"'),
            ({"compiler": "not_here:fast"}, 'compiler "not_here:fast"'),
        ],
    )
    def test_modules_that_are_not_there(self, changes: dict[str, Any], what: str, capsys: Any, monkeypatch: Any) -> None:
        fault = self.fault(capsys, monkeypatch, **changes)
        assert fault.startswith(f"the {what} cannot be imported: there is no module not_here; copy it to {Path.cwd()}")

    def test_a_full_disk(self, cache: Path, capsys: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(jobs, "LEAST_FREE_MIB", 2**40)
        assert f"the disk of {cache} is full" in self.fault(capsys, monkeypatch)
        assert not cache.exists()

    def test_no_such_gpu(self, cache: Path, capsys: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
        program.main(["about", "cuda:1"])
        assert '"cuda:1", but PyTorch finds no GPU here' in said(capsys)["fault"]
        folder = cache / "x"
        folder.mkdir(parents=True)
        (folder / jobs.REQUEST).write_text(request(device="cuda").model_dump_json(), encoding="utf-8")
        jobs.run(folder)
        assert jobs.ending(folder) == ("fault", (folder / jobs.FAULT).read_text(encoding="utf-8"))
        assert "finds no GPU here" in (folder / jobs.FAULT).read_text(encoding="utf-8")

    def test_a_compiler_that_is_not_installed(self, cache: Path, monkeypatch: Any) -> None:
        from syno.base.errors import MissingPackageError

        def lacks(*given: Any, **more: Any) -> None:
            raise MissingPackageError("TVM is not installed: pip install 'syno[tvm]'")

        monkeypatch.setattr(jobs, "tune", lacks)
        folder = cache / "x"
        folder.mkdir(parents=True)
        (folder / jobs.REQUEST).write_text(request(compiler="tvm").model_dump_json(), encoding="utf-8")
        jobs.run(folder)
        assert jobs.ending(folder) == ("fault", "TVM is not installed: pip install 'syno[tvm]'")
