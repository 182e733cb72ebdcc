"""The side of the machine that measures: nothing outlives the connection, and what it cannot do is said."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from syno.ir.library import OPERATORS
from syno.measure import answering as program
from syno.measure import machine, protocol
from syno.measure.protocol import Code, Findings, Request, parsed
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import Device, TuningRecord

CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})

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


def request(**changes: Any) -> Request:
    given = {"subject": CONV2D, "compiler": "eager", "device": "cpu", "settings": LatencySettings(), "folder": Path()}
    return Request(**{**given, **changes})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return program.place()


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the messages that the device printed, by their kind."""
    found = map(parsed, capsys.readouterr().out.splitlines())
    return dict(message for message in found if message is not None)


class Given(program.Asking):
    """A request in place of the standard input; after it, or after `checks` looks, the other side is gone."""

    def __init__(self, text: str, checks: int = 10**6) -> None:
        self._texts, self._checks = [text], checks

    def request(self) -> str:
        if not self._texts:
            raise BrokenPipeError
        return self._texts.pop()

    def require(self) -> None:
        self._checks -= 1
        if self._checks < 0:
            raise BrokenPipeError


def asked(given: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Send a request to the device's program, and return its messages."""
    monkeypatch.setattr(program, "Asking", lambda: Given(given))
    program.main(["there"])
    return said(capsys)


def measure(given: Given) -> None:
    """Do what the device's program does."""
    program.there(given, partial(program._say, sys.stdout))


def test_a_board_is_called_by_its_name_where_its_processor_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nFeatures : fp asimd\n", encoding="utf-8")  # of an Arm processor
    (tmp_path / "model").write_bytes(b"NVIDIA Jetson Orin Nano Developer Kit\0")
    monkeypatch.setattr(machine, "PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "BOARD", tmp_path / "model")
    assert program.about("cpu").device == "NVIDIA Jetson Orin Nano Developer Kit"


class TestConnection:
    @pytest.fixture
    def pipe(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[bytes]]:
        """The other end of the standard input."""
        reading, writing = os.pipe()
        before = os.dup(0)
        os.dup2(reading, 0)
        with os.fdopen(writing, "wb", buffering=0) as end:
            yield end
        os.dup2(before, 0)
        for one in (before, reading):
            os.close(one)

    def test_signs_of_life_are_no_lines(self, pipe: IO[bytes]) -> None:
        pipe.write(b"\n\nthe ")
        pipe.write(b"order\n\n")
        asking = protocol.Asking()
        assert asking.request() == "the order"
        asking.require()
        assert os.read(0, 1) == b""  # compilers read nothing

    def test_one_that_ends_is_noticed(self, pipe: IO[bytes]) -> None:
        asking = protocol.Asking()
        asking.require()
        pipe.close()
        for wait in (asking.request, asking.require):
            with pytest.raises(BrokenPipeError, match="has ended"):
                wait()

    def test_one_that_is_silent_counts_as_ended(self, pipe: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        asking = protocol.Asking()
        asking.require()
        monkeypatch.setattr(protocol, "SILENCE_SECONDS", -1.0)
        with pytest.raises(BrokenPipeError, match="is silent"):
            asking.require()


class TestMeasuring:
    def test_what_is_found_comes_before_the_record(self, capsys: Any, monkeypatch: Any) -> None:
        def tune(*given: Any, progress: Any, **more: Any) -> TuningRecord:
            for phase in ("building", "building", "measuring"):
                progress(Findings(phase=phase))
            return RECORD

        monkeypatch.setattr(program, "tune", tune)
        monkeypatch.setattr(program, "Asking", lambda: Given(request().model_dump_json()))
        program.main(["there"])
        found = [message for text in capsys.readouterr().out.splitlines() if (message := parsed(text)) is not None]
        assert [content.get("phase") for _, content in found] == [None, "building", "measuring", "starting"]
        assert (found[0][0], found[-1][1]["status"]) == ("hello", "ok")
        assert TuningRecord.model_validate_json(json.dumps(found[-1][1]["fields"])) == RECORD

    def test_it_ends_with_the_connection(self, capsys: Any, monkeypatch: Any) -> None:
        ended: list[bool] = []

        def tune(*given: Any, progress: Any, **more: Any) -> None:
            try:
                while True:
                    progress(Findings(phase="measuring"))
            finally:
                ended.append(True)

        monkeypatch.setattr(program, "tune", tune)
        with pytest.raises(BrokenPipeError):
            measure(Given(request().model_dump_json(), checks=3))
        assert ended == [True] and said(capsys)["findings"]["status"] is None

    def test_measurements_wait_for_each_other(self, cache: Path, capsys: Any, monkeypatch: Any) -> None:
        """Only one at a time: latencies of two would disturb each other."""
        monkeypatch.setattr(program, "tune", lambda *given, **more: RECORD)
        monkeypatch.setattr(program, "LOOK_SECONDS", 0.001)
        with program._alone_here(lambda: None), pytest.raises(BrokenPipeError):
            measure(Given(request().model_dump_json(), checks=3))  # also while it waits
        found = said(capsys)["findings"]
        assert (found["phase"], found["status"]) == ("waiting", None)
        assert asked(request().model_dump_json(), capsys, monkeypatch)["findings"]["status"] == "ok"


class TestWhatCannotBeDone:
    def fault(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: str = "", **changes: Any
    ) -> str:
        found = asked(given or request(**changes).model_dump_json(), capsys, monkeypatch)
        assert Code.model_validate(found["hello"]) == Code.of_this()
        return str(found["fault"])

    def test_a_request_that_cannot_be_read(self, capsys: Any, monkeypatch: Any) -> None:
        assert self.fault(capsys, monkeypatch, '{"unknown": 1}').startswith("the request cannot be read: ")

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
        monkeypatch.setattr(program, "LEAST_FREE_MIB", 2**40)
        assert f"the disk of {cache} is full" in self.fault(capsys, monkeypatch)
        assert not cache.exists()

    def test_no_such_gpu(self, capsys: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
        program.main(["about", "cuda:1"])
        assert '"cuda:1", but PyTorch finds no GPU here' in said(capsys)["fault"]
        assert "finds no GPU here" in self.fault(capsys, monkeypatch, device="cuda")

    def test_a_compiler_that_is_not_installed(self, capsys: Any, monkeypatch: Any) -> None:
        from syno.base.errors import MissingPackageError

        def lacks(*given: Any, **more: Any) -> None:
            raise MissingPackageError("TVM is not installed: pip install 'syno-operators[tvm]'")

        monkeypatch.setattr(program, "tune", lacks)
        assert self.fault(capsys, monkeypatch, compiler="tvm") == "TVM is not installed: pip install 'syno-operators[tvm]'"


def test_a_runtime_that_is_not_installed_there_is_a_record(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.measure.compilers.find_spec", lambda package: None)
    given = request(compiler="openvino-int8", options={"float_layers": ["stem"]})
    found = asked(given.model_dump_json(), capsys, monkeypatch)["findings"]
    assert found["status"] == "failed" and 'pip install "syno-operators[openvino]"' in found["reason"]
