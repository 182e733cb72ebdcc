"""Tasks of one's own: the examples of docs/tasks.md, their trainings, and what is said of wrong ones."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from itertools import repeat
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import syno
from syno.base import registry
from syno.base.errors import DataError, SpecError, SynoError, UserCodeError
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.search.faults import fault_of
from syno.stages.data import look, prepare
from syno.stages.figures import write_report
from syno.stages.search import search
from syno.stages.select import select
from syno.stages.study import freeze
from syno.stages.tables import make_tables
from syno.stages.take_home import take_network
from syno.stages.top import summary
from syno.stages.train import train as run_training
from syno.train import own_task
from syno.train.metric import ACCURACY, LOSS, METRICS, score_of
from syno.train.own_task import LoaderBatches
from syno.train.progress import Paused, Pruned, TrainingResult
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.training import train
from syno.train.training_record import TrainingRecord
from syno.train.trial_step import try_step
from syno.train.workload import Workload

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
MODULES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
KEYS = {
    "regression": "error (mm, less is better)",
    "multi_label": "F1 (more is better)",
    "segmentation": "IoU (more is better)",
    "audio": "SI-SDR (dB, more is better)",
    "distillation": "agreement (dB, more is better)",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the modules of the page are, which is where the test runs."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_CODE_FOLDERS", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize("name", KEYS)
def test_the_examples_of_the_page_train(name: str, modules: Path) -> None:
    training = {"epochs": 4, "optimizer": "adamw", "learning_rate": 0.03, "train_original": name != "distillation"}
    workload = Workload.of(WorkloadSettings(model=f"{name}:make", task=f"{name}:make_task", training=training))
    assert workload.settings.data == f"{name}:make_task"
    assert try_step(workload) == try_step(workload)
    record = TrainingRecord.make(workload, None, seed=1)
    assert (record.metric, len(record.scores)) == (KEYS[name], 0 if name == "distillation" else 4)
    assert workload.metric.quality(record.score) > workload.metric.quality(workload.chance)
    record.write(modules / "record.json")
    assert TrainingRecord.read(modules / "record.json") == record


def own_fit() -> Workload:
    return Workload.of(
        WorkloadSettings(
            model="own_fit:make",
            fit="own_fit:fit",
            score="own_fit:score",
            metric={"name": "error", "more_is_better": False},
            example_inputs="own_fit:example_inputs",
            milestones={3: 10.0, 4: 1e-9},
        )
    )


def test_a_training_of_ones_own_is_scored_stopped_and_paused(modules: Path) -> None:
    workload, told = own_fit(), list[tuple[str, float]]()

    def pause(number: int, score: float) -> None:
        told.append(("score", number))
        if number == 3:
            raise Paused("for others", 3)

    result = workload.train(recent_loss=lambda step, loss: told.append(("loss", step)), looks=(0.5,))
    assert result.stopped == f"error {result.scores[-1]:.4g} after epoch 4 is above 1e-09"
    assert (result.metric, result.steps, len(result.scores), result.losses) == ("error (less is better)", 4, 4, ())
    assert told == [("loss", one) for one in (0.5, 1, 2, 3, 4)]
    told.clear()
    with pytest.raises(Paused):
        workload.train(report=pause)
    assert [number for _, number in told] == [1, 2, 3]
    assert TrainingRecord.make(workload, None, seed=0).scores == result.scores


def test_a_report_that_a_training_swallows_ends_it_all_the_same() -> None:
    def fit(model: nn.Module, report: Any) -> None:
        try:
            report(1, 0.5)
        except Exception:
            report(2, 0.7)

    def stop(number: int, score: float) -> None:
        raise Pruned("enough")

    task = syno.Task(fit=fit, score=lambda model: 1.0, example_inputs=torch.zeros(1, 2))
    assert train(nn.Linear(2, 2), task, report=stop).stopped == "enough"
    with pytest.raises(UserCodeError, match=r"ValueError: report\(step, score\) was called with step=0"):
        train(nn.Linear(2, 2), syno.Task(fit=lambda model, report: report(0, 1.0), score=lambda model: 1.0))


class Augmented(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that are changed by random numbers of torch, NumPy and Python."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.randn(3) + float(np.random.rand()) + random.random()
        return noise + place, torch.tensor(float(place))


def augmented(**options: Any) -> syno.Task:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(model(batch[0])[:, 0], batch[1])

    loader = DataLoader(Augmented(), batch_size=4, shuffle=True, **options)
    return syno.Task(loader, [(torch.ones(2, 3), torch.ones(2))], loss=loss)


@pytest.mark.parametrize("options", [{}, {"generator": torch.Generator()}], ids=["global numbers", "own generator"])
def test_a_training_that_resumes_within_an_epoch_has_the_same_batches(options: dict[str, Any], tmp_path: Path) -> None:
    settings = TrainingSettings(epochs=2, round_steps=4, learning_rate=1e-3)

    def once(report: Any = None) -> TrainingResult:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1))
        return train(network, augmented(**options), settings, report=report, checkpoint=tmp_path / "state.pt")

    def pause(number: int, score: float) -> None:
        if number == 2:
            raise Paused("for others", 2)

    before = np.random.get_state()[1].tolist(), random.getstate()
    whole = once()
    with pytest.raises(Paused):
        once(pause)
    assert once() == whole
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before
    assert len(set(whole.losses)) == 3


def test_a_micro_batch_makes_the_same_gradients() -> None:
    def once(**settings: Any) -> TrainingResult:
        torch.manual_seed(0)
        return train(nn.Linear(3, 1), augmented(), TrainingSettings(epochs=1, learning_rate=1e-3, **settings))

    assert once(micro_batch=3).losses == pytest.approx(once().losses, rel=1e-5)


def loss_of(given: Any) -> Any:
    return lambda model, batch: given(model(batch))


BATCH = [torch.ones(2, 3)]


class Endless(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[torch.Tensor]:
        return repeat(BATCH[0])


class Shrinking:
    """A loader that makes fewer batches than it says."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(BATCH)


@pytest.mark.parametrize(
    ("task", "error", "said"),
    [
        (lambda: syno.Task(BATCH, BATCH), SpecError, "has no loss; give loss="),
        (lambda: syno.Task(iter(BATCH), BATCH, loss=loss_of(torch.mean)), SpecError, "can be gone through once only"),
        (lambda: syno.Task(BATCH, BATCH, loss=loss_of(torch.square)), UserCodeError, r"a tensor of shape \[2, 1\]; it must be"),
        (lambda: syno.Task(BATCH, BATCH, loss=loss_of(lambda y: y.mean().detach())), UserCodeError, "does not depend on"),
        (
            lambda: syno.Task(BATCH, BATCH, loss=loss_of(lambda y: y.nothing)),
            UserCodeError,
            r"'nothing' \(.*test_own_tasks.py, line",
        ),
        (lambda: syno.Task([3], BATCH, loss=loss_of(torch.mean)), DataError, "an int without a tensor in it"),
        (lambda: syno.Task(BATCH, loss=loss_of(torch.mean), score=lambda model: model), UserCodeError, "it must be one number"),
        (lambda: syno.Task([], BATCH, loss=loss_of(torch.mean)), DataError, "has no batch to train on"),
        (lambda: syno.Task(BATCH, loss=loss_of(torch.mean)), SpecError, "neither a score nor batches to test on"),
        (
            lambda: syno.Task(Endless(), BATCH, loss=loss_of(torch.mean)),
            SpecError,
            "train has no length, and more than 50 batches",
        ),
        (
            lambda: syno.Task(BATCH, Endless(), loss=loss_of(torch.mean)),
            SpecError,
            "test has no length, and more than 50 batches",
        ),
        (
            lambda: syno.Task(Shrinking(), BATCH, loss=loss_of(torch.mean)),
            UserCodeError,
            "made 1 batches in epoch 1",
        ),
    ],
)
def test_wrong_tasks_are_said_in_a_line(task: Any, error: type[SynoError], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_task, "MOST_BATCHES", 50)
    with pytest.raises(error, match=said) as raised:
        train(nn.Linear(3, 1), task(), TrainingSettings(epochs=1))
    assert "\n" not in str(raised.value)
    assert fault_of(raised.value).kind == "function" or error is DataError  # the machine is not to blame


def test_a_stream_without_an_end_is_trained_on_for_a_number_of_steps() -> None:
    task = syno.Task(Endless(), BATCH, loss=loss_of(torch.mean))
    result = train(nn.Linear(3, 1), task, TrainingSettings(epochs=3, most_steps=4))
    assert (result.steps, len(LoaderBatches(task, 0, torch.device("cpu"), most_steps=4))) == (4, 4)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": "a:b", "data": "glyphs"}, "data and task both say"),
        ({"fit": "a:b"}, "fit needs score and example_inputs"),
        ({"score": "a:b"}, "score is for a training of your own"),
        ({"task_settings": {"a": 1}}, "give task, or data_settings"),
        ({"metric": {"name": "F1 (macro)"}, "fit": "a:b"}, "a name has no brackets"),
        ({"weights": "a.pt", "training": {"initialization": "paper-everywhere"}}, "draws them anew; give another"),
    ],
)
def test_settings_that_do_not_go_together(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        WorkloadSettings(**fields)


def test_settings_are_equal_when_they_are_read_again() -> None:
    for fields in ({"task": "a:b", "task_settings": {"n": 1}}, {"fit": "a:b", "score": "a:c", "example_inputs": "a:d"}):
        settings = WorkloadSettings(**fields)
        assert WorkloadSettings(**settings.model_dump()) == settings


# ---- metrics ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [ACCURACY, LOSS, syno.Metric("IoU"), syno.Metric("a b", "m/s", more_is_better=False)])
def test_a_key_says_what_a_metric_is(metric: syno.Metric) -> None:
    assert METRICS[metric.key] == metric
    names = ["flops", f"original_{metric.key}", f"chance_{metric.key}", "value (dB)"]
    assert (score_of(names), score_of([*names, metric.key])) == (None, metric.key)


def test_the_score_of_a_broken_training_is_the_worst() -> None:
    network = nn.Linear(3, 1)
    nn.init.constant_(network.weight, inf)
    task = syno.Task(BATCH, BATCH, loss=loss_of(torch.mean), score=lambda model: 0.5, metric=syno.Metric("IoU"))
    result = train(network, task, TrainingSettings(epochs=1))
    assert (result.broken, result.score) == (True, -inf)


# ---- trained weights -------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "width": 0.25,
    "data_settings": {"preset": "micro", "train": 64, "test": 32},
    "training": {"epochs": 1, "batch": 32},
}


@pytest.fixture(scope="module")
def trained() -> dict[str, torch.Tensor]:
    """The weights of a network that another seed made."""
    return {
        name: tensor.clone() for name, tensor in Workload.of(WorkloadSettings(**SMALL, seed=5)).model().state_dict().items()
    }


def saved(state: dict[str, torch.Tensor], file: Path) -> str:
    if file.suffix == ".safetensors":
        save_file(state, file)
    else:
        torch.save(state, file)
    return str(file)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_a_network_begins_with_given_weights_and_the_original_is_only_scored(
    name: str, trained: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    file = saved(trained, tmp_path / name)
    workload = Workload.of(WorkloadSettings(**SMALL, weights=file))
    kept = tmp_path / "kept.safetensors"
    record = TrainingRecord.make(workload, None, seed=3, weights=kept)
    assert (record.scores, record.losses, record.weights is not None) == ((), (), True)
    assert record.score == TrainingRecord.make(workload, None, seed=4).score
    changed = workload.network(OPERATORS["conv2d"](), seed=3).state_dict()
    stayed = [name for name in changed if name in trained and torch.equal(changed[name], trained[name])]
    assert "stem.conv.weight" in stayed or len(stayed) > len(trained) / 2
    own = WorkloadSettings(**SMALL | {"training": {**SMALL["training"], "train_original": True}}, weights=file)
    assert len(TrainingRecord.make(Workload.of(own), None, seed=3).scores) == 1
    assert Workload.of(WorkloadSettings(**SMALL)).hash != workload.hash


def test_recipes_draw_no_given_weights_anew(trained: dict[str, torch.Tensor], tmp_path: Path) -> None:
    training = {**SMALL["training"], "initialization": "paper"}
    given = WorkloadSettings(**SMALL | {"training": training}, weights=saved(trained, tmp_path / "w.pt"))
    drawn = WorkloadSettings(**SMALL | {"training": training})
    stays, anew = (Workload.of(one).network(None, 0).state_dict() for one in (given, drawn))
    assert all(torch.equal(stays[name], trained[name]) for name in trained)
    assert not all(torch.equal(anew[name], trained[name]) for name in trained)


def test_a_module_whose_weights_are_drawn_anew_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="draws all weights of the network anew"):
        syno.Training(nn.Linear(3, 1), augmented(), initialization="paper-everywhere")


def test_weights_of_another_network_are_said_in_one_message(trained: dict[str, torch.Tensor], tmp_path: Path) -> None:
    names = list(trained)
    wrong = {name: tensor for name, tensor in trained.items() if name != names[0]} | {"extra": torch.zeros(1)}
    wrong[names[-1]] = torch.zeros(7)
    file = saved(wrong, tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"1 missing \(.*; 1 not in the network \(extra\); 1 of another shape \(") as raised:
        Workload.of(WorkloadSettings(**SMALL, weights=file)).model()
    assert names[0] in str(raised.value)
    assert names[-1] in str(raised.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: None, "cannot be read: No such file"),
        (lambda file: file.write_bytes(b"nothing"), "holds no tensors only"),
        (lambda file: torch.save(nn.Linear(2, 2), file), "torch.save(model.state_dict(), FILE)"),
        (lambda file: torch.save({"epoch": 3}, file), "a mapping with 'epoch', a int; it must be a state dict"),
    ],
)
def test_files_that_hold_no_weights(make: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / "w.pt"
    make(file)
    with pytest.raises(DataError, match=re.escape(said)):
        Workload.of(WorkloadSettings(**SMALL, weights=str(file))).model()


def test_checkpoints_of_parallel_trainings_are_taken(trained: dict[str, torch.Tensor], tmp_path: Path) -> None:
    state = {"epoch": 3, "state_dict": {f"module.{name}": tensor for name, tensor in trained.items()}}
    torch.save(state, tmp_path / "w.pt")
    network = Workload.of(WorkloadSettings(**SMALL, weights=str(tmp_path / "w.pt"))).model().state_dict()
    assert all(torch.equal(network[name], trained[name]) for name in trained)


# ---- what stays as it was --------------------------------------------------------------------------------------------

OF_TRAINING = (
    '"most_minutes":null,"most_epoch_seconds":null,"round_steps":null,"most_tests":null,"batch":32,"optimizer":"sgd",'
    '"learning_rate":0.1,"schedule":"one-cycle","final_learning_rate":0.0,"peak_epoch":2.0,"momentum":0.9,"betas":[0.9,0.95],'
    '"weight_decay":0.0005,"decay":"all","label_smoothing":0.0,"clip":null,"initialization":"fan-in","score":"last",'
    '"flip_tests":false,"precision":"float32","tf32":false,"compile":false,"channels_last":true,"threads":1'
)
OF_WORKLOAD = (
    '{"model":"resnet8","width":0.25,"layers":"spatial","data":"glyphs","data_settings":{"preset":"micro","train":64,"test":32},'
    f'"training":{{"recipe":"quick","device":"cpu","epochs":1,"most_steps":null,{OF_TRAINING}}},"milestones":{{}},"seed":0}}'
)


TEXT: dict[str, Any] = {
    **{"model": "gpt_tiny", "width": 0.5, "layers": "paper", "data": "pydoc", "data_settings": {"length": 16}},
    "training": {"recipe": "quick-text", "most_steps": 1, "most_tests": 4, "batch": 4},
}
OF_TEXT = (
    '{"model":"gpt_tiny","width":0.5,"layers":"paper","data":"pydoc","data_settings":{"length":16},"training":{'
    '"recipe":"quick-text","device":"cpu","epochs":2,"most_steps":1,"most_minutes":null,"most_epoch_seconds":null,'
    '"round_steps":null,"most_tests":4,"batch":4,"optimizer":"adamw","learning_rate":0.003,"schedule":"one-cycle",'
    '"final_learning_rate":0.0,"peak_epoch":2.0,"momentum":0.9,"betas":[0.9,0.95],"weight_decay":0.1,"decay":"matrices",'
    '"label_smoothing":0.0,"clip":1.0,"initialization":"fan-in","score":"last","flip_tests":false,"precision":"float32",'
    '"tf32":false,"compile":false,"channels_last":true,"threads":1},"milestones":{},"seed":0}'
)
OF_DATA = (
    "data hash classes train_images test_images image_shape label_shape length model placed layers layers_that_stay "
    "layers_with_bias table time_shares flops attention_flops not_counted parameters shared_memory fixed_weights majority "
    "majority_label rest_flops rest_parameters versions date"
)
OF_RECORD = (
    "name operator operator_id workload data_hash seed metric score scores losses curve_steps curve_minutes curve_losses "
    "stopped micro_batch int8_score weights initial_weights flops parameters cpu_seconds threads device versions date"
)


@pytest.mark.parametrize(
    ("workload", "settings", "name", "metric", "ids", "costs"),
    [
        (
            *(SMALL, OF_WORKLOAD, "conv1x1", "accuracy"),
            ("a5772c7f4bec477b64e35fdace2eed54", "98a369a6245f39b5933ddac5cdc5f107"),
            (52320, 1050),
        ),
        (
            *(TEXT, OF_TEXT, "gpt2_projection", "loss"),
            ("7f4b786b91c81fadc740d06d16d04389", "f81dbdad60eb0be1c9a706ba912c470b"),
            (970752, 71328),
        ),
    ],
    ids=["classification", "text"],
)
def test_records_are_as_before_there_were_tasks(
    workload: dict[str, Any],
    settings: str,
    name: str,
    metric: str,
    ids: tuple[str, str],
    costs: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = {f"topic{n}": f"Topic {n}: the rest of {n} by 7 is {n % 7}.\n\n" * 3 for n in range(20)}
    monkeypatch.setattr("pydoc_data.topics.topics", texts)  # Python's own differ from version to version
    data = look(Experiment(name="small", workload=workload))
    assert " ".join(data.model_dump(mode="json")) == OF_DATA and data.hash == ids[1]
    operator = OPERATORS[name]().renamed(name, **({"g": 4} if metric == "loss" else {}))
    record = TrainingRecord.make(Workload.of(WorkloadSettings(**workload)), operator, 0)
    assert " ".join(record.model_dump(mode="json")) == OF_RECORD and record.workload.model_dump_json() == settings
    assert (record.name, record.operator_id, record.data_hash) == (name, *ids)
    assert (record.metric, record.flops, record.parameters) == (metric, *costs)
    assert (ACCURACY.key, LOSS.key) == ("accuracy", "loss")


@pytest.mark.slow
def test_a_regression_of_two_inputs_from_the_search_to_the_page(modules: Path) -> None:
    experiment = Experiment(
        name="regression",
        workload={
            "model": "regression:make",
            "task": "regression:make_task",
            "task_settings": {"samples": 64},
            "training": {"epochs": 1, "optimizer": "adamw", "learning_rate": 0.01},
        },
        spec={"depth": 5, "reads": "none"},
        goal={"lose_at_most": 5.0, "most_parameters": 1.5, "find": "most_accurate"},
        study={"n_trials": 1},
        select={"count": 1},
        train={"seeds": [1]},
        tune={"compilers": []},
    )
    assert prepare(experiment).metric == KEYS["regression"]
    search(experiment)
    freeze(experiment)
    (chosen,) = select(experiment)
    for key in ("original", chosen.key):
        run_training(experiment, key, 1)
    run = make_tables(experiment)
    rows = {row["operator"]: row for row in summary(run)}
    assert "error (mm)" in rows["original"]
    assert [*rows] == [name for name in rows if name in ("original", chosen.name)]
    assert "at most 5 mm of the error lost" in run.answer[0]
    assert re.search(r"one seed: no interval of the error\): error [+-][\d.]+ mm; 0\.\d\d of the parameters", run.answer[1])
    text = write_report(experiment, None).read_text(encoding="utf-8")
    assert "error (mm)" in text
    assert "accuracy" not in text.partition("<style")[0]
    lines = take_network(experiment, chosen.name)
    assert re.search(r"error [\d.]+ on the test data, as recorded", lines[0])
