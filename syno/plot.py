"""Plots of studies and results: functions that draw into matplotlib axes and return them.

Each function takes a `syno.Study`, a table of trials, or the folder of an experiment's results (or its name in `results/`).

>>> import syno
>>> space = syno.Space(syno.preset("resnet18").with_(depth=4))
>>> study = syno.Study(space, lambda operator: {"value": 0.5, "flops": syno.cost(operator, space.spec).flops})
>>> study.run(4, progress=False)
>>> syno.plot.best_so_far(study).get_ylabel(), syno.plot.front(study).get_ylabel()
('reward', 'reward')
>>> len(syno.plot.parallel_coordinates(study, columns=["Merges", "Splits"]).get_xticklabels())
3
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas
from matplotlib.axes import Axes

from syno.base.errors import RunsCodeError, SpecError, suggestion
from syno.base.files import ORIGINAL
from syno.base.registry import reading_only
from syno.ir.text import parse_stored
from syno.notebook.study import Study, metric_column, rewarded, score_of
from syno.notebook.training import Source, layers_of, one_target, run_of, trials_of
from syno.report.figures import style
from syno.report.layer_tables import draw_latencies
from syno.report.parallel_axes import draw_parallel
from syno.report.search_rewards import draw_rewards
from syno.report.search_time import draw_over_time, with_times
from syno.report.trade_off import (
    NetworkPoint,
    cost_points,
    draw_costs,
    draw_front,
    exactly,
    latency_points,
    name_looks,
    time_points,
    with_scores,
)
from syno.run.table import METRIC, trials_in
from syno.space.features import OperatorFeatures
from syno.space.spec import OperatorSpec
from syno.train.metric import METRICS, Metric

__all__ = ["best_so_far", "front", "layer_latency", "parallel_coordinates"]

LATENCY, TIME = "latency_ms", "time"
SIZE = (7.0, 4.4)  # inches, of a new figure
LABELS = {
    "flops": "FLOPs of a batch (multiply-adds)",
    "parameters": "parameters",
    LATENCY: "latency/ms",
    TIME: "time as a share of the original's",
}
LOGARITHMS = ("positions", "FLOPs", "parameters", "memory", "weight", "sum", "sums", "FLOPs of a layer")  # to base 2
DESCRIBED = (  # features that parallel coordinates show, where the operators differ in them
    "once: least positions", "once: most positions", "twice: least positions", "twice: neighbours",
    *("FLOPs", "parameters", "stages", "weights", "sums", "Unfolds", "Merges", "Splits", "Shifts", "Strides", "Expands"),
)  # fmt: skip


def best_so_far(source: Source, *, over: str = "trials", ax: Axes | None = None) -> Axes:
    """Draw the reward of each trial, and the best reward so far.

    Args:
        source: a study, a table of trials, or a folder of results.
        over: the horizontal axis: "trials", or "time" since the first trial began, without interruptions of more than 10
            minutes.
        ax: axes to draw into; None for a new figure.

    Raises SpecError if there is no trial to show.
    """
    if over not in ("trials", "time"):
        raise SpecError(f'over is "{over}"; give "trials" or "time"')
    trials = trials_in(trials_of(source))
    if over == "time":
        trials = with_times(trials)
    if not any(trial.is_rewarded for trial in trials):
        raise SpecError(f"none of the {len(trials)} trials has a reward; the column message of the table says why")
    axes = _axes(ax)
    if over == "time":
        draw_over_time(axes, trials)
    else:
        draw_rewards(axes, trials)
    return _finished(axes)


def front(
    source: Source,
    *,
    cost: str = "flops",
    score: str | None = None,
    device: str | None = None,
    compiler: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw scores against a cost, with the Pareto front, and names at the points on or near it.

    A study or a table has a point for each complete trial, and one for the original network if its score is known. For an
    experiment's results, the finally trained networks are drawn, with mean and standard deviation over seeds; without them, the
    trials.

    Args:
        source: a study, a table of trials, or a folder of results.
        cost: a metric of trials of which less is better, such as "flops", "parameters" or one of your own objective. For
            results: "flops", "parameters", "latency_ms", or "time" (as a share of the original's, from the goal's speedups).
        score: a metric of trials; None: the accuracy or the loss, otherwise the reward. Results have a single metric.
        device, compiler: select among latencies of results, if there are several.
        ax: axes to draw into; None for a new figure.

    Raises SpecError if nothing has both numbers; the message lists the available metrics.
    """
    run = run_of(source)
    if run is not None and run.scores:
        metric, scores = run.metric, run.scores
        if cost == LATENCY:
            marks = latency_points(scores, one_target(with_scores(scores, run.latencies), device, compiler))
        elif cost == TIME:
            marks = time_points(scores)
        elif cost in ("flops", "parameters"):
            marks = cost_points(scores, cost)
        else:
            raise SpecError(f'cost is "{cost}"; results have flops, parameters, {LATENCY} and {TIME}')
    else:
        marks, metric = _points_of_trials(rewarded(trials_of(source)), cost, score)
    if not marks:
        raise SpecError(f'nothing has both a score and the cost "{cost}"')
    axes = _axes(ax)
    draw_costs(axes, marks, LABELS.get(cost, cost), metric)
    axes.set_ylabel(metric.heading)
    name_looks(axes, marks)
    _finished(axes)
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    draw_front(axes, marks, metric)
    return axes


def _points_of_trials(rows: pandas.DataFrame, cost: str, score: str | None) -> tuple[list[NetworkPoint], Metric]:
    """Return a point for each complete trial (and for the original network, if its score is known), and the score's metric."""
    name = score_of(rows) if score is None else score
    metric = METRICS.get(name) or Metric(name.translate({ord("("): "[", ord(")"): "]"}), digits=3)
    across, upwards = metric_column(rows, cost), metric_column(rows, name)
    known = rows.dropna(subset=[across, upwards])
    points = [(f"trial {number}", "found", x, y) for number, x, y in known[["number", across, upwards]].itertuples(index=False)]
    of_original = [f"{METRIC}original_{part}" for part in (cost, name)]
    if set(of_original) <= set(known.columns) and len(known):
        points.append((ORIGINAL, ORIGINAL, *known.iloc[0][of_original]))
    return [NetworkPoint(title, role, exactly(float(x)), exactly(float(y))) for title, role, x, y in points], metric


def parallel_coordinates(
    source: Source, *, columns: Sequence[str] | None = None, spec: OperatorSpec | None = None, ax: Axes | None = None
) -> Axes:
    """Draw each complete trial's operator as a line over its features, coloured by its reward.

    The features are those of `syno.space.features`: numbers of positions that an operator reads, applied once and twice, its
    costs, and its numbers of primitives. The axes of sizes and costs are logarithmic.

    Args:
        source: a study, a table of trials, or a folder of results.
        columns: names of features or metrics, in order; None: the main features in which the operators differ.
        spec: the spec of the operators; None: that of the study, or of the experiment's network.
        ax: axes to draw into; None for a new figure.

    Raises SpecError if no trial has a reward, the spec is unknown, or a column does not exist.
    """
    rows = rewarded(trials_of(source)).reset_index(drop=True)
    if rows.empty:
        raise SpecError("no trial has a reward; the column message of the table says why")
    features = OperatorFeatures(spec or _spec_of(source))
    operators = [parse_stored(text) for text in rows["operator"]]
    known = pandas.DataFrame([features(operator) for operator in operators], columns=list(features.columns))
    metrics = {
        str(column).removeprefix(METRIC): pandas.to_numeric(rows[column]) for column in rows if str(column).startswith(METRIC)
    }
    known = known.assign(**{name: values for name, values in metrics.items() if name not in known}, reward=rows["reward"])
    chosen = [name for name in DESCRIBED if known[name].nunique() > 1] if columns is None else list(columns)
    names = list(map(str, known.columns))
    if unknown := [name for name in chosen if name not in names]:
        raise SpecError(f'there is no column "{unknown[0]}"; there are: {", ".join(names)}.{suggestion(unknown[0], names)}')
    axes = _axes(ax)
    table = known[list(dict.fromkeys([*chosen, "reward"]))].astype(float).dropna()
    draw_parallel(axes, table, "reward", [name for name in chosen if name.endswith(LOGARITHMS)])
    return axes


def _spec_of(source: Source) -> OperatorSpec:
    if isinstance(source, Study):
        return source.space.spec
    if isinstance(source, pandas.DataFrame):
        raise SpecError("a table of trials does not say what its operators are for; give spec=space.spec")
    from syno.stages.top import find_experiment

    experiment = find_experiment(str(source))
    try:
        with reading_only("a plot"):
            return experiment.operator_spec
    except RunsCodeError as error:
        raise RunsCodeError(f"the space of {source} follows from its network: {error}; give spec=") from None


def layer_latency(
    source: pandas.DataFrame | str | Path, *, device: str | None = None, compiler: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the latency of each layer, original and replaced by operators, with 95 % intervals.

    Args:
        source: a table of `syno.layer_latency`, or a folder of results with measured layers (`tune: {layers: true}`).
        device, compiler: select among latencies, if there are several.
        ax: axes to draw into; None for a new figure.

    Raises SpecError if there are no such latencies.
    """
    rows = layers_of(source)
    if not rows:
        raise SpecError("no layer was measured; `tune: {layers: true}` in an experiment, or syno.layer_latency, does so")
    axes = _axes(ax)
    draw_latencies(axes, one_target(rows, device, compiler))
    return _finished(axes)


def _axes(axes: Axes | None) -> Axes:
    return plt.figure(figsize=SIZE, layout="constrained").add_subplot() if axes is None else axes


def _finished(axes: Axes) -> Axes:
    style(axes)
    axes.legend(frameon=False, fontsize=8)
    return axes


def __dir__() -> list[Any]:
    return list(__all__)
