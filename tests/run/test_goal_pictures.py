"""Figures of a search with a goal: scores against speedups with the goal's corner, and rewards over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from result_tables import (
    BEGAN,
    SPEEDUP_COLUMNS,
    latency_table,
    results,
    score_table,
    scores_in,
    speedups_in,
    trial_table,
)

from syno.base.interval import Interval
from syno.config import Experiment
from syno.report import trade_off
from syno.report.page import page
from syno.report.result_figures import pictures
from syno.report.search_time import elapsed, time_figure
from syno.run.goal import judged_networks
from syno.run.speedups import APART, BY_LAYERS, IN_TURNS, known_speedups
from syno.run.table import latencies_in, trials_in
from syno.run.values import Score, Speedup, TimedPart, Trial
from syno.search.goal import Goal
from syno.stages.goal import reward_at_goal

GOAL = Goal(speedup=1.5, lose_at_most=0.02, compiler="inductor", device="cpu")
ROWS = [  # of one network with both compilers
    ("operator_1", "op1", "found", "cpu", "eager", 1.2, 1.0, 1.5, APART, False),
    ("operator_1", "op1", "found", "cpu", "inductor", 1.6, 1.55, 1.7, IN_TURNS, False),
]
SPEEDUPS = pandas.DataFrame(ROWS, columns=list(SPEEDUP_COLUMNS))


def speed_figure(scores: pandas.DataFrame, speedups: pandas.DataFrame, goal: Goal | None = None) -> Figure:
    return trade_off.speed_figure(scores_in(scores), speedups_in(speedups), results(scores=scores).metric, goal)


def panels(figure: Figure) -> dict[str, Axes]:
    return {axes.get_title(): axes for axes in figure.axes}


def corner(axes: Axes) -> Rectangle | None:
    return next((patch for patch in axes.patches if isinstance(patch, Rectangle)), None)


def scored(metric: str = "accuracy") -> pandas.DataFrame:
    """Scores, of which that of operator_1 has an interval that is not symmetric around its difference."""
    table = score_table(metric=metric)
    table.loc[table["operator"] == "operator_1", ["difference", "difference_low", "difference_high"]] = [-0.01, -0.03, 0.02]
    return table


class TestSpeedFigure:
    @pytest.mark.parametrize("metric", ["accuracy", "loss"])
    def test_the_corner_is_at_the_limits_of_the_goal_in_the_panel_of_its_compiler(self, metric: str) -> None:
        found = panels(speed_figure(scored(metric), SPEEDUPS, GOAL))
        axes = found["inductor on cpu"]
        box, original = corner(axes), score_table(metric=metric)["score"][0]
        assert box is not None and corner(found["eager on cpu"]) is None
        assert box.get_x() == 1.5 and box.get_x() + box.get_width() == pytest.approx(axes.get_xlim()[1])
        low, high = axes.get_ylim()
        expected = (original - 0.02, high) if metric == "accuracy" else (low, original + 0.02)
        assert (box.get_y(), box.get_y() + box.get_height()) == pytest.approx(expected)
        assert any(text.get_text().startswith("goal: 1.5 times as fast") for text in axes.texts)

    def test_bars_are_the_intervals_of_the_tables(self) -> None:
        """The vertical bar is the interval of the difference from the original's score."""
        axes = panels(speed_figure(scored(), SPEEDUPS))["inductor on cpu"]
        score = scored().set_index("operator").loc["operator_1", "score"]
        lines = [segment for bars in axes.collections for segment in getattr(bars, "get_segments", list)()]
        assert any(np.allclose(line, [[1.55, score], [1.7, score]]) for line in lines)
        assert any(np.allclose(line, [[1.6, score - 0.02], [1.6, score + 0.03]]) for line in lines)
        assert corner(axes) is None and {"original", "operator_1"} <= {text.get_text() for text in axes.texts}
        points = [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_marker() == "D" and len(line.get_xdata())]
        assert points == [(1.0, score_table()["score"][0])]

    def test_intervals_beyond_what_an_accuracy_can_be_are_cut_off(self) -> None:
        wide = scored()
        wide.loc[wide["operator"] == "operator_1", ["difference_low", "difference_high"]] = [-1.5, 1.5]
        low, high = panels(speed_figure(wide, SPEEDUPS))["inductor on cpu"].get_ylim()
        assert -0.5 < low < 0 and 1 < high < 1.5

    def test_a_goal_without_a_speed_has_a_band_and_one_without_limits_has_nothing(self) -> None:
        axes = panels(speed_figure(scored(), SPEEDUPS, GOAL.model_copy(update={"speedup": None})))["inductor on cpu"]
        band = corner(axes)
        assert band is not None and band.get_x() == axes.get_xlim()[0]
        assert corner(panels(speed_figure(scored(), SPEEDUPS, Goal(find="front")))["inductor on cpu"]) is None

    def test_a_figure_without_speedups_says_so(self) -> None:
        (axes,) = speed_figure(scored(), SPEEDUPS.iloc[:0], GOAL).axes
        assert "No operator has both a score and a speedup" in axes.texts[0].get_text()

    @pytest.mark.slow
    def test_the_page_has_the_figure(self) -> None:
        given = results(speedups=SPEEDUPS, goal=GOAL)
        html = page(given, pictures(given, ["score-speedup", "search-time"]))
        assert "Accuracy against speedup" in html and "Search over time" in html and "in the shaded corner" in html


class TestSpeedups:
    """A speedup that was timed in turns is used instead of a ratio of two latencies."""

    @staticmethod
    def view(judged: Sequence[Score] = (), parts: Sequence[TimedPart] = ()) -> dict[tuple[str, str], Speedup]:
        latencies = latencies_in(latency_table().assign(key=lambda table: table["operator"]))
        return {(one.key, one.compiler): one for one in known_speedups(latencies, GOAL, judged, parts)}

    def test_a_speedup_of_two_latencies_has_ratios_of_opposite_ends(self) -> None:
        found, latency = self.view()["operator_1", "eager"], latency_table().set_index(["operator", "compiler"])
        own, original = latency.loc[("operator_1", "eager")], latency.loc[("original", "eager")]
        assert found.timed == APART and found.ratio.value == pytest.approx(original["latency_ms"] / own["latency_ms"])
        assert found.ratio.low == pytest.approx(original["latency_low_ms"] / own["latency_high_ms"])
        assert ("shift_conv1x1", "inductor") not in self.view()  # it failed

    def test_layers_count_before_latencies_and_the_verdict_for_the_goals_compiler(self) -> None:
        names = ("operator_1", "operator_1", "found")
        parts = [TimedPart(*names, "cpu", name, "network", speedup=Interval(1.4, 1.0, 2.0)) for name in ("eager", "inductor")]
        judged = [Score("operator_1", "found", "operator_1", timed=IN_TURNS, speedup=Interval(1.7, 1.6, 1.8))]
        found = self.view(judged, parts)
        assert (found["operator_1", "eager"].ratio.value, found["operator_1", "eager"].timed) == (1.4, BY_LAYERS)
        assert (found["operator_1", "inductor"].ratio.value, found["operator_1", "inductor"].timed) == (1.7, IN_TURNS)
        assert found["operator_2", "eager"].timed == APART
        scores, latencies = (table.assign(key=table["operator"]) for table in (score_table(), latency_table()))
        judged = judged_networks(GOAL, scores_in(scores), latencies_in(latencies), {}, parts)
        (own,) = [one for one in judged if one.key == "operator_1"]
        assert (own.speedup.value, own.timed) == (1.4, BY_LAYERS)


class TestTime:
    def test_trials_are_at_their_ends_and_interruptions_do_not_count(self) -> None:
        starts = [0, 10, 20, 3620, 3630]  # the last two after an hour
        times = [BEGAN + timedelta(seconds=at) for at in starts]
        trials = [Trial(0, "complete", 0.5, started=time, ended=time + timedelta(seconds=20)) for time in times]
        seconds, without = elapsed(trials)
        assert without == 3580 and seconds == [20, 30, 40, 60, 70]  # 40 s is when the third ended

    def test_outcomes_rings_and_the_line_of_the_goal(self) -> None:
        speed = {"metric_speedup": 2.0, "metric_speedup_low": 1.9, "metric_speedup_high": 2.1}
        trials = trial_table(14).assign(**speed, metric_original_accuracy=0.9)
        trials.loc[2, "outcome"] = "screened"
        trials.loc[9, "outcome"] = "paused"
        (axes,) = time_figure(trials_in(trials), GOAL, 0.7).axes
        lines = {str(line.get_label()): line for line in axes.lines}
        met = trials[(trials["outcome"] == "complete") & (trials["metric_accuracy"] >= 0.88)]
        ring = f"meets the goal, by one seed ({len(met)})"
        assert {"complete (10)", "screened (1)", "paused (1)", "failed (2)", ring} <= lines.keys()
        assert list(lines["just meets the goal"].get_ydata()) == [0.7, 0.7]
        assert list(lines["screened (1)"].get_xdata()) == pytest.approx([2.9])
        rings = lines[ring]
        assert list(rings.get_ydata()) == list(met["reward"]) and axes.get_xlabel() == "minutes since the study began"
        assert (np.diff(np.asarray(lines["best so far"].get_ydata())) >= 0).all()

    def test_a_figure_without_times_says_so(self) -> None:
        (axes,) = time_figure(trials_in(trial_table(3).assign(ended=pandas.NaT))).axes
        assert "No trial with a known time" in axes.texts[0].get_text()


def test_the_reward_of_an_operator_that_just_meets_the_goal() -> None:
    """(0.88 - 0.1) / (0.9 - 0.1) of the way from chance to the original, at the speed that suffices."""
    metrics = {"metric_accuracy": 0.5, "metric_original_accuracy": 0.9, "metric_chance_accuracy": 0.1, "metric_speedup": 9.0}
    trials = pandas.DataFrame([{"number": 0, "outcome": "complete", "reward": 0.1, **metrics}])

    def at(**goal: Any) -> float | None:
        return reward_at_goal(Experiment(name="e", workload={}, goal=goal or None), trials_in(trials))

    assert at(speedup=1.5, lose_at_most=0.02) == pytest.approx((0.975 / 1.1) ** 4)
    assert at(lose_at_most=0.02) == pytest.approx(0.75)  # find: fastest, as fast as the original
    assert at(speedup=1.5) is None and at() is None
