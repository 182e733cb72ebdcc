"""Records of measurements: what is written is read, and what is wrong is named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from syno.base.errors import SpecError
from syno.ir.library import OPERATORS
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Device, TuningRecord

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})


def model(function: str, **rest: object) -> ModelSubject:
    return ModelSubject.model_validate({"factory": f"tuned_modules:{function}", "input_shape": (4,), **rest})


def a_record(**changed: object) -> TuningRecord:
    fields = {
        "name": "conv2d",
        "operator_id": CONV2D.graph.id,
        "subject": CONV2D,
        "compiler": "eager",
        "device": Device(kind="cpu", name="a processor", threads=1),
        "settings": FAST,
        "status": "ok",
        "latency_ms": 1.5,
        "versions": {"syno": "1"},
        "date": datetime(2030, 1, 1, tzinfo=UTC),
    }
    return TuningRecord.model_validate({**fields, **changed})


class TestRecords:
    @pytest.mark.parametrize("subject", [CONV2D, model("small", arguments={"channels": 3})], ids=["operator", "model"])
    def test_they_are_read_as_written(self, tmp_path: Path, subject: AnySubject) -> None:
        record = a_record(subject=subject)
        record.write(tmp_path / "deep" / "record.json")
        assert TuningRecord.read(tmp_path / "deep" / "record.json") == record
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["record.json"]

    def test_records_of_the_former_check_are_read(self, tmp_path: Path) -> None:
        made = a_record(checked=True, largest_relative_error=2e-7, settings=FAST.model_copy(update={"tolerance": 1e-3}))
        path = tmp_path / "record.json"
        path.write_text(made.model_dump_json(exclude={"share_of_allowed", "rounding_error"}), encoding="utf-8")
        record = TuningRecord.read(path)
        assert (record.settings.tolerance, record.largest_relative_error, record.share_of_allowed) == (1e-3, 2e-7, None)

    def test_a_failure_has_a_reason_and_no_time(self) -> None:
        assert a_record(status="timeout", reason="too long", latency_ms=None).status == "timeout"
        for wrong in (
            {"status": "timeout"},
            {"latency_ms": None},
            {"status": "crashed", "latency_ms": None},
            {"status": "partial"},
            {"status": "partial", "latency_ms": None, "reason": "a part is not tuned"},
        ):
            with pytest.raises(ValidationError, match="has a latency and no reason"):
                a_record(**wrong)

    def test_what_is_tuned_in_part_has_a_time_and_a_reason(self) -> None:
        record = a_record(status="partial", reason="a part is not tuned")
        assert record.latency_ms == 1.5

    @pytest.mark.parametrize("damage", ["half", "empty", "other", "unknown"])
    def test_a_corrupt_file_is_named(self, tmp_path: Path, damage: str) -> None:
        path = tmp_path / "record.json"
        a_record().write(path)
        text = path.read_text(encoding="utf-8")
        more = json.dumps({**json.loads(text), "colour": 1})
        path.write_text({"half": text[:99], "empty": "", "other": "[1]", "unknown": more}[damage], encoding="utf-8")
        with pytest.raises(
            SpecError, match=r"record\.json holds no tuning record: .*; delete the file and run `syno tune` again"
        ):
            TuningRecord.read(path)

    def test_an_absent_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="none.json.*cannot be read: No such file"):
            TuningRecord.read(tmp_path / "none.json")
