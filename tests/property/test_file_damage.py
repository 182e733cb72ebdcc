"""Files that are flipped, truncated, zeroed or swapped at random places.

Every case ends in one clear error that names the file, or in exactly the content that was written; none in other content, a
traceback or a crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import pytest
import torch
from damage import damages
from small_beton import write_beton

from syno.base.errors import SynoError
from syno.data import DATASETS
from syno.data.beton import BetonRecord, read_record, record_file
from syno.data.language import TokenHeader, map_tokens, write_tokens
from syno.measure.tuning_record import TuningRecord
from syno.measure.tvm.search import RECORDS, WORKLOADS, check_lines, repair, write_checksums
from syno.run.parquet import read_parquet, write_parquet
from syno.stages.search import WorkerRecord
from syno.stages.selection import Selected, read_selected, write_selected
from syno.train.checkpoint import Checkpoint
from syno.train.training_record import TrainingRecord

pytestmark = pytest.mark.slow

CASES = 40  # ten of each kind of damage
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TRAINING = TrainingRecord.model_validate({
    "name": "conv2d", "operator": "operator x", "operator_id": "ab", "workload": {}, "data_hash": "cd", "seed": 0,
    "metric": "accuracy", "score": 0.75, "scores": [0.5, 0.75], "losses": [1.5, 1.25], "stopped": None, "flops": 1e6,
    "parameters": 1000, "cpu_seconds": 2.5, "threads": 1, "device": "cpu", "versions": {"python": "3.11"}, "date": NOW,
})  # fmt: skip
TUNING = TuningRecord.model_validate({
    "name": "conv2d", "operator_id": None, "compiler": "eager", "device": {"kind": "cpu", "name": "one", "threads": 1},
    "subject": {"kind": "network", "model": "resnet8", "classes": 10, "image_shape": [3, 8, 8]}, "settings": {}, "status": "ok",
    "latency_ms": 1.5, "latency_low_ms": 1.4, "latency_high_ms": 1.6, "repeats": 20, "versions": {}, "date": NOW,
})  # fmt: skip
WORKER = WorkerRecord(
    study="quick", worker=1, process="host:1", machine="one", trials=3, finished=8, seconds=2.5, versions={}, date=NOW
)
CHOSEN = [Selected(key=2 * f"{number:06x}", name=f"one_{number}", metrics={"accuracy": 0.5}) for number in range(3)]
TABLE = pandas.DataFrame({
    "key": [f"{number:012x}" for number in range(40)], "score": np.linspace(0, 1, 40), "role": [None, "found"] * 20,
    "ended": pandas.to_datetime(["2026-01-01"] * 40, utc=True),
})  # fmt: skip
STATE = {"weights": torch.arange(500.0), "progress": {"steps": 3, "losses": [0.5, 0.25]}}


class Kind(NamedTuple):
    """A kind of file: what writes it, and what reads it as something that is equal to what was written."""

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]


def _state(file: Path) -> Any:
    found = Checkpoint(file, "mine").read(torch.device("cpu"))
    return found if found is None else (found["weights"].tolist(), found["progress"])


def _prepared(file: Path) -> Any:
    data = DATASETS["cifar100"](folder=file.parent / "none", prepared=file)
    return [data.hash, data.train_images.tolist(), data.train_labels.tolist(), data.test_labels.tolist(), data.augmentation]


def _write_prepared(file: Path) -> None:
    images, labels = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3, 32, 32), np.arange(2)
    arrays = {f"{part}_{name}": value for part in ("train", "test") for name, value in (("images", images), ("labels", labels))}
    more = {"mean": np.full(3, 0.5), "deviation": np.ones(3), "hash": np.array("ab"), "format": np.array(1)}
    with file.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **arrays, **more, made_from=np.array("[]"))


def _write_tokens(file: Path) -> None:
    header = TokenHeader(vocabulary=1000, tokenizer="bytes", tokenizer_hash="ab", made_from="cd")
    write_tokens(file, header, [np.arange(900, dtype=np.uint16)])


KINDS = {
    "training record": Kind(TRAINING.write, TrainingRecord.read),
    "tuning record": Kind(TUNING.write, TuningRecord.read),
    "worker record": Kind(WORKER.write, WorkerRecord.read),
    "selection": Kind(lambda file: write_selected(CHOSEN, file), read_selected),
    "table": Kind(lambda file: write_parquet(TABLE, file), lambda file: read_parquet(file, "syno tables").to_dict("tight")),
    "checkpoint": Kind(lambda file: Checkpoint(file, "mine").write(STATE), _state),
    "beton": Kind(write_beton, read_record),
    "prepared pictures": Kind(_write_prepared, _prepared),
    "tokens": Kind(_write_tokens, lambda file: (map_tokens(file)[0], map_tokens(file)[1].tolist())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_clear_error_or_the_same_content(kind: str, tmp_path: Path) -> None:
    write, read = KINDS[kind]
    file = tmp_path / "the file"
    write(file)
    content, expected = file.read_bytes(), repr(read(file))  # numbers that are none are equal as text
    errors = 0
    for what, other in damages(content, CASES):
        file.write_bytes(other)
        try:
            found = read(file)
        except SynoError as error:
            errors += 1
            assert str(file) in str(error) and "\n" not in str(error), (what, str(error))
        else:
            assert repr(found) == expected, what
    assert errors > CASES / 2


def test_the_record_of_a_beton_file(tmp_path: Path) -> None:
    file = write_beton(tmp_path / "train.beton")
    content, expected = record_file(file).read_bytes(), read_record(file)
    for what, other in damages(content, CASES):
        record_file(file).write_bytes(other)
        try:
            found: BetonRecord | None = read_record(file)
        except SynoError as error:
            assert str(record_file(file)) in str(error) and "\n" not in str(error), what
        else:
            assert found == expected, what


@pytest.mark.parametrize("name", [WORKLOADS, RECORDS])
def test_trials_of_tvm(name: str, tmp_path: Path) -> None:
    """A torn last line is cut off, as it always was; every other damage is one clear error."""
    lines = {
        WORKLOADS: [json.dumps([f"hash{number}", "x" * 40]) for number in range(3)],
        RECORDS: [json.dumps([number % 3, [[0.5 + number, 1.0], {"kind": "llvm"}]]) for number in range(12)],
    }
    written = {one: "".join(f"{line}\n" for line in found).encode() for one, found in lines.items()}
    for what, other in damages(written[name], CASES):
        for one, content in written.items():
            (tmp_path / one).write_bytes(content)
        write_checksums(tmp_path, (WORKLOADS, RECORDS))
        (tmp_path / name).write_bytes(other)
        try:
            check_lines(tmp_path, (WORKLOADS, RECORDS))
            repair(tmp_path)
        except SynoError as error:
            assert str(tmp_path / "database_") in str(error) and "\n" not in str(error), what  # or the one that needs its lines
        else:
            for one, content in written.items():
                assert content.startswith((tmp_path / one).read_bytes()), what
