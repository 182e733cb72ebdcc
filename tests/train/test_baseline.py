"""`syno baseline` trains what operators are compared with, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from syno.cli import app
from syno.train.training_record import TrainingRecord

FIELDS = {
    "workload": {
        "width": 0.25,
        "data_settings": {"preset": "micro", "train": 64, "test": 32},
        "training": {"epochs": 1, "batch": 32},
    },
    "train": {"seeds": [3, 4], "baselines": ["separable_conv2d"]},
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(yaml.safe_dump({"experiments": {"one": FIELDS, "other": {**FIELDS}}}), encoding="utf-8")
    return "small.yaml:one"


def baseline(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["baseline", *arguments])


def records() -> dict[str, TrainingRecord]:
    folder = Path("results/small/one/train")
    return {str(file.relative_to(folder)): TrainingRecord.read(file) for file in sorted(folder.rglob("*.json"))}


def test_all_are_trained_with_every_seed_and_only_once(config: str) -> None:
    lines = baseline(config).stdout.splitlines()
    made = records()
    assert list(made) == [f"{name}/seed{seed}.json" for name in ("original", "separable_conv2d") for seed in (3, 4)]
    assert [line.partition(",")[0] for line in lines] == [
        f"{one.name}: accuracy {one.score:.4f} with seed {one.seed}" for one in made.values()
    ]
    assert all(line.endswith("CPU-seconds") for line in lines)

    again = baseline(config)
    assert [line.partition(",") for line in again.stdout.splitlines()] == [
        (line.partition(",")[0], ",", " trained before") for line in lines
    ]
    assert records() == made  # dates and all


def test_only_what_is_named_with_the_seed_that_is_given(config: str) -> None:
    assert len(baseline(config, "separable_conv2d", "--seed", "9").stdout.splitlines()) == 1
    assert list(records()) == ["separable_conv2d/seed9.json"]


def test_a_name_that_is_no_baseline_is_said_before_anything_is_trained(config: str) -> None:
    result = baseline(config, "original", "seperable_conv2d")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert 'experiment "one" has no baseline "seperable_conv2d"; there are: original, separable_conv2d.' in line
    assert 'Did you mean "separable_conv2d"? Others are added under train: baselines' in line
    assert not Path("results").exists()
