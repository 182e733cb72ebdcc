"""Records of trainings, and the command that makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.ir.library import OPERATORS
from syno.train.progress import TrainingProgress
from syno.train.settings import WorkloadSettings
from syno.train.training_record import TrainingRecord
from syno.train.workload import Workload

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


def test_a_record_says_what_was_trained(original: TrainingRecord, separable: TrainingRecord) -> None:
    assert (original.name, original.operator) == ("original", None)
    assert separable.operator_id == OPERATORS["separable_conv2d"]().id
    assert separable.flops < original.flops
    assert separable.parameters < original.parameters
    assert len(original.scores) == 1
    assert original.score == original.scores[-1]


def test_a_record_has_the_loss_curve(original: TrainingRecord, tmp_path: Path) -> None:
    """A file need not have one."""
    assert original.curve_steps == (1, 2, 3, 4) and len(original.curve_minutes) == 4
    assert sum(original.curve_losses) / 4 == pytest.approx(original.losses[0], abs=1e-5)
    content = json.loads(original.model_dump_json())
    for name in ("curve_steps", "curve_minutes", "curve_losses"):
        del content[name]
    (tmp_path / "without.json").write_text(json.dumps(content), encoding="utf-8")
    assert TrainingRecord.read(tmp_path / "without.json").curve_steps == ()


def test_a_curve_has_few_points_whatever_the_steps() -> None:
    progress = TrainingProgress()
    progress.add(range(1001), seconds=6006.0)
    steps, minutes, losses = zip(*progress.curve, strict=True)
    assert (len(steps), steps[:2], steps[-1]) == (334, (3, 6), 1001)
    assert (losses[0], losses[-1]) == (1.0, 999.5)  # of three steps, and of the last two
    assert (minutes[0], minutes[-1]) == (0.3, 100.1)


def test_a_record_is_read_as_it_was_written(original: TrainingRecord, tmp_path: Path) -> None:
    original.write(tmp_path / "deep" / "record.json")
    assert TrainingRecord.read(tmp_path / "deep" / "record.json") == original
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["record.json"]


def test_the_same_result_leaves_the_file_as_it_is(original: TrainingRecord, tmp_path: Path) -> None:
    original.write(tmp_path / "record.json")
    original.model_copy(update={"cpu_seconds": 1e6}).write(tmp_path / "record.json")
    assert TrainingRecord.read(tmp_path / "record.json") == original


def test_another_result_replaces_it(original: TrainingRecord, tmp_path: Path) -> None:
    original.write(tmp_path / "record.json")
    other = original.model_copy(update={"score": 0.5})
    other.write(tmp_path / "record.json")
    assert TrainingRecord.read(tmp_path / "record.json") == other


@pytest.mark.parametrize("content", ["", "{", '{"name": "x"}', "[]"])
def test_a_broken_record_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SpecError, match=r"broken\.json holds no training record"):
        TrainingRecord.read(file)


class TestCommands:
    def test_the_command_train_writes_records(self, tmp_path: Path) -> None:
        config = tmp_path / "small.yaml"
        config.write_text(
            f"workload: {json.dumps(SMALL)}\nreward: {{name: accuracy}}\nspec: {{depth: 4, reads: none}}\n", encoding="utf-8"
        )
        for operator in ("original", "conv2d"):
            result = CliRunner().invoke(app, ["train", str(config), operator, "--output", str(tmp_path / f"{operator}.json")])
            assert result.exit_code == 0, result.output
            assert f"{operator}: accuracy" in result.stdout

    def test_a_config_without_a_workload_is_refused(self, tmp_path: Path) -> None:
        config = tmp_path / "plain.yaml"
        config.write_text("spec: resnet18\noriginal: {flops: 1, parameters: 1}\n", encoding="utf-8")
        result = CliRunner().invoke(app, ["train", str(config), "original", "--output", str(tmp_path / "r.json")])
        assert result.exit_code == 2
        assert "has no workload" in result.stderr
