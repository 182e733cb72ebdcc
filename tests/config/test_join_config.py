"""Experiments of joined results, of named operators and of latencies alone: what a config may say, and what is an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from syno.base.errors import SpecError
from syno.config import Experiment, load_experiments, make_experiment
from syno.paper.experiments import JoinSettings, role_of
from syno.stages.figures import names
from syno.stages.workflow_stages import jobs, keys

SHAPES: Mapping[str, Any] = {"workload": {"model": "resnet18", "data": "shapes"}, "train": {"seeds": []}}
GROUP: Mapping[str, Any] = {
    "name": "group",
    "common": {"workload": {"model": "resnet8"}, "select": {"count": 2}},
    "experiments": {
        "published": {"artifact": "data"},
        "small-a": {},
        "small-b": {"select": {"source": "published"}, "output": "mine"},
        "figures": {"join": {"of": "all", "proxy": ["small-*"]}},
        "more": {"join": {"of": ["figures", "results/elsewhere"]}},
    },
}


def loaded(**experiments: Any) -> dict[str, Experiment]:
    return load_experiments({**GROUP, "experiments": {**GROUP["experiments"], **experiments}})


def test_names_are_folders_and_all_are_those_that_join_nothing() -> None:
    found = loaded()
    assert found["figures"].join.of == (Path("results/group/published"), Path("results/group/small-a"), Path("mine"))
    assert found["more"].join.of == (Path("results/group/figures"), Path("results/elsewhere"))


def test_a_join_neither_searches_nor_trains_and_has_the_papers_figures() -> None:
    figures = loaded()["figures"]
    assert not isinstance(figures, Experiment) and not figures.searches
    assert "figure-10" in names(figures)
    assert list(jobs(figures)) == ["join", "headlines", "figure", "report"]
    with pytest.raises(SpecError, match="of joined results"):
        figures.storage  # noqa: B018


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ({"of": ["figures"]}, "cannot be joined with itself"),
        ({"of": ["more"]}, "leads back to itself: figures joins more joins figures"),
        ({"of": ["smal-a"]}, 'is called "smal-a"; .*Did you mean "small-a"'),
        ({"of": []}, "give all, or a list of experiments in this file and folders of results"),
        ({"of": "published"}, None),  # one name in place of a list
        ({}, "join.of: is missing"),
        ({"of": "all", "proxy": ["larg-*"]}, 'join: proxy: no experiment that is joined is called "larg-\\*"; there are: publ'),
        ({"of": "all", "proxy": ["small-*"], "final": ["*-b"]}, '"small-b" is of both proxy and final'),
        ({"of": "all", "sources": []}, "there is no such option; there are: of, proxy, final, paper"),
    ],
)
def test_what_cannot_be_joined_is_one_error(join: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert loaded(figures={"join": join})["figures"].join is not None
        return
    with pytest.raises(SpecError, match=f'experiment "figures": .*{message}'):
        loaded(figures={"join": join})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"join": {"of": ["out"]}, "train": {"seeds": [1]}}, "of joined results has no train"),
        ({"join": {"of": ["out"]}, "artifact": "data"}, "of published data has no join"),
        ({"join": {"of": "all"}}, "the other experiments in the same file, and there is none"),
        (
            {**SHAPES, "select": {"operators": ["operator_1"], "within": 0.1, "source": "out"}},
            "operators are all taken, so source",
        ),
        ({"spec": {"preset": "resnet18"}, "select": {"operators": ["operator_1"]}}, "select: operators needs a workload"),
        ({**SHAPES, "select": {"operators": ["operator_1"]}, "train": {"seeds": [1]}}, '"shapes" has no pictures to train on'),
        (SHAPES, '"shapes" has no pictures to train on'),  # the search would train
    ],
)
def test_options_that_exclude_each_other(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_experiment({"name": "one", **fields})


def test_no_operator_is_selected_from_joined_results() -> None:
    with pytest.raises(SpecError, match='select: source: "figures" is of joined results'):
        loaded(again={"select": {"source": "figures"}})


def test_named_operators_are_no_search_and_all_are_taken() -> None:
    given = {"operators": ["operator_1", {"operator": "operator_2", "rename": {"k_1": "k"}}], "count": 1}
    experiment = Experiment(name="one", **SHAPES, select=given)
    assert not experiment.searches and not experiment.trains
    assert len(keys(experiment)) == 3  # with the original
    with pytest.raises(SpecError, match=r"takes named operators \(select: operators\)"):
        experiment.storage  # noqa: B018


def test_latencies_alone_have_neither_trainings_nor_figures_of_scores() -> None:
    experiment = Experiment(name="one", **SHAPES, select={"operators": ["operator_1"]}, tune={"compilers": ["eager"]})
    assert names(experiment) == ("speedup",)
    assert {stage: len(files) for stage, files in jobs(experiment).items()} == {
        **{"data": 1, "select": 1, "tune": 2, "tables": 1, "figure": 1, "report": 1},
    }


def test_settings_of_earlier_versions_stay_valid() -> None:
    """Or selections and studies that were made before these options would be made again."""
    experiment = Experiment(name="a", workload={"model": "resnet8"})
    assert "join" not in experiment.part("search") and "operators" not in experiment.part("select")


def test_roles_follow_from_patterns() -> None:
    settings = JoinSettings(of=["a"], proxy=["small-*"], final=["large-*", "other"])
    assert [role_of(name, settings) for name in ("small-x", "other", "published")] == ["proxy", "final", None]
