"""`syno.plot`: axes with the numbers of trials and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas
import pytest
import small_specs
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from result_tables import trial_table

import syno
from syno.base.errors import SpecError
from syno.notebook.layer_times import COLUMNS
from syno.report.parallel_axes import COLOURS

matplotlib.use("Agg")
SPACE = syno.Space(small_specs.convolution())


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def study() -> syno.Study:
    def objective(operator: syno.PGraph) -> dict[str, float]:
        return {"value": int(operator.id[:4], 16) / 0xFFFF, "flops": syno.cost(operator, SPACE.spec).flops}

    found = syno.Study(SPACE, objective, name="small")
    found.run(10, progress=False)
    return found


def line(axes: Axes, label: str) -> Any:
    (found,) = [one for one in axes.lines if str(one.get_label()).startswith(label)]
    return found


def layers(**changes: Any) -> pandas.DataFrame:
    rows = [
        {
            **dict.fromkeys(COLUMNS), "operator": name, "role": "original" if name == "original" else "found", "layer": layer,
            "device": "cpu", "compiler": "eager", "status": "ok", "latency_ms": ms, "latency_low_ms": ms - 0.1,
            "latency_high_ms": ms + 0.3, **changes,
        }
        for layer, name, ms in (("2", "a", 1.0), ("2", "original", 2.0), ("5", "a", 3.0), ("5", "original", 4.0))
    ]  # fmt: skip
    return pandas.DataFrame(rows)


PLOTS: dict[str, Callable[..., Axes]] = {
    "best so far": lambda study, **given: syno.plot.best_so_far(study, **given),
    "over time": lambda study, **given: syno.plot.best_so_far(study, over="time", **given),
    "front": lambda study, **given: syno.plot.front(study, **given),
    "parallel": lambda study, **given: syno.plot.parallel_coordinates(study, **given),
    "layers": lambda study, **given: syno.plot.layer_latency(layers(), **given),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_goes_into_the_axes_that_are_given_and_else_into_new_ones(name: str, study: syno.Study) -> None:
    _, (left, right) = plt.subplots(1, 2)
    assert PLOTS[name](study, ax=right) is right
    assert right.lines and not left.lines
    new = PLOTS[name](study)
    assert isinstance(new, Axes) and new.figure not in (left.figure, None)
    new.figure.canvas.draw()


class TestBestSoFar:
    def test_over_trials(self) -> None:
        trials = trial_table()
        best = line(syno.plot.best_so_far(trials), "best so far")
        done = trials[trials["outcome"] == "complete"]
        assert list(best.get_xdata())[:-1] == list(done["number"])
        assert list(best.get_ydata())[:-1] == list(done["reward"].cummax())

    def test_over_time(self) -> None:
        trials = trial_table()
        axes = syno.plot.best_so_far(trials, over="time")
        done = trials[trials["outcome"] == "complete"]
        minutes = [number + 0.9 for number in done["number"]]
        assert list(line(axes, "complete").get_xdata()) == pytest.approx(minutes) and "minutes" in axes.get_xlabel()
        assert list(line(axes, "best so far").get_ydata())[:-1] == list(done["reward"].cummax())

    def test_what_cannot_be_drawn_is_an_error(self) -> None:
        failed = trial_table().assign(outcome="failed", reward=None)
        for source, message in (
            (failed, "none of the 30 trials has a reward"),
            (failed.iloc[:0], "no trial"),
            (failed.drop(columns="reward"), 'no column "reward"'),
        ):
            with pytest.raises(SpecError, match=message):
                syno.plot.best_so_far(source)
        with pytest.raises(SpecError, match='give "trials" or "time"'):
            syno.plot.best_so_far(trial_table(), over="hours")


class TestFront:
    def test_points_and_front_are_those_of_the_study(self, study: syno.Study) -> None:
        axes = syno.plot.front(study)
        marks = {
            (one.get_xdata()[0], one.get_ydata()[0]) for one in axes.lines if one.get_marker() == "o" and len(one.get_xdata())
        }
        trials, ahead = study.trials, study.front()
        assert marks == set(zip(trials["metric_flops"], trials["reward"], strict=True))
        (steps,) = [one for one in axes.lines if one.get_drawstyle() == "steps-post"]
        assert list(steps.get_xdata())[:-1] == list(ahead["metric_flops"])
        assert list(steps.get_ydata())[:-1] == list(ahead["reward"])
        assert f"trial {ahead['number'].iloc[0]}" in [text.get_text() for text in axes.texts]

    def test_the_original_is_drawn_where_its_score_is_known(self) -> None:
        trials = trial_table().assign(metric_original_accuracy=0.9)
        axes = syno.plot.front(trials)
        (original,) = [one for one in axes.lines if one.get_marker() == "D" and len(one.get_xdata())]
        assert (original.get_xdata()[0], original.get_ydata()[0]) == (4e6, 0.9)
        assert axes.get_ylabel() == "accuracy"

    def test_less_loss_is_better(self) -> None:
        trials = trial_table(metric="loss")
        (steps,) = [one for one in syno.plot.front(trials).lines if one.get_drawstyle() == "steps-post"]
        heights = np.asarray(steps.get_ydata())[:-1]
        assert (np.diff(heights) < 0).all() and heights[-1] == trials["metric_loss"].min()

    def test_an_unknown_cost_is_named(self, study: syno.Study) -> None:
        with pytest.raises(SpecError, match='no complete trial has the metric "flop"'):
            syno.plot.front(study, cost="flop")


class TestParallelCoordinates:
    def test_each_operator_is_a_line_in_the_colour_of_its_reward(self, study: syno.Study) -> None:
        axes = syno.plot.parallel_coordinates(study, columns=["FLOPs", "Unfolds", "weights"])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["FLOPs", "Unfolds", "weights", "reward"]
        trials = study.trials.sort_values("reward", kind="stable")  # the best one is drawn last
        lines = [one for one in axes.lines if len(one.get_xdata()) == 4]
        rewards = trials["reward"] - trials["reward"].min()
        shares = list(rewards / rewards.max())
        assert [one.get_ydata()[-1] for one in lines] == pytest.approx(shares)
        colours = [to_hex(matplotlib.colormaps[COLOURS](share)) for share in shares]
        assert [to_hex(one.get_color()) for one in lines] == colours
        flops = np.log2(trials["metric_flops"].to_numpy())
        assert [one.get_ydata()[0] for one in lines] == pytest.approx(list((flops - flops.min()) / np.ptp(flops)))
        assert f"{trials['metric_flops'].max():.4g}" in [text.get_text() for text in axes.texts]

    def test_a_table_needs_a_spec(self, study: syno.Study) -> None:
        with pytest.raises(SpecError, match=r"give spec=space\.spec"):
            syno.plot.parallel_coordinates(study.trials)
        assert syno.plot.parallel_coordinates(study.trials, spec=SPACE.spec).lines

    def test_an_unknown_column_is_named(self, study: syno.Study) -> None:
        with pytest.raises(SpecError, match=r'no column "Unfold";.*Did you mean "Unfolds"'):
            syno.plot.parallel_coordinates(study, columns=["Unfold"])


class TestLayerLatency:
    def test_bars_have_the_latencies_of_the_table(self) -> None:
        axes = syno.plot.layer_latency(layers())
        bars = {
            container.get_label(): [bar.get_height() for bar in container]
            for container in axes.containers
            if hasattr(container, "patches")
        }
        assert list(bars.items()) == [("original", [2.0, 4.0]), ("a", [1.0, 3.0])]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "5"]

    def test_one_of_several_compilers_is_chosen(self) -> None:
        both = pandas.concat([layers(), layers(compiler="inductor", latency_ms=0.5)])
        with pytest.raises(SpecError, match="several to choose from: cpu with eager, cpu with inductor"):
            syno.plot.layer_latency(both)
        axes = syno.plot.layer_latency(both, compiler="inductor")
        assert {bar.get_height() for bar in axes.patches} == {0.5}
        with pytest.raises(SpecError, match="none of these to choose from: cpu with eager"):
            syno.plot.layer_latency(layers(), device="cuda")
