"""The best operators of an experiment, finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.base.text_tables import Row, markdown
from syno.config import Experiment, load_experiment, load_experiments
from syno.config.experiment import RESULTS
from syno.config.files import parted
from syno.config.kept_file import KEPT
from syno.report.results import outcomes, search_rows
from syno.results import FOLDER, OF_LAYERS, SCORES
from syno.results.breakdown import read_breakdown
from syno.results.goal_tables import goal_speedup
from syno.results.metric import ScoreMetric
from syno.stages import study
from syno.stages.goal import answer_of, verdict_table
from syno.stages.kept import check_shown
from syno.stages.places import FROZEN
from syno.stages.store import all_results
from syno.stages.tables import Tables, folder_of, read_tables

if TYPE_CHECKING:
    import pandas


def top(given: str, count: int) -> str:
    """Return a table of the best operators in Markdown, from the tables if they exist, else from the trials.

    Args:
        given: an experiment's config, its folder of results, or its name in `results/`.
        count: number of operators.

    Raises SpecError if there is no such experiment, it has no trial yet, or its results are of other settings.
    """
    experiment = find_experiment(given)
    check_shown(experiment)
    if (folder_of(experiment) / f"{SCORES}.parquet").is_file():
        tables = read_tables(experiment)
        first, lines = _not_faster(experiment, tables), answer_of(experiment, *tables)
        start = "".join(f"{line}\n" for line in first) + ("\n" if first else "")
        return start + compared(tables, count) + "".join(f"\n{line}" for line in lines) + ("\n" if lines else "")
    frozen = (experiment.folder / FROZEN).is_file()
    trials = study.read_frozen(experiment) if frozen else study.study_table(experiment)
    rows = search_rows(trials, experiment.name, count)
    return (markdown(rows) if rows else "No trial has a reward yet.\n") + f"\n{outcomes(trials)}\n"


def _not_faster(experiment: Experiment, tables: Tables) -> list[str]:
    """Return sentences for what none of the operators is faster with, and where a compiler slows the original down."""
    from syno.results.speedups import best_against_best, none_is_faster, speedup_view

    judged = verdict_table(experiment, *tables)
    parts = read_breakdown(experiment.folder) if experiment.tune.breakdown else None
    speedups = speedup_view(tables.latency, experiment.goal, judged, parts)
    if experiment.goal is not None:  # whose answer says so of its compiler and device
        place = (speedups["compiler"] == experiment.goal.compiler) & (speedups["device"] == experiment.goal.device)
        speedups = speedups[~place]
    return [*none_is_faster(speedups), *("".join(one.sentence) for one in best_against_best(tables.latency))]


def compared(tables: Tables, count: int | None = None) -> str:
    """Return the networks of an experiment as a Markdown table, or a sentence if only single layers were measured."""
    rows = summary(tables, count)
    return markdown(rows) if rows else f"No whole network was trained or measured; {FOLDER}/{OF_LAYERS} has its layers.\n"


def find_experiment(given: str) -> Experiment:
    """Return the experiment of a config file, of a folder of results, or of a name in `results/`.

    For one of several in a file, that is FILE:NAME, its folder, or GROUP/NAME. Raises SpecError if there is no experiment.
    """
    if parted(given)[0].is_file() or (Path(given) / KEPT).is_file():
        return load_experiment(given)
    if (RESULTS / given / KEPT).is_file():
        return load_experiment(RESULTS / given)
    known = ", ".join(str(folder.relative_to(RESULTS)) for folder in all_results(KEPT)) or "none yet"
    raise SpecError(
        f'"{given}" is neither a config nor a folder of results with {KEPT}; experiments in {RESULTS}/ are: {known}'
    )


def find_join(given: str) -> Experiment:
    """Return the experiment of joined results of a config file or folder; in a file with several, the only such one.

    Raises SpecError if there is none, or several.
    """
    file, name = parted(given)
    if name is not None or not file.is_file():
        return find_experiment(given)
    joins = [experiment for experiment in load_experiments(file).values() if experiment.join is not None]
    if len(joins) != 1:
        shown = (
            f"{len(joins)} experiments join results: {', '.join(one.name for one in joins)}" if joins else "none joins results"
        )
        raise SpecError(f"{file}: {shown}; give one as {file}:NAME, with join: {{of: all}} in the file")
    return joins[0]


def summary(tables: Tables, count: int | None = None) -> list[Row]:
    """Return a row for the original, each baseline and each of `count` operators: score, cost, latency by compiler."""
    from syno.report.results import metric_of  # imports pandas

    scores, latency = tables
    if scores.empty:
        return _timed(latency, count)
    metric = metric_of(scores)
    shown: list[Row] = []
    found = 0
    for _, row in scores.iterrows():
        found += row["role"] == "found"
        if row["role"] == "found" and count is not None and found > count:
            continue
        measured = latency[latency["key"] == row["key"]]
        shown.append({"operator": _titled(row), **_quality(row, metric), **_cost(row), **_times(measured), **_verdict(row)})
    return shown


def _timed(latency: pandas.DataFrame, count: int | None) -> list[Row]:
    """Return a row for each network where nothing was trained: its latencies, in the order of the table."""
    firsts = latency.drop_duplicates("key")
    found = list(firsts.loc[firsts["role"] == "found", "key"])
    left_out = set(found if count is None else found[count:]) - set(found[:count])
    return [
        {"operator": _titled(row), **_times(latency[latency["key"] == row["key"]])}
        for _, row in firsts.iterrows()
        if row["key"] not in left_out
    ]


def _titled(row: pandas.Series) -> str:
    return f"{row['operator']} (baseline)" if row["role"] == "baseline" else str(row["operator"])


def _quality(row: pandas.Series, metric: ScoreMetric) -> Row:
    return {
        metric.heading: metric.text(row["score"], row["score_std"]),
        "seeds": int(row["seeds"]),
        "difference": metric.difference_text(row["difference"], row["difference_low"], row["difference_high"]),
    }


def _verdict(row: pandas.Series) -> Row:
    """Return the speedup that the goal is about, which is no ratio of two latencies in the table, and the verdict."""
    if "verdict" not in row:
        return {}
    speedup = {"speedup": goal_speedup(row.to_dict()) or None} if "goal_speedup" in row else {}
    return {**speedup, "goal": None if row["verdict"] != row["verdict"] else row["verdict"]}


def _cost(row: pandas.Series) -> Row:
    return {
        "FLOPs": f"{row['flops']:,.0f} ({row['flops_share']:.1%})",
        "parameters": f"{row['parameters']:,.0f} ({row['parameters_share']:.1%})",
    }


def _times(measured: pandas.DataFrame) -> Row:
    times: dict[str, object] = {}
    for _, row in measured.iterrows():
        title = f"{row['compiler']} on {row['device']}/ms"
        if row["status"] != "ok":
            times[title] = str(row["status"])
        else:
            faster = "" if row["speedup"] != row["speedup"] else f" ({row['speedup']:.2f}x)"
            times[title] = f"{row['latency_ms']:.3f}{faster}"
    return times
