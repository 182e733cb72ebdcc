"""Records and selections that were damaged or edited after they were written: one clear error each, never other content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syno.base.errors import SpecError
from syno.base.record import Record
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.measure.tuning_record import TuningRecord
from syno.stages.data import DataRecord
from syno.stages.search import WorkerRecord
from syno.stages.selection import Selected, read_selected, write_selected
from syno.stages.store import OperatorStore
from syno.stages.tables import make_tables
from syno.train.training_record import TrainingRecord

HERE: dict[str, Any] = {"versions": {"python": "3.11"}, "date": "2026-01-01T00:00:00Z"}
KINDS: dict[type[Record], dict[str, Any]] = {
    TrainingRecord: {
        **HERE, "name": "conv2d", "operator": "operator x", "operator_id": "ab", "workload": {}, "data_hash": "cd", "seed": 0,
        "metric": "accuracy", "score": 0.75, "scores": [0.5, 0.75], "losses": [1.5, 1.25], "stopped": None, "flops": 1e6,
        "parameters": 1000, "cpu_seconds": 2.5, "threads": 1, "device": "cpu",
    },
    TuningRecord: {
        **HERE, "name": "conv2d", "operator_id": None, "subject": {"kind": "network", "model": "resnet8", "classes": 10,
        "image_shape": [3, 8, 8]}, "compiler": "eager", "device": {"kind": "cpu", "name": "one", "threads": 1}, "settings": {},
        "status": "ok", "latency_ms": 1.5, "latency_low_ms": 1.4, "latency_high_ms": 1.6, "repeats": 20,
    },
    DataRecord: {
        **HERE, "data": "glyphs", "hash": "ab", "classes": 4, "train_images": 128, "test_images": 64,
        "image_shape": [3, 16, 16], "model": "resnet8", "layers": ["one"], "flops": 1e6, "parameters": 1000,
        "rest_flops": 1e5, "rest_parameters": 100,
    },
    WorkerRecord: {
        **HERE, "study": "quick", "worker": 1, "process": "host:1", "machine": "one", "trials": 3, "finished": 8,
        "seconds": 2.5,
    },
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


def written(kind: type[Record], file: Path) -> Record:
    record = kind.model_validate(KINDS[kind])
    record.write(file)
    return record


class TestRecords:
    @pytest.mark.parametrize("kind", KINDS)
    def test_an_edit_is_an_error_that_says_what_to_do(self, kind: type[Record], file: Path) -> None:
        record, before = written(kind, file), file.read_text(encoding="utf-8")
        assert kind.read(file) == record
        file.write_text(before.replace("3.11", "3.12"), encoding="utf-8")
        with pytest.raises(
            SpecError,
            match=rf"record\.json holds no {kind.kind_of_record}: it does not agree with its checksum, "
            r'.* remove the field "checksum".*; delete the file and .*`syno \w+` again',
        ):
            kind.read(file)

    def test_an_edit_is_kept_without_the_checksum(self, file: Path) -> None:
        written(TrainingRecord, file)
        content = json.loads(file.read_text(encoding="utf-8"))
        del content["checksum"]
        file.write_text(json.dumps({**content, "device": "another"}), encoding="utf-8")
        found = TrainingRecord.read(file)
        assert isinstance(found, TrainingRecord) and found.device == "another"

    def test_a_record_without_a_checksum_is_read_and_stays(self, file: Path) -> None:
        record = TrainingRecord.model_validate(KINDS[TrainingRecord])
        file.write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
        before = file.read_bytes()
        assert TrainingRecord.read(file) == record
        record.write(file)
        assert file.read_bytes() == before

    def test_spaces_and_order_of_fields_do_not_matter(self, file: Path) -> None:
        record = written(TrainingRecord, file)
        content = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps(dict(reversed(content.items()))), encoding="utf-8")
        assert TrainingRecord.read(file) == record

    def test_people_can_read_it(self, file: Path) -> None:
        written(TrainingRecord, file)
        lines = file.read_text(encoding="utf-8").splitlines()
        assert ' "score": 0.75,' in lines and lines[-2].startswith(' "checksum": "')

    def test_a_loss_that_is_infinite_comes_back(self, file: Path) -> None:
        fields = {**KINDS[TrainingRecord], "metric": "loss", "score": float("inf"), "stopped": "the loss is nan"}
        TrainingRecord.model_validate(fields).write(file)
        found = TrainingRecord.read(file)
        assert isinstance(found, TrainingRecord) and found.score == float("inf")

    @pytest.mark.parametrize(
        ("kind", "field", "value"),
        [
            (TrainingRecord, "score", 7.5),
            (TrainingRecord, "score", -0.1),
            (TrainingRecord, "score", "nan"),
            (TrainingRecord, "scores", [0.5, 75]),
            (TrainingRecord, "scores", [0.5]),
            (TrainingRecord, "losses", [1.5, -1.25]),
            (TrainingRecord, "losses", [1.5, "inf"]),
            (TrainingRecord, "flops", -1.0),
            (TrainingRecord, "parameters", -1),
            (TrainingRecord, "threads", 0),
            (TrainingRecord, "cpu_seconds", "inf"),
            (TuningRecord, "latency_ms", 0.0),
            (TuningRecord, "latency_ms", -1.5),
            (TuningRecord, "latency_ms", 15.0),
            (TuningRecord, "repeats", 0),
            (TuningRecord, "flops", -1),
            (DataRecord, "classes", 0),
            (DataRecord, "image_shape", [3, 0, 16]),
            (DataRecord, "parameters", -5),
            (WorkerRecord, "trials", -1),
            (WorkerRecord, "seconds", "inf"),
        ],
    )
    def test_what_cannot_be_is_an_error(self, kind: type[Record], field: str, value: object, file: Path) -> None:
        file.write_text(json.dumps({**KINDS[kind], field: value}), encoding="utf-8")
        with pytest.raises(SpecError, match=rf"record\.json holds no {kind.kind_of_record}: .*; delete the file and .* again"):
            kind.read(file)

    @pytest.mark.parametrize("content", [b"[" * 100_000, b'{"score": ' + b"9" * 10_000 + b"}", b"\xff\xfe{", b"", b"null"])
    def test_json_that_was_made_to_harm(self, content: bytes, file: Path) -> None:
        file.write_bytes(content)
        with pytest.raises(SpecError, match=r"record\.json holds no training record: ") as error:
            TrainingRecord.read(file)
        assert len(str(error.value)) < 500


def chosen() -> list[Selected]:
    return [Selected(key=2 * f"{number:06x}", name=f"one_{number}", metrics={"accuracy": 0.5}) for number in range(3)]


class TestSelections:
    def test_a_changed_key_is_an_error(self, tmp_path: Path) -> None:
        file = tmp_path / "selected.json"
        write_selected(chosen(), file)
        assert read_selected(file) == chosen()
        file.write_text(file.read_text(encoding="utf-8").replace("000001000001", "000001000003"), encoding="utf-8")
        with pytest.raises(SpecError, match="does not agree with its checksum.*delete it and run `syno select` again"):
            read_selected(file)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"key": "../../precious"}, "selected.0.key"),
            ({"key": "0123456789a"}, "selected.0.key"),
            ({"metrics": {"accuracy": 7.5}}, "an accuracy is a fraction"),
            ({"metrics": {"loss": -1.0}}, "a loss is 0 or more"),
            ({"reward": float("nan")}, "selected.0.reward"),
            ({"trial": -1}, "selected.0.trial"),
            ({"key": "000001000001"}, "000001000001 is in it twice"),
        ],
    )
    def test_what_cannot_be_is_an_error(self, change: dict[str, Any], message: str, tmp_path: Path) -> None:
        rows = [one.model_dump() for one in chosen()]
        (tmp_path / "selected.json").write_text(json.dumps({"selected": [rows[0] | change, *rows[1:]]}), encoding="utf-8")
        with pytest.raises(SpecError, match=rf"selected\.json holds no selection: .*{message}"):
            read_selected(tmp_path / "selected.json")

    def test_an_operator_that_is_not_in_the_store_is_no_gap_in_the_tables(self, tmp_path: Path) -> None:
        experiment = Experiment(name="small", workload={}, spec={"depth": 4}, output=tmp_path)
        key = OperatorStore(tmp_path).add(OPERATORS["conv2d"]())
        rows = [{"key": one, "name": f"{one}_name", "metrics": {}} for one in (key, key[::-1])]
        (tmp_path / "selected.json").write_text(json.dumps({"selected": rows}), encoding="utf-8")
        TrainingRecord.model_validate(KINDS[TrainingRecord]).write(tmp_path / "train" / key / "seed0.json")
        with pytest.raises(
            SpecError, match=rf"operators has no operator {key[::-1]}, which .*selected\.json has as .*syno freeze"
        ):
            make_tables(experiment)

    def test_a_record_in_the_folder_of_another_operator_is_an_error(self, tmp_path: Path) -> None:
        experiment = Experiment(name="small", workload={}, spec={"depth": 4}, output=tmp_path)
        key = OperatorStore(tmp_path).add(OPERATORS["conv2d"]())
        write_selected([Selected(key=key, name="conv2d", metrics={})], tmp_path / "selected.json")
        fields = KINDS[TrainingRecord] | {"operator_id": OPERATORS["conv1x1"]().id}
        file = tmp_path / "train" / key / f"seed{experiment.train.seeds[0]}.json"
        TrainingRecord.model_validate(fields).write(file)
        with pytest.raises(
            SpecError, match=rf"{file.name} is the record of conv2d .*, not of {key}; delete it and run `syno train`"
        ):
            make_tables(experiment)
