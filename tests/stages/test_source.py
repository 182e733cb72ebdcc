"""Experiments that take the operators of another one instead of searching."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas
import pytest

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.config.stages import TuneSettings
from syno.ir.library import OPERATORS
from syno.run.parquet import write_parquet
from syno.stages import fastest, figures
from syno.stages.data import prepare
from syno.stages.fastest import Measured
from syno.stages.figures import write_report
from syno.stages.opening import keep_config
from syno.stages.select import select, shortlist
from syno.stages.selection import Selected, read_selected, read_selection, why_none, write_selected
from syno.stages.store import OperatorStore
from syno.stages.tables import make_tables
from syno.stages.top import top
from syno.stages.train import train

OPERATOR_NAMES = ("conv2d", "conv1x1", "separable_conv2d")
SCORES = {"original": 0.80, "conv2d": 0.795, "conv1x1": 0.60, "separable_conv2d": 0.81}


def finished(folder: Path, scores: Mapping[str, float] = SCORES, metric: str = "accuracy") -> dict[str, str]:
    """A folder of results with a selection and its scores; returns the names by key."""
    keys = {name: OperatorStore(folder).add(OPERATORS[name]()) for name in OPERATOR_NAMES}
    chosen = [
        Selected(key=keys[name], name=name, trial=number, reward=1 - number / 10, metrics={metric: 0.5})
        for number, name in enumerate(OPERATOR_NAMES)
    ]
    write_selected(chosen, folder / "selected.json")
    rows = [{"key": keys.get(name, name), "metric": metric, "score": score} for name, score in scores.items()]
    write_parquet(pandas.DataFrame(rows, columns=["key", "metric", "score"]), folder / "tables" / "scores.parquet")
    return {key: name for name, key in keys.items()}


def taking(tmp_path: Path, **settings: object) -> Experiment:
    return Experiment(
        name="taking", workload={}, select={"source": tmp_path / "source", **settings}, output=tmp_path / "taking"
    )


def test_the_best_come_first_and_are_in_the_store(tmp_path: Path) -> None:
    finished(tmp_path / "source")
    experiment = taking(tmp_path)
    chosen = select(experiment)
    assert [one.name for one in chosen] == ["separable_conv2d", "conv2d", "conv1x1"]
    assert read_selected(experiment.folder / "selected.json") == chosen
    for one in chosen:
        assert OperatorStore(experiment.folder).get(one.key).id == OPERATORS[one.name]().id
    assert chosen[0].trial == 2 and chosen[0].metrics == {"accuracy": 0.5}  # as in the search


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"count": 1}, ["separable_conv2d"]),
        ({"within": 0.01}, ["separable_conv2d", "conv2d"]),
        pytest.param({"within": 0.0}, ["separable_conv2d"], marks=pytest.mark.slow),
        pytest.param({"within": 0.01, "count": 1}, ["separable_conv2d"], marks=pytest.mark.slow),
    ],
)
def test_only_so_many_and_only_so_good_ones_are_taken(settings: dict[str, object], names: list[str], tmp_path: Path) -> None:
    finished(tmp_path / "source")
    assert [one.name for one in select(taking(tmp_path, **settings))] == names


def test_a_front_is_of_the_scores_in_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_key = finished(tmp_path / "source")
    experiment, latencies = taking(tmp_path, by="front"), {"conv2d": 2.0, "conv1x1": 1.0, "separable_conv2d": 3.0}
    assert [one.name for one in shortlist(experiment)] == ["separable_conv2d", "conv2d", "conv1x1"]
    by_latency = Measured(("eager", "cpu"), {key: latencies[name] for key, name in by_key.items()}, None)
    monkeypatch.setattr(fastest, "measured", lambda experiment, names: [by_latency])
    assert [one.name for one in select(experiment)] == ["conv1x1", "conv2d", "separable_conv2d"]
    with pytest.raises(SpecError, match="no operator of .*source has flops; measure latencies"):
        select(taking(tmp_path, by="front").model_copy(update={"tune": TuneSettings(compilers=())}))


@pytest.mark.slow
def test_a_loss_is_the_better_the_less_it_is(tmp_path: Path) -> None:
    finished(tmp_path / "source", {"original": 5.85, "conv2d": 5.9, "conv1x1": 5.7, "separable_conv2d": 6.4}, "loss")
    assert [one.name for one in select(taking(tmp_path, within=0.1))] == ["conv1x1", "conv2d"]
    assert [one.name for one in select(taking(tmp_path))] == ["conv1x1", "conv2d", "separable_conv2d"]


def test_what_was_not_trained_is_left_out(tmp_path: Path) -> None:
    finished(tmp_path / "source", {"conv1x1": 0.5})
    assert [one.name for one in select(taking(tmp_path))] == ["conv1x1"]


@pytest.mark.slow
def test_what_was_taken_can_be_taken_again(tmp_path: Path) -> None:
    finished(tmp_path / "source")
    select(taking(tmp_path, within=0.01))
    (tmp_path / "taking" / "tables").mkdir()
    (tmp_path / "source" / "tables" / "scores.parquet").rename(tmp_path / "taking" / "tables" / "scores.parquet")
    third = Experiment(name="third", workload={}, select={"source": tmp_path / "taking"}, output=tmp_path / "third")
    assert [one.name for one in select(third)] == ["separable_conv2d", "conv2d"]


class TestErrors:
    def test_a_source_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match=r"source/selected.json cannot be read: .*`syno select` makes it"):
            select(taking(tmp_path))

    def test_a_source_without_tables(self, tmp_path: Path) -> None:
        finished(tmp_path / "source")
        (tmp_path / "source" / "tables" / "scores.parquet").unlink()
        with pytest.raises(SpecError, match=r"source/tables/scores.parquet is not there; `syno tables` makes it"):
            select(taking(tmp_path))

    @pytest.mark.parametrize(
        ("scores", "message"),
        [
            ({}, "has no row"),
            ({"original": 0.8}, "none of those that were selected there is in .*scores.parquet"),
            ({"conv2d": 0.8}, "compares with the original network, .*`syno baseline`"),
            ({"original": 0.8, "conv2d": float("nan")}, "none of those that were selected there is in"),
        ],
    )
    def test_a_source_without_a_good_operator(self, scores: dict[str, float], message: str, tmp_path: Path) -> None:
        finished(tmp_path / "source", scores)
        with pytest.raises(SpecError, match=message):
            select(taking(tmp_path, within=0.01))
        assert not (tmp_path / "taking").exists()

    def test_that_none_is_good_enough_is_a_result_here_and_where_it_is_the_source(self, tmp_path: Path) -> None:
        finished(tmp_path / "source", {"original": 0.8, "conv2d": 0.7, "conv1x1": 0.6})
        assert select(taking(tmp_path, within=0.01)) == []
        reason = str(why_none(read_selection(tmp_path / "taking" / "selected.json")))
        assert "is 0.8000, the operators' are conv2d 0.7000, conv1x1 0.6000, and " in reason
        write_selected([], tmp_path / "source" / "selected.json", "nothing meets the goal")
        assert select(taking(tmp_path)) == []
        assert "has selected no operator: nothing meets the goal" in str(
            why_none(read_selection(tmp_path / "taking" / "selected.json"))
        )

    def test_a_source_that_lost_an_operator(self, tmp_path: Path) -> None:
        finished(tmp_path / "source")
        for file in (tmp_path / "source" / "operators").iterdir():
            file.unlink()
        with pytest.raises(SpecError, match="source/operators has no operator"):
            select(taking(tmp_path))


class TestAnOperatorThatDoesNotFit:
    """Channels of a quarter of resnet8's do not divide into the groups of operator_1."""

    message = r"^select: source: operator_1: operator_1 does not fit layer .*; take another operator, another width, or other"

    def source_with(self, operator: str, tmp_path: Path) -> Experiment:
        key = OperatorStore(tmp_path / "source").add(OPERATORS[operator]())
        write_selected([Selected(key=key, name=operator, metrics={})], tmp_path / "source" / "selected.json")
        row = {"key": key, "metric": "accuracy", "score": 0.9}
        write_parquet(pandas.DataFrame([row]), tmp_path / "source" / "tables" / "scores.parquet")
        return self.taking(tmp_path)

    def taking(self, tmp_path: Path, **settings: object) -> Experiment:
        workload = {"width": 0.25, "data_settings": {"preset": "micro", "train": 64, "test": 32}, **settings}
        return Experiment(name="t", workload=workload, select={"source": tmp_path / "source"}, output=tmp_path / "t")

    def test_is_refused_with_the_data(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match=self.message):
            prepare(self.source_with("operator_1", tmp_path))
        assert not (tmp_path / "t").exists()

    def test_is_refused_by_the_selection_if_the_source_was_made_after_the_data(self, tmp_path: Path) -> None:
        prepare(self.taking(tmp_path))
        with pytest.raises(SpecError, match=self.message):
            select(self.source_with("operator_1", tmp_path))
        assert not (tmp_path / "t" / "selected.json").exists()

    def test_another_one_is_taken(self, tmp_path: Path) -> None:
        experiment = self.source_with("conv1x1", tmp_path)
        prepare(experiment)
        assert [one.name for one in select(experiment)] == ["conv1x1"]

    def test_selecting_runs_no_own_network(self, tmp_path: Path) -> None:
        experiment = self.source_with("operator_1", tmp_path)
        assert experiment.workload is not None
        own = experiment.workload.model_copy(update={"model": "no_such_module:network"})
        assert [one.name for one in select(experiment.model_copy(update={"workload": own}))] == ["operator_1"]


@pytest.mark.slow
def test_figures_and_the_page_need_no_trials(tmp_path: Path) -> None:
    finished(tmp_path / "source")
    small = {
        "width": 0.25,
        "data_settings": {"preset": "micro", "train": 64, "test": 32},
        "training": {"epochs": 1, "batch": 32},
    }
    choice = {"source": tmp_path / "source", "count": 1}
    experiment = Experiment(
        name="small", workload=small, select=choice, train={"seeds": [1]}, tune={"compilers": []}, output=tmp_path / "small"
    )
    (one,) = select(experiment)
    for key in ("original", one.key):
        train(experiment, key, 1)
    make_tables(experiment)
    assert figures.names(experiment) == ("score-flops", "learning")
    drawn = figures.draw(experiment, "score-flops")[0].read_text(encoding="utf-8")
    assert f"experiment small, with operators of {tmp_path / 'source'}" in drawn
    page = write_report(experiment).read_text(encoding="utf-8")
    assert "separable_conv2d" in page and "There are no trials." in page
    assert "separable_conv2d" in top(str(keep_config(experiment)), 5)
