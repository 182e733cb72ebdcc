"""Records of trainings, and the table that compares them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from syno.cli import app
from syno.errors import SpecError
from syno.evaluate.settings import WorkloadSettings
from syno.evaluate.training_record import TrainingRecord
from syno.evaluate.workload import Workload
from syno.ir.library import OPERATORS
from syno.report.accuracy import accuracy_rows

SMALL: dict[str, Any] = {
    "width": 0.25,
    "data_settings": {"preset": "micro", "train": 128, "test": 64},
    "training": {"epochs": 1, "batch": 32},
}


@pytest.fixture(scope="module")
def original() -> TrainingRecord:
    return TrainingRecord.make(Workload.of(WorkloadSettings(**SMALL)), None, 0)


@pytest.fixture(scope="module")
def separable() -> TrainingRecord:
    return TrainingRecord.make(Workload.of(WorkloadSettings(**SMALL)), OPERATORS["separable_conv2d"](), 0)


def changed(record: TrainingRecord, **fields: Any) -> TrainingRecord:
    return record.model_copy(update=fields)


def test_a_record_says_what_was_trained(original: TrainingRecord, separable: TrainingRecord) -> None:
    assert (original.name, original.operator) == ("original", None)
    assert separable.operator_id == OPERATORS["separable_conv2d"]().id
    assert separable.flops < original.flops
    assert separable.parameters < original.parameters
    assert len(original.accuracies) == 1
    assert original.accuracy == original.accuracies[-1]


def test_a_record_is_read_as_it_was_written(original: TrainingRecord, tmp_path: Path) -> None:
    original.write(tmp_path / "deep" / "record.json")
    assert TrainingRecord.read(tmp_path / "deep" / "record.json") == original
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["record.json"]


@pytest.mark.parametrize("content", ["", "{", '{"name": "x"}', "[]"])
def test_a_broken_record_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SpecError, match=r"broken\.json holds no training record"):
        TrainingRecord.read(file)


def test_the_table_has_mean_and_spread_best_first(original: TrainingRecord, separable: TrainingRecord) -> None:
    records = [changed(separable, seed=seed, accuracy=accuracy) for seed, accuracy in enumerate((0.5, 0.6, 0.7))]
    first, second = accuracy_rows([changed(original, accuracy=0.4), *records])
    assert (first["operator"], first["accuracy"], first["std. dev."], first["seeds"]) == ("separable_conv2d", 0.6, 0.1, 3)
    assert (second["of original"], second["std. dev."]) == (1, None)
    assert first["of original"] == round(separable.flops / original.flops, 3)


def test_a_seed_counts_once(original: TrainingRecord) -> None:
    (row,) = accuracy_rows([original, original])
    assert row["seeds"] == 1


def test_other_workloads_do_not_compare(original: TrainingRecord) -> None:
    with pytest.raises(SpecError, match="different workloads"):
        accuracy_rows([original, changed(original, data_hash="0")])


class TestCommands:
    def test_train_and_compare(self, tmp_path: Path) -> None:
        config = tmp_path / "small.yaml"
        config.write_text(f"workload: {json.dumps(SMALL)}\nreward: {{name: accuracy}}\nspec: {{depth: 4}}\n", encoding="utf-8")
        for operator in ("original", "conv2d"):
            result = CliRunner().invoke(app, ["train", str(config), operator, "--output", str(tmp_path / f"{operator}.json")])
            assert result.exit_code == 0, result.output
            assert f"{operator}: accuracy" in result.stdout
        files = [str(tmp_path / "original.json"), str(tmp_path / "conv2d.json")]
        shown = CliRunner().invoke(app, ["accuracy", *files, "--output", str(tmp_path / "table.csv")])
        assert shown.exit_code == 0, shown.output
        assert {"original", "conv2d"} <= {word for line in shown.stdout.splitlines() for word in line.split()}
        assert (tmp_path / "table.csv").read_text(encoding="utf-8").startswith("operator,accuracy,")

    def test_a_config_without_a_workload_is_refused(self, tmp_path: Path) -> None:
        config = tmp_path / "plain.yaml"
        config.write_text("spec: resnet18\noriginal: {flops: 1, parameters: 1}\n", encoding="utf-8")
        result = CliRunner().invoke(app, ["train", str(config), "original", "--output", str(tmp_path / "r.json")])
        assert result.exit_code == 2
        assert "has no workload" in result.stderr
