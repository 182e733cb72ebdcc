"""What the workflow finds out before it plans jobs: which experiments are asked for, and that their sources are there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from syno.base.errors import SpecError
from syno.config import Experiment, load_experiments
from syno.stages.selection import write_selected
from syno.stages.targets import asked_for, check_source, stages_asked_for
from syno.stages.workflow.process import asks_for_other_machines
from syno.stages.workflow_stages import STAGES

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


def test_of_an_experiment_that_others_need_only_the_stages_of_its_tables_are_asked_for(
    experiments: dict[str, Experiment],
) -> None:
    found = stages_asked_for(experiments, ["third"])
    assert found["third"] == set(STAGES) and set(found) == {"first", "second", "third"}
    assert found["first"] == found["second"] == set(STAGES) - {"figure", "report", "headlines", "join", "ablate"}
    assert stages_asked_for(experiments, []) == {name: set(STAGES) for name in ("first", "second", "third")}


@pytest.mark.parametrize(
    ("local", "cores", "is_main", "elsewhere"),
    [
        (True, 2, True, False),
        (False, None, True, True),
        (False, 1, True, True),  # a dry run for a cluster
        (False, 8, True, True),
        (True, None, True, False),
        (False, 4, False, False),  # a job on a node
        (None, 2, True, False),  # of a program that calls Snakemake
        (None, None, True, True),
    ],
)
def test_the_executor_that_was_asked_for_says_where_jobs_run(
    local: bool | None, cores: int | None, is_main: bool, elsewhere: bool
) -> None:
    workflow = SimpleNamespace(is_main_process=is_main, resource_settings=SimpleNamespace(cores=cores))

    def args_to_api() -> bool:
        executor_plugin = SimpleNamespace(common_settings=SimpleNamespace(local_exec=local))
        assert executor_plugin
        return asks_for_other_machines(workflow)

    assert (asks_for_other_machines(workflow) if local is None else args_to_api()) == elsewhere


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
