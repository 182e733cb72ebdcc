"""The figures of an experiment: what is drawn, and that there is always something to look at."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from quick_cases import quick_cases
from result_tables import (
    NAMES,
    NOTES,
    SCORES,
    bars,
    costs,
    latency_table,
    pareto,
    results,
    rewards,
    score_table,
    trial_table,
)

from syno.base.errors import SpecError, UnknownNameError
from syno.report.figures import drawn, finish, save
from syno.report.result_figures import FIGURES, pictures
from syno.run.table import LATENCY_COLUMNS, SCORE_COLUMNS, TRIAL_COLUMNS
from syno.train.metric import ACCURACY, LOSS, METRICS

EMPTY = pandas.DataFrame()
MADE: dict[str, Callable[[pandas.DataFrame, pandas.DataFrame, pandas.DataFrame], Figure]] = {
    "pareto": lambda scores, latency, trials: pareto(scores, latency, NOTES),
    "cost": lambda scores, latency, trials: costs(scores, NOTES),
    "speedup": lambda scores, latency, trials: bars(latency, NOTES),
    "reward": lambda scores, latency, trials: rewards(trials, NOTES),
}
every_figure = pytest.mark.parametrize("draw", MADE.values(), ids=MADE)


def words(figure: Figure) -> list[str]:
    """All texts of a figure."""
    texts = [text for axes in figure.axes for text in (*axes.texts, axes.title, axes.xaxis.label, *axes.get_yticklabels())]
    for legend in figure.legends:
        texts += [*legend.get_texts(), legend.get_title()]
    return [text.get_text() for text in texts]


@pytest.mark.slow
@every_figure
def test_a_figure_names_where_its_numbers_come_from(draw: Callable[..., Figure]) -> None:
    figure = draw(score_table(), latency_table(), trial_table())
    assert set(NOTES) <= set(figure.get_supxlabel().split("\n"))
    assert b"<svg" in drawn(figure, "svg")


@every_figure
@pytest.mark.parametrize("columns", [False, True], ids=["no columns", "columns only"])
def test_a_figure_without_rows_says_so(draw: Callable[..., Figure], columns: bool) -> None:
    headers = (SCORE_COLUMNS, LATENCY_COLUMNS, TRIAL_COLUMNS)
    figure = draw(*(pandas.DataFrame(columns=list(names)) if columns else EMPTY for names in headers))
    assert any(text.startswith("No ") for text in words(figure))
    assert len(drawn(figure, "png")) > 1000


@pytest.mark.slow
@every_figure
@pytest.mark.parametrize("row", [0, 1])
def test_a_single_row_is_drawn(draw: Callable[..., Figure], row: int) -> None:
    figure = draw(*(table.iloc[[row]] for table in (score_table(), latency_table(), trial_table())))
    assert len(drawn(figure, "png")) > 1000


@every_figure
def test_unknown_numbers_do_no_harm(draw: Callable[..., Figure]) -> None:
    scores, latency, trials = score_table(), latency_table(), trial_table()
    scores["score_std"] = None
    scores["flops_share"] = np.nan
    for name in ("latency_low_ms", "latency_high_ms", "batch", "threads", "device_name", "checked", "suspicious", "speedup"):
        latency[name] = None
    trials["reward"] = None
    assert len(drawn(draw(scores, latency, trials), "png")) > 1000


@pytest.mark.slow
@every_figure
def test_no_name_is_taken_for_a_formula(draw: Callable[..., Figure]) -> None:
    scores, latency, trials = score_table(), latency_table(), trial_table()
    for table in (scores, latency):
        table["operator"] = table["operator"] + r"$\no$ & <b>"
    latency["device_name"] = r"$\no$"
    assert len(drawn(draw(scores, latency, trials), "svg")) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_the_same_numbers_give_the_same_file(tmp_path: Path, kind: str) -> None:
    one, two = (save(costs(score_table(NAMES[:2]), NOTES), tmp_path / str(n), (kind,))[0] for n in range(2))
    assert one.read_bytes() == two.read_bytes()


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match='given: "bmp"'):
        save(costs(score_table()), tmp_path / "figure", ("bmp",))


class TestPareto:
    def test_there_is_a_panel_for_each_device_and_compiler(self) -> None:
        figure = pareto(score_table(), latency_table(NAMES[:2], devices=("cpu", "cuda")))
        titles = [axes.get_title().split(" (")[0] for axes in figure.axes]
        assert titles == ["eager on cpu", "inductor on cpu", "eager on cuda", "inductor on cuda"]
        assert "batch of 8, 1 thread" in figure.axes[0].get_xlabel()

    def test_latencies_beyond_the_devices_peak_are_not_on_the_front(self) -> None:
        eager, inductor = pareto(score_table(), latency_table()).axes
        fronts = [next(line for line in axes.lines if line.get_drawstyle() == "steps-post") for axes in (eager, inductor)]
        score = SCORES["accuracy"][-1]  # of operator_2
        assert [score in list(line.get_ydata()) for line in fronts] == [True, False]

    def test_failed_measurements_have_no_mark(self) -> None:
        latency = latency_table()
        latency["status"] = "failed"
        assert any(text.startswith("No operator") for text in words(pareto(score_table(), latency)))

    def test_labels_cover_neither_each_other_nor_marks(self) -> None:
        figure = costs(score_table())
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()
        axes = figure.axes[0]
        texts = [text for text in axes.texts if isinstance(text, Annotation)]
        boxes = [text.get_window_extent().padded(-1) for text in texts]
        assert len(boxes) >= 4
        for number, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[number + 1 :]), texts[number].get_text()


class TestDirection:
    """Less loss is better, more accuracy is."""

    @staticmethod
    @cache
    def axes(metric: str) -> Axes:
        return costs(score_table(metric=metric)).axes[0]

    @pytest.mark.parametrize("metric", METRICS)
    def test_the_front_is_what_no_other_betters_in_both(self, metric: str) -> None:
        (front,) = [line for line in self.axes(metric).lines if line.get_drawstyle() == "steps-post"]
        table = score_table(metric=metric).set_index("operator")
        expected = table.loc[["operator_2", "shift_conv1x1", "separable_conv2d", "operator_1", "original"]]
        assert list(front.get_xdata())[:-1] == list(expected["flops_share"])  # the last leads to the edge
        assert list(front.get_ydata())[:-1] == list(expected["score"])

    @pytest.mark.parametrize("metric", METRICS)
    def test_the_worse_side_of_the_front_is_shaded(self, metric: str) -> None:
        axes = self.axes(metric)
        (shade,) = [one for one in axes.collections if isinstance(one, PolyCollection)]
        heights, limits = np.asarray(shade.get_paths()[0].vertices)[:, 1], axes.get_ylim()
        edges = limits[0] if metric == "accuracy" else limits[1]
        assert edges in (heights.min(), heights.max())
        assert not {limits[0], limits[1]} - {edges} & set(heights)

    @pytest.mark.slow
    @pytest.mark.parametrize("metric", METRICS)
    def test_axes_name_metric_and_unit(self, metric: str) -> None:
        timed = pareto(score_table(metric=metric), latency_table()).axes[0]
        assert [axes.get_ylabel() for axes in (self.axes(metric), timed)] == [METRICS[metric].heading] * 2

    def test_titles_and_captions_go_by_the_metric(self) -> None:
        (flops,) = pictures(results(metric="loss"), ["score-flops"])
        assert (flops.title, flops.caption) == FIGURES["score-flops"].words(LOSS)
        for name, against in {"score-latency": "latency", "score-flops": "FLOPs"}.items():
            (title, lower), (_, higher) = FIGURES[name].words(LOSS), FIGURES[name].words(ACCURACY)
            assert title == f"Loss against {against}" and "The lower and the further to the left" in lower
            assert "The higher and the further to the left" in higher

    def test_an_infinite_loss_has_no_mark(self) -> None:
        table = score_table(metric="loss")
        table.loc[table["operator"] == "operator_2", ["score", "score_std", "difference"]] = np.inf
        for figure in (costs(table), pareto(table, latency_table())):
            assert "operator_2" not in words(figure) and "operator_1" in words(figure)
            assert len(drawn(figure, "png")) > 1000

    @pytest.mark.parametrize("metrics", [["perplexity"] * 6, ["accuracy", *["loss"] * 5]])
    def test_a_table_of_other_metrics_is_named(self, metrics: list[str]) -> None:
        with pytest.raises(SpecError, match="metric .*: accuracy, loss"):
            costs(score_table().assign(metric=metrics))


class TestSpeedup:
    def test_bars_have_the_heights_of_the_table(self) -> None:
        latency = latency_table()
        figure = bars(latency)
        widths = sorted(round(bar.get_width(), 6) for bar in figure.axes[0].patches if bar.get_width())
        found = latency[latency["role"] != "original"]["speedup"].dropna()
        assert widths == sorted(round(value, 6) for value in found)

    def test_failed_measurements_have_a_cross_and_no_bar(self) -> None:
        figure = bars(latency_table())
        crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x" and len(line.get_xdata())]
        assert len(crosses) == 1
        assert "failed" in words(figure)

    def test_partial_tunings_have_a_cross_and_no_bar(self) -> None:
        latency = latency_table()
        latency["status"] = "partial"
        figure = bars(latency)
        assert not [bar for bar in figure.axes[0].patches if bar.get_width()] and "failed or partial" in words(figure)
        assert not [text for text in words(figure) if "ms" in text.split()]

    def test_without_the_original_the_figure_says_so(self) -> None:
        latency = latency_table()
        latency["speedup"] = None
        assert any("original was not measured" in text for text in words(bars(latency)))

    def test_the_fastest_is_first(self) -> None:
        labels = [label.get_text() for label in bars(latency_table()).axes[0].get_yticklabels()]
        assert labels[0] == "operator_2"
        assert sorted(labels) == sorted(NAMES)

    def test_one_operator_under_many_notes_has_room(self) -> None:
        """Once there was none, and the layout was given up with a warning."""
        rows = latency_table(NAMES[:2])
        rows = rows[rows["compiler"] == "eager"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert drawn(bars(rows, ["a line about where the numbers are from"] * 8), "svg")


class TestReward:
    def test_the_best_so_far_never_falls(self) -> None:
        axes = rewards(trial_table()).axes[0]
        best = next(line for line in axes.lines if line.get_label() == "best so far")
        heights = np.asarray(best.get_ydata())
        assert (np.diff(heights) >= 0).all()
        assert heights[-1] == trial_table()["reward"].max()

    def test_pruned_and_failed_trials_have_marks_of_their_own(self) -> None:
        trials = trial_table()
        counts = trials["outcome"].value_counts()
        assert {f"{name} ({counts[name]})" for name in ("complete", "pruned", "failed")} <= set(words(rewards(trials)))


class TestPictures:
    def test_all_are_drawn_with_title_and_caption(self) -> None:
        drawn = pictures(results(), FIGURES)
        assert [(picture.title, picture.caption) for picture in drawn] == [row.words(ACCURACY) for row in FIGURES.values()]
        assert all(picture.svg.lstrip().startswith("<?xml") for picture in drawn)

    @pytest.mark.parametrize("absent", quick_cases(["trials", "scores", "latencies"], "scores".__eq__))
    def test_a_table_without_rows_is_no_error(self, absent: str) -> None:
        assert len(pictures(results(**{absent: EMPTY}), FIGURES)) == len(FIGURES)

    def test_an_unknown_figure_is_an_error(self) -> None:
        with pytest.raises(UnknownNameError, match="score-latency"):
            pictures(results(), ["score-latencies"])


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.3, 0.9), {"0.5"}),
        ((0.6, 30), {"0.5", "1", "2", "5", "10", "20"}),
        ((1e-3, 1e2), {"0.001", "0.01", "0.1", "1", "10", "100"}),
    ],
)
def test_a_logarithmic_axis_has_plain_numbers(values: tuple[float, float], shown: set[str]) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([1, 2], values)
    axes.set_yscale("log")
    finish(figure, [axes], "title", [], columns=0)
    drawn(figure, "svg")  # sets the texts
    low, high = axes.get_ylim()
    ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
    assert {tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high} - {""} == shown
