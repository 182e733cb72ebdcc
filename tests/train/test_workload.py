"""Workloads, and searches that train in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syno.base.errors import SpecError, SynoError
from syno.config import Experiment, load_experiments
from syno.ir.library import OPERATORS
from syno.ir.rewriting import with_variables
from syno.space import Space
from syno.space.state_graph import check_not_empty
from syno.stages.search import search
from syno.train.contract import FunctionReport, Report
from syno.train.proxy_training import ProxyTraining
from syno.train.settings import WorkloadSettings
from syno.train.workload import Workload

SMALL: dict[str, Any] = {
    "width": 0.25,
    "data_settings": {"preset": "micro", "train": 128, "test": 64},
    "training": {"epochs": 2, "batch": 32},
}
CONFIGS = Path(__file__).parents[2] / "config"


ONE_EPOCH: dict[str, Any] = {**SMALL, "training": {"epochs": 1, "batch": 32}}


def config(**fields: Any) -> Experiment:
    """A search that trains for a moment."""
    return Experiment(
        **{"name": "small", "workload": SMALL, "spec": {"depth": 4, "reads": "none"}, "reward": {"name": "accuracy"}, **fields}
    )


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.of(WorkloadSettings(**SMALL))


def test_the_same_seed_trains_the_same_and_another_does_not(workload: Workload) -> None:
    operator = OPERATORS["conv2d"]()
    first, again, other = workload.train(operator), workload.train(operator), workload.train(operator, seed=1)
    assert first == again
    assert first.losses != other.losses


def test_a_network_and_data_of_ones_own_are_imported(workload: Workload) -> None:
    own = {"model": "syno.model.backbones:resnet8", "data": "syno.data:glyphs"}
    imported = Workload.of(WorkloadSettings(**SMALL, **own))
    assert imported.spec().id == workload.spec({"name": own["model"]}).id
    assert imported.data.hash == workload.data.hash


def test_milestones_end_a_training_early() -> None:
    workload = Workload.of(WorkloadSettings(**SMALL, milestones={1: 1.0}))
    result = workload.train()
    assert len(result.scores) == 1
    assert result.stopped is not None and "after epoch 1 is below 1" in result.stopped


def test_the_spec_costs_what_the_network_costs(workload: Workload) -> None:
    conv2d = with_variables(OPERATORS["conv2d"](), {"k": "k_1"})
    metrics = ProxyTraining(workload, workload.spec())(conv2d, Report())
    assert metrics["flops"] == metrics["original_flops"] == workload.original.flops
    assert metrics["parameters"] == metrics["original_parameters"]
    assert metrics["epochs"] == 2


def test_a_report_that_raises_ends_the_training(workload: Workload) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def report(epoch: int, accuracy: float) -> None:
        raise Stop

    with pytest.raises(Stop):
        ProxyTraining(workload, workload.spec())(with_variables(OPERATORS["conv2d"](), {"k": "k_1"}), FunctionReport(report))


def test_a_config_takes_layers_budget_and_original_from_the_workload(workload: Workload) -> None:
    made = config(relative_budget={"most_flops": 0.6, "most_parameters": 0.5})
    assert made.evaluation == "training"
    assert made.operator_spec.budget.most_flops == 0.6 * workload.original.flops
    assert made.operator_spec.budget.most_parameters == 0.5 * workload.original.parameters
    assert Experiment(**made.model_dump()) == made  # as other processes get it


@pytest.mark.slow
def test_a_search_trains_every_operator_once_and_repeats_exactly(tmp_path: Path) -> None:
    found = []
    for run in ("a", "b"):
        given = {"workload": ONE_EPOCH, "study": {"n_trials": 2}, "policy": {"name": "random"}}
        study = search(config(output=tmp_path / run, **given))
        found.append([(trial.operator.id, trial.metrics["accuracy"]) for trial in study.best(2)])
    assert found[0] == found[1]
    assert len({operator for operator, _ in found[0]}) == 2


@pytest.mark.slow
def test_a_study_of_another_training_is_not_gone_on_with(tmp_path: Path) -> None:
    given: dict[str, Any] = {"output": tmp_path, "study": {"n_trials": 1}, "policy": {"name": "random"}}
    search(config(**given, workload=ONE_EPOCH))
    other = config(**given, workload={**ONE_EPOCH, "seed": 1})
    with pytest.raises(SpecError, match=r"workload\.seed is 0 there, 1 here"):
        search(other)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workload": {"model": "resnet9"}}, "resnet8"),
        ({"workload": {"data": "glyph"}}, "glyphs"),
        ({"workload": {"data_settings": {"presett": "micro"}}}, "presett"),
        ({"workload": {"training": {"epoch": 3}}}, "epoch"),
        ({"spec": "resnet18"}, "leave it out"),
        ({"workload": None, "spec": "resnet18", "relative_budget": {"most_flops": 0.5}}, "relative_budget needs a workload"),
        ({"workload": None, "spec": "resnet18", "evaluate": "training"}, "training needs a workload"),
    ],
)
def test_wrong_settings_are_errors(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SynoError, match=message):
        config(**fields).operator_spec  # noqa: B018


EMBEDDED = ("glyphs", "pydoc")  # what needs no files
SEARCHES = {
    f"{file.name}:{name}": experiment
    for file in sorted(CONFIGS.glob("*.yaml"))
    for name, experiment in load_experiments(file).items()
    if experiment.searches and (experiment.workload is None or experiment.workload.data in EMBEDDED)
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(experiment, id=name, marks=[pytest.mark.slow] if name.startswith("paper-small") else [])
        for name, experiment in SEARCHES.items()
    ],
)
def test_every_config_that_needs_no_files_has_a_space_with_operators(experiment: Experiment) -> None:
    check_not_empty(Space(experiment.operator_spec))
