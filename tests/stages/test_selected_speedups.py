"""The speedups of selected operators are measured again after the selection, and verdicts are about these measurements."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from result_tables import latency_table
from small_experiment import FIELDS
from typer.testing import CliRunner

from syno.base.errors import DeviceError, SpecError
from syno.base.interval import Interval
from syno.cli import app
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.measure import measuring_process
from syno.measure.timing import median_interval
from syno.run.goal import judged_networks
from syno.run.speedups import IN_SEARCH, IN_TURNS
from syno.run.story import SELECTED_BY, reason
from syno.run.table import latencies_in
from syno.run.values import Score
from syno.search.goal import Goal
from syno.stages.places import SELECTED, speedups_file
from syno.stages.results import StoredRun
from syno.stages.selection import Selected, write_selected
from syno.stages.speedups import SelectedSpeedups, measure_selected, selected_speedups, speedups_of
from syno.stages.store import OperatorStore
from syno.stages.workflow_stages import jobs

STAND_IN = Path(__file__).parents[1] / "support" / "speedup_stand_in.py"
IN_THE_SEARCH = {"speedup": 3.0, "speedup_low": 2.9, "speedup_high": 3.1}
TWICE = Interval(2.0, 1.9, 2.1)  # what the stand-in measures


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """A search with a goal, of which nothing is there yet."""
    monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-S", str(STAND_IN)))
    monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("SYNO_MEASURED", str(tmp_path / "log"))
    monkeypatch.chdir(tmp_path)
    goal = {"speedup": 1.5, "compiler": "eager"}
    rest = {name: value for name, value in FIELDS.items() if name not in ("reward", "policy")}
    return Experiment.model_validate({**rest, "goal": goal})


def selected(experiment: Experiment, *operators: str) -> list[str]:
    """Select operators by speedups of the search, which the store of all experiments has; returns their keys."""
    with speedups_of(experiment, "eager", "cpu") as speedups:
        for name in operators:
            speedups.of(OPERATORS[name]())
    keys = [OperatorStore(experiment.folder).add(OPERATORS[name]()) for name in operators]
    chosen = [Selected(key=key, name=name, metrics=IN_THE_SEARCH) for key, name in zip(keys, operators, strict=True)]
    write_selected(chosen, experiment.folder / SELECTED)
    return keys


def measured(folder: Path) -> list[str]:
    return (folder / "log").read_text(encoding="utf-8").split()


def test_they_are_measured_again_whatever_the_search_has_stored_and_then_kept(experiment: Experiment, tmp_path: Path) -> None:
    keys = selected(experiment, "conv2d", "conv1x1")
    Path("small.yaml").write_text(yaml.safe_dump(experiment.model_dump(mode="json")), encoding="utf-8")
    shown = CliRunner().invoke(app, ["tune", "selected", "small.yaml"])
    assert shown.exit_code == 0 and shown.stdout.count("2.000 times as fast (95 % in 1.900 to 2.100)") == 2
    assert measured(tmp_path) == ["conv2d", "conv1x1"] * 2
    assert list(measure_selected(experiment).speedups) == list(selected_speedups(experiment)) == keys
    assert len(measured(tmp_path)) == 4
    assert list(jobs(experiment)["speedup"]) == [speedups_file(experiment, "eager", "cpu")]


@pytest.mark.slow
def test_an_interruption_costs_the_measurement_in_progress(experiment: Experiment, tmp_path: Path) -> None:
    selected(experiment, "conv2d", "conv1x1")
    with pytest.MonkeyPatch.context() as patched, pytest.raises(DeviceError, match="original network alone"):
        patched.setenv("SYNO_DYING", "original")
        store = OperatorStore(experiment.folder)
        dying = store.add(OPERATORS["low_rank_conv2d"]().renamed("dies"))
        chosen = [Selected(key=store.add(OPERATORS["conv2d"]()), name="conv2d", metrics={})]
        write_selected([*chosen, Selected(key=dying, name="dies", metrics={})], experiment.folder / SELECTED)
        measure_selected(experiment)
    before = len(measured(tmp_path))
    keys = selected(experiment, "conv2d", "conv1x1")
    assert list(measure_selected(experiment).speedups) == keys and measured(tmp_path)[before:] == ["conv1x1"]


def test_verdicts_are_about_what_was_measured_again_and_say_if_it_was_not(experiment: Experiment) -> None:
    (key,) = selected(experiment, "conv2d")
    latencies = latencies_in(latency_table(("conv2d",)).assign(key=lambda rows: rows["operator"].replace("conv2d", key)))
    (searched,) = StoredRun(experiment, _unjudged=[], latencies=latencies).judged
    assert (searched.speedup.value, searched.timed) == (3.0, IN_SEARCH) and reason(searched).endswith(SELECTED_BY)
    measure_selected(experiment)
    (again,) = StoredRun(experiment, _unjudged=[], latencies=latencies).judged
    assert again.speedup == TWICE and again.timed == IN_TURNS and "3.00" not in reason(again)


def test_a_record_of_another_operator_or_without_a_goal_is_one_clear_error(experiment: Experiment) -> None:
    selected(experiment, "conv2d")
    record = measure_selected(experiment)
    wrong = SelectedSpeedups(speedups={"0" * 12: next(iter(record.speedups.values()))})
    wrong.write(speedups_file(experiment, "eager", "cpu"))
    with pytest.raises(SpecError, match="record of conv2d .*, not of 0{12}; delete it and run `syno tune selected`"):
        selected_speedups(experiment)
    with pytest.raises(SpecError, match="has no goal for which latencies are measured"):
        measure_selected(experiment.model_copy(update={"goal": None}))


def coverage(again: bool, searches: int = 200, operators: int = 80) -> float:
    """The share of searches in which the interval of the verdict on the fastest of equal operators contains its speedup.

    A round's ratio has an error of 3 %, and there are 20 rounds.
    """
    draw, true, covered = random.Random(0), 1.5, 0
    goal, scores = Goal(speedup=1.2), [Score("one", "found", "k", "accuracy", parameters_share=0.3)]

    def measurement() -> Interval:
        return median_interval([true * draw.lognormvariate(0, 0.03) for _ in range(20)])

    for _ in range(searches):
        best = max((measurement() for _ in range(operators)), key=lambda one: one.value)
        metrics: Mapping[str, float] = {"speedup": best.value, "speedup_low": best.low, "speedup_high": best.high}
        fresh = measurement()
        spans = {"k": fresh} if again else {}
        (judged,) = judged_networks(goal, scores, [], {"k": metrics}, again=spans)
        covered += judged.speedup.low <= true <= judged.speedup.high
    return covered / searches


@pytest.mark.slow
def test_the_interval_of_the_fastest_of_eighty_equal_operators_contains_its_speedup() -> None:
    assert coverage(again=False) < 0.8
    assert coverage(again=True) > 0.93
