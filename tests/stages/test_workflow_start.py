"""What the workflow finds out before it plans jobs: which experiments are asked for, and that their sources are there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from syno.base.errors import SpecError
from syno.config import Experiment, load_experiments
from syno.stages.selection import write_selected
from syno.stages.workflow import asked_for, before_planning, check_source

GROUP = {
    "name": "group",
    "common": {"workload": {}, "reward": {"name": "accuracy", "low": 0.0}},
    "experiments": {"first": {}, "second": {"select": {"source": "first"}}, "third": {"select": {"source": "second"}}},
}


@pytest.fixture
def experiments() -> dict[str, Experiment]:
    return {str(one.folder): one for one in load_experiments(GROUP).values()}


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ([], ["first", "second", "third"]),
        (["first"], ["first"]),
        (["second"], ["first", "second"]),
        (["third"], ["first", "second", "third"]),
        (["first", "results/group/second/report.html"], ["first", "second", "third"]),  # it is not known what that takes
    ],
)
def test_an_experiment_is_asked_for_with_those_whose_operators_it_takes(
    targets: list[str], names: list[str], experiments: dict[str, Experiment]
) -> None:
    assert [one.name for one in asked_for(experiments, targets)] == names


def test_a_source_is_an_experiment_or_a_folder_that_is_there(
    experiments: dict[str, Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results that were finished do not make up for it."""
    monkeypatch.chdir(tmp_path)
    for one in experiments.values():
        check_source(one, experiments)
    second = experiments["results/group/second"]
    Path("results/group/second").mkdir(parents=True)
    write_selected([], Path("results/group/second/selected.json"))
    with pytest.raises(
        SpecError, match=r'"second": select: source: results/group/first is neither .*first/selected\.json is not'
    ):
        check_source(second, [])
    write_selected([], Path("results/group/first/selected.json"))
    check_source(second, [])


def test_snakemake_is_given_something_to_do_before_it_plans() -> None:
    done: list[str] = []
    workflow = SimpleNamespace(executor_plugin="local", _prepare_dag=lambda force: done.append(f"plan {force}"))
    before_planning(workflow, lambda: done.append("look"))
    workflow._prepare_dag(force=True)
    workflow.executor_plugin = None  # as for --summary and --unlock
    workflow._prepare_dag(force=False)
    assert done == ["look", "plan True", "plan False"]
    before_planning(SimpleNamespace(), lambda: done.append("look"))  # another version of Snakemake
    assert len(done) == 3
