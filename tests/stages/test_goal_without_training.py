"""A goal of a search without training: verdicts are on what was measured, and prefer what was timed in turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from result_tables import latency_table

from syno.config import load_experiment
from syno.run.table import latencies_in
from syno.run.values import Score
from syno.search.goal import Goal
from syno.stages.results import StoredRun
from syno.stages.selection import Selected, Selection, write_selected

CONFIG = Path(__file__).parents[2] / "config" / "faster-resnet18.yaml"
KEY = "0123456789ab"


def test_a_goal_is_in_the_unit_of_the_score_also_where_nothing_is_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment(CONFIG).model_copy(update={"goal": Goal(lose_at_most=5.0)})
    write_selected([], experiment.folder / "selected.json", "none is complete")
    scores = [Score("original", "original", "original", "error (mm, less is better)")]
    assert "at most 5 mm of the error lost" in StoredRun(experiment, _unjudged=scores, scores=scores).answer[0]


@pytest.mark.parametrize(
    ("searched", "expected"), [({}, 2.05), ({"speedup": 1.7, "speedup_low": 1.6, "speedup_high": 1.8}, 1.7)]
)
def test_what_was_measured_is_judged(
    searched: dict[str, float], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    latencies = latencies_in(
        latency_table(("operator_1",)).assign(key=lambda rows: rows["operator"].replace("operator_1", KEY))
    )
    goal = Goal(speedup=1.5, compiler="inductor", device="cpu")
    experiment = load_experiment(CONFIG).model_copy(update={"goal": goal})
    assert StoredRun(experiment, _unjudged=[], latencies=[]).answer == ()
    selection = Selection(selected=(Selected(key=KEY, name="operator_1", metrics=searched),))
    run = StoredRun(experiment, _unjudged=[], latencies=latencies, selection=selection)
    (judged,) = run.judged
    assert judged.state == "meets" and judged.speedup.value == pytest.approx(expected, abs=0.01)
    assert run.answer[1].startswith(f"operator_1 meets: {expected:.2f} times as fast")
