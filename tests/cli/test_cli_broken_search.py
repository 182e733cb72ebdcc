"""`syno search` and `syno worker` where the set-up is broken: one line, an exit code that is not 0, and no trial spent."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_lines import Run, one_line
from small_experiment import FIELDS
from torch import nn

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.data import DATASETS
from syno.model.backbones import BACKBONES
from syno.search.study import Study
from syno.stages.study import study_table

QUICK = {"n_trials": 3, "storage": "journal"}
COUNTING = {"spec": "small.yaml", "policy": {"name": "random"}, "reward": {"name": "accuracy"}, "study": QUICK}


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's with evaluations."""
    (folder / "own.py").write_text(
        "import errno\nfrom syno.base.errors import DataError\n"
        "def full(operator, report): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "def gone(operator, report): raise DataError('data/x.npy is not there; copy it again')\n"
        "def buggy(operator, report): return {}['acuracy']\n"
        "def sound(operator, report): return {'accuracy': 0.6}\n",
        encoding="utf-8",
    )
    monkeypatch.setattr("sys.path", [*sys.path])  # `imported` adds the folder
    monkeypatch.setattr("syno.search.study.time.sleep", lambda seconds: None)
    sys.modules.pop("own", None)


def config(folder: Path, **fields: Any) -> Experiment:
    """Write mine.yaml; returns the experiment."""
    (folder / "mine.yaml").write_text(json.dumps({"name": "mine", **fields}), encoding="utf-8")
    return Experiment(**{"name": "mine", **fields})


def last_line(run: Run, *arguments: str, code: int = 2) -> str:
    """The error, after the lines on progress."""
    *progress, line = run(*arguments, code=code).stderr.splitlines()
    assert line.startswith("error: ") and all(other.startswith("mine: ") for other in progress)
    return line


@pytest.mark.parametrize(
    ("command", "evaluate", "message"),
    [
        ("search", "full", "its machine failed: OSError: [Errno 28] No space left on device"),
        ("worker", "full", "its machine failed: OSError: [Errno 28] No space left on device"),
        ("search", "gone", "its machine failed: data/x.npy is not there; copy it again"),
        ("worker", "buggy", "and none has succeeded; the last: KeyError: 'acuracy' (own.py, line 5)"),
    ],
)
def test_a_broken_search_stops_with_the_reason_and_goes_on_when_mended(
    run: Run, folder: Path, own: None, command: str, evaluate: str, message: str
) -> None:
    experiment = config(folder, **COUNTING, evaluate=f"own:{evaluate}")
    assert message in last_line(run, command, "mine.yaml", code=75 if evaluate == "full" else 2)  # 75: a new attempt may help
    assert not set(study_table(experiment).outcome) & {"failed", "complete"}
    config(folder, **COUNTING, evaluate="own:sound")
    run(command, "mine.yaml")
    assert (study_table(experiment).outcome == "complete").sum() == 3


@pytest.mark.slow
def test_a_broken_search_of_several_workers_ends_in_one_line(
    run: Run, folder: Path, own: None, capfd: pytest.CaptureFixture[str]
) -> None:
    config(folder, **{**COUNTING, "study": {"n_trials": 3}}, evaluate="own:buggy")  # in SQLite
    last_line(run, "search", "mine.yaml", "--workers", "2")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("command", ["search", "worker"])
def test_a_device_that_is_not_there_is_refused_before_the_first_trial(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    config(folder, **{**FIELDS, "name": "mine", "workload": {**FIELDS["workload"], "training": {"device": "cuda"}}})
    assert 'training.device is "cuda", but PyTorch finds no GPU here; take the device cpu' in one_line(
        run(command, "mine.yaml", code=2)
    )
    assert not (folder / "results").exists()


@pytest.mark.parametrize("number", [".inf", ".nan", "0"])
def test_costs_of_the_original_are_numbers(run: Run, folder: Path, number: str) -> None:
    text = f"spec: small.yaml\noriginal: {{flops: {number}, parameters: 1600}}\n"
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    assert "original.flops: Input should be" in one_line(run("search", "mine.yaml", code=2))


@pytest.mark.parametrize("study", [{"grace_seconds": 1e-300}, {"heartbeat_seconds": 100}, {"grace_seconds": 119}])
def test_no_worker_loses_its_trial_between_two_signs_of_life(study: dict[str, float]) -> None:
    with pytest.raises(SpecError, match="a worker that lives would lose its trial; give at least twice as many grace_seconds"):
        Experiment(name="mine", spec="resnet18", original={"flops": 1e9, "parameters": 1e6}, study=study)
    with pytest.raises(SpecError, match="a worker that lives would lose its trial"):
        Study(None, space_id="", name="mine", **study)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("study.grace_seconds", {"study": {"grace_seconds": float("inf")}}),
        ("reward: maximum", {"reward": {"name": "loss", "maximum": float("inf")}}),
        ("workload.training.learning_rate", {**FIELDS, "workload": {"training": {"learning_rate": float("inf")}}}),
    ],
)
def test_other_settings_are_finite_too(name: str, fields: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=rf"{name}: Input should be a finite number; given: inf"):
        Experiment(**{"name": "mine", "spec": "resnet18", "original": {"flops": 1e9, "parameters": 1e6}, **fields})


def outputs_missing(*, classes: int, **more: Any) -> nn.Module:
    return BACKBONES["resnet8"](classes=2, **more)


def labels_off(**settings: Any) -> Any:
    data = DATASETS["glyphs"](**settings)
    return replace(data, train_labels=data.train_labels + 1)


def float64_data(**settings: Any) -> Any:
    data = DATASETS["glyphs"](**settings)
    return replace(data, train_images=data.train_images.double())


@pytest.mark.parametrize(
    ("model", "data", "message", "outcomes"),
    [
        (outputs_missing, DATASETS["glyphs"], "none has succeeded; the last: the network's output", ["withdrawn"] * 2),
        (BACKBONES["resnet8"], labels_off, "train_labels is from 1 to 6; with 6 classes", None),
        (BACKBONES["resnet8"], float64_data, "train_images is float64; it must be float32", None),
    ],
)
def test_a_workload_that_cannot_be_trained(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, model: Any, data: Any, message: str, outcomes: list[str] | None
) -> None:
    """A network is tried with two operators; data is refused before there is a study."""
    monkeypatch.setitem(BACKBONES._entries, "mine", model)
    monkeypatch.setitem(DATASETS._entries, "mine", data)
    workload = {**FIELDS["workload"], "model": "mine", "data": "mine"}
    experiment = config(folder, **{**FIELDS, "name": "mine", "workload": workload, "study": QUICK})
    assert message in last_line(run, "search", "mine.yaml")
    if outcomes is None:
        with pytest.raises(SpecError, match='there is no study "mine"'):
            study_table(experiment)
    else:
        assert list(study_table(experiment).outcome) == outcomes


@pytest.mark.slow
def test_settings_that_were_corrected_are_taken(run: Run, folder: Path) -> None:
    """A learning rate at which nothing learns, say; after a success the difference is named."""
    fields = {**FIELDS, "name": "mine", "study": {"n_trials": 2, "storage": "journal"}}
    broken = {**FIELDS["workload"], "training": {"epochs": 1, "batch": 32, "learning_rate": 1e30}}
    config(folder, **{**fields, "workload": broken})
    assert "all 2 trials failed; the last: training" in last_line(run, "search", "mine.yaml")
    experiment = config(folder, **fields)
    said = run("search", "mine.yaml").stderr.splitlines()[0]
    assert said.startswith('warning: study "mine"')
    assert said.endswith("no trial has succeeded with those it had: workload.training.learning_rate is 1e+30 there, 0.1 here")
    assert sorted(study_table(experiment).outcome) == ["complete"] * 2 + ["withdrawn"] * 2
    kept = (folder / "results/mine/experiment.yaml").read_text(encoding="utf-8")
    config(folder, **{**fields, "workload": broken})
    line = one_line(run("search", "mine.yaml", code=2))
    assert "other settings: workload.training.learning_rate is 0.1 there, 1e+30 here. Trial" in line and len(line) < 400
    assert (folder / "results/mine/experiment.yaml").read_text(encoding="utf-8") == kept


def test_what_is_wrong_with_an_experiment_is_a_line_of_a_dry_run_too(run: Run, folder: Path) -> None:
    (folder / "mine.yaml").write_text("name: mine\nstudy: {grace_seconds: 1}\n", encoding="utf-8")
    assert "would lose its trial" in one_line(run("run", "mine.yaml", "-n", code=2))
    assert "quickstar is no file; Syno brings the experiments " in one_line(run("data", "quickstar", code=2))
