"""CPU hours in a plan: unknown before anything was timed, then from the times of trials and trainings."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import pytest

from syno.config import Experiment
from syno.results.parquet import write_parquet
from syno.stages.assumptions import Assumptions
from syno.stages.places import FROZEN, ORIGINAL_TRAINING, training_file
from syno.stages.plan import WorkflowPlan, plan
from syno.stages.plan_text import WHY_UNKNOWN, plan_text
from syno.train.settings import WorkloadSettings
from syno.train.training_record import TrainingRecord

HOURS = 3600.0


def experiment(folder: Path, **changes: Any) -> Experiment:
    """A search of 10 operators on a processor, of which 2 are trained again, with 2 seeds, beside the original network."""
    fields: dict[str, Any] = {
        "workload": {"training": {"epochs": 4}}, "study": {"n_trials": 10}, "select": {"count": 2}, "output": folder,
        "train": {"seeds": [1, 2]}, "reward": {"name": "accuracy"},
    }  # fmt: skip
    return Experiment(name="small", **{**fields, **changes})


def hours(found: WorkflowPlan) -> tuple[float | None, float | None]:
    """Of the search, and of the trainings after it."""
    of = {stage.rule: stage.cpu_hours for stage in found.stages}
    return of["worker"], of["train"]


def timed(folder: Path, seconds: dict[str, list[float]]) -> None:
    """Trials of a search that took so many seconds, by how they ended."""
    given = [(outcome, one) for outcome, several in seconds.items() for one in several]
    rows = [
        {"number": number, "outcome": outcome, "reward": 0.5, "operator": "", "seconds": one}
        for number, (outcome, one) in enumerate(given)
    ]
    write_parquet(pandas.DataFrame(rows), folder / FROZEN)


def trained(file: Path, hours: float, **changes: Any) -> None:
    TrainingRecord(
        name="original", operator=None, operator_id=None, workload=WorkloadSettings(training={"epochs": 4, **changes}),
        data_hash="ab", seed=1, metric="accuracy", score=0.5, scores=(0.5,), losses=(1.0,), stopped=None, flops=1.0,
        parameters=1, cpu_seconds=hours * HOURS, threads=1, device="cpu", versions={}, date=datetime(2026, 1, 1, tzinfo=UTC),
    ).write(file)  # fmt: skip


def test_before_anything_was_timed_they_are_unknown_and_the_plan_says_so(tmp_path: Path) -> None:
    found = plan(experiment(tmp_path))
    assert hours(found) == (None, None) and list(tmp_path.iterdir()) == []
    text = plan_text([found], Assumptions())
    assert WHY_UNKNOWN in text and "| search   | small | unknown |" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| worker ")]
    assert [cell.strip() for cell in row.split("|")][3:5] == ["0", "unknown"]


def test_trials_that_were_timed_tell_both(tmp_path: Path) -> None:
    timed(tmp_path, {"complete": [3 * HOURS, HOURS], "failed": [0.0], "paused": [0.4 * HOURS], "screened": [0.6 * HOURS] * 2})
    found = plan(experiment(tmp_path))
    assert hours(found) == (pytest.approx(10 * 5.6 / 4), pytest.approx(6 * 2))
    text = plan_text([found], Assumptions())
    assert "unknown" not in text and "| search   | small |    14 |         300 |" in text


def test_a_training_with_other_epochs_is_scaled_and_one_that_differs_in_more_is_unknown(tmp_path: Path) -> None:
    timed(tmp_path, {"complete": [HOURS]})
    for training, expected in (
        ({"epochs": 12}, 6 * 3),
        ({"epochs": 4, "batch": 7}, None),
        ({"epochs": 8, "most_steps": 9}, None),
    ):
        again = experiment(tmp_path, train={"seeds": [1, 2], "training": training})
        assert hours(plan(again))[1] == (None if expected is None else pytest.approx(expected))


def test_the_trial_of_a_goal_also_measures_so_the_originals_training_tells(tmp_path: Path) -> None:
    timed(tmp_path, {"complete": [5 * HOURS]})
    goal = experiment(tmp_path, goal={"speedup": 1.5})
    assert hours(plan(goal)) == (50.0, None)
    trained(tmp_path / ORIGINAL_TRAINING, 2)
    assert hours(plan(goal)) == (50.0, pytest.approx(12))


def test_trainings_of_these_settings_come_first(tmp_path: Path) -> None:
    one = experiment(tmp_path)
    trained(tmp_path / ORIGINAL_TRAINING, 2)
    trained(training_file(one, "original", 1), 3)
    trained(training_file(one, "original", 2), 9, epochs=5)
    assert hours(plan(one)) == (None, pytest.approx(18))


def test_on_a_gpu_and_where_operators_are_only_counted_there_are_none(tmp_path: Path) -> None:
    assert hours(plan(experiment(tmp_path, workload={"training": {"epochs": 4, "device": "cuda"}}))) == (0, 0)
    counted = Experiment(
        name="counted", spec={"preset": "resnet18"}, evaluate="cost", original={"flops": 2e11, "parameters": 1e7}
    )
    assert [stage.cpu_hours for stage in plan(counted).stages] == [0] * len(plan(counted).stages)
