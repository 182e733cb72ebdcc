"""Every stage that computes on a GPU has one of its own while it does, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pretended_gpus import pretend, uuid
from small_experiment import FIELDS
from typer.testing import CliRunner

from syno.base.gpu_leases import usage
from syno.cli import app
from syno.config import Experiment
from syno.ir.graph import PGraph
from syno.stages.data import prepare
from syno.stages.measurements import measure
from syno.stages.search import search
from syno.stages.train import train, train_baselines
from syno.train.contract import evaluation_of


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment on a machine with two pretended GPUs, one of which is in use."""
    for name, value in pretend(tmp_path, 2).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")  # pretended, too
    workload = {**FIELDS["workload"], "training": {**FIELDS["workload"]["training"], "device": "cuda"}}
    changes = {
        "workload": workload,
        "tune": {**FIELDS["tune"], "devices": ["cpu", "cuda"]},
        "study": {"n_trials": 1, "storage": "memory:"},
    }
    return Experiment(**{**FIELDS, **changes, "output": tmp_path / "out"})


@pytest.fixture
def seen() -> list[tuple[str | None, list[bool]]]:
    """Return a list to which computing functions append CUDA_VISIBLE_DEVICES and which GPUs are in use."""
    return []


@pytest.fixture
def computes(seen: list[tuple[str | None, list[bool]]]) -> Callable[..., Any]:
    def compute(*given: Any, **named: Any) -> Any:
        monkey = os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # to look at all of them
        seen.append((monkey, [bool(holder) for _, holder in usage()]))
        if monkey is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = monkey
        return SimpleNamespace(
            write=lambda file: None, latency_ms=None, status="failed", reason="", name="", compiler="", device=DEVICE
        )

    return compute


DEVICE = SimpleNamespace(name="", kind="cuda")
FIRST = [(uuid(0), [True, False])]


def test_a_training(experiment: Experiment, computes: Any, seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.train.training_record.TrainingRecord.make", computes)
    train(experiment, "original", 1)
    assert seen == FIRST and not any(holder for _, holder in usage())


def test_trainings_one_after_another(experiment: Experiment, computes: Any, seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay with their GPU, also between two trainings."""
    monkeypatch.setattr("syno.train.training_record.TrainingRecord.make", computes)
    trainings = train_baselines(experiment)
    next(trainings)
    assert [bool(holder) for _, holder in usage()] == [True]
    assert len([*trainings]) == 3 and seen == FIRST * 4


def test_the_check_of_the_data(experiment: Experiment, computes: Any, seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.train.trial_step.try_step", computes)
    prepare(experiment)
    assert seen == FIRST


def test_a_search(experiment: Experiment, computes: Any, seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(operator: PGraph, report: object) -> Mapping[str, float]:
        computes()
        return {"accuracy": 0.5}

    monkeypatch.setattr("syno.stages.search.make_evaluation", lambda experiment: evaluation_of(evaluate))
    search(experiment)
    assert seen == FIRST


@pytest.mark.parametrize(("device", "expected"), [("cuda", FIRST), ("cpu", [(None, [False, False])])])
def test_a_measurement(
    device: str, expected: object, experiment: Experiment, computes: Any, seen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syno.measure.tuning.tune", computes)
    record = SimpleNamespace(inputs=None, inputs_to_measure=None, image_shape=(3, 8, 8), classes=2)
    monkeypatch.setattr("syno.stages.measure.look", lambda experiment: record)
    measure("tune", experiment, "original", "eager", device)
    assert seen == expected


@pytest.mark.parametrize("given", ["operator conv1x1 --set C_in=4,C_out=4,H=4", "network original --model resnet8"])
def test_a_measurement_without_an_experiment(
    given: str, experiment: Experiment, computes: Any, seen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syno.measure.tuning.tune", computes)
    done = CliRunner().invoke(app, ["tune", *given.split(), "--device", "cuda:1", "--output", "record.json"])
    assert done.exit_code == 1, done.output
    assert seen == [(f"{uuid(0)},{uuid(1)}", [False, True])]
