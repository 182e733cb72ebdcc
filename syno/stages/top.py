"""The command `syno top`: the best operators of an experiment, finished or not."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path

from syno.base.errors import SpecError
from syno.base.text_tables import Row, markdown
from syno.config import AnyExperiment, Experiment, load_any
from syno.config.files import parted
from syno.config.kept_file import KEPT
from syno.config.kinds import RESULTS
from syno.run import FOLDER, OF_LAYERS, SCORES
from syno.run.run import Run, outcomes, search_rows
from syno.run.speedups import best_against_best
from syno.run.story import best_compilers, goal_speedup, none_is_faster
from syno.run.table import trials_in
from syno.run.values import Latency, Score
from syno.stages import study
from syno.stages.places import FROZEN
from syno.stages.provenance import check_shown
from syno.stages.results import StoredRun
from syno.stages.store import all_results
from syno.stages.tables import folder_of
from syno.train.metric import Metric


def top(place: str, count: int) -> str:
    """Return a table of the best operators in Markdown, from the tables if they exist, else from the trials.

    Args:
        place: an experiment's config, its folder of results, or its name in `results/`.
        count: number of operators.

    Raises SpecError if there is no such experiment, it has no trial yet, or its results are of other settings.
    """
    experiment = find_experiment(place)
    check_shown(experiment)
    if (folder_of(experiment) / f"{SCORES}.parquet").is_file():
        run = StoredRun(experiment)
        first = not_faster(run)
        start = "".join(f"{line}\n" for line in first) + ("\n" if first else "")
        return start + compared(run, count) + "".join(f"\n{line}" for line in run.answer) + ("\n" if run.answer else "")
    frozen = (experiment.folder / FROZEN).is_file()
    trials = trials_in(study.read_frozen(experiment) if frozen else study.study_table(experiment))
    rows = search_rows(trials, experiment.name, count)
    return (markdown(rows) if rows else "No trial has a reward yet.\n") + f"\n{outcomes(trials)}\n"


def not_faster(run: Run) -> list[str]:
    """Return sentences on devices and compilers where no operator is faster, or where a compiler slows the original down."""
    place = None if run.goal is None else (run.goal.device, run.goal.compiler)  # the answer says so of it
    elsewhere = [one for one in run.speedups if one.target != place]
    return [*none_is_faster(elsewhere), *(best_compilers(one).text for one in best_against_best(run.latencies))]


def compared(run: Run, count: int | None = None) -> str:
    """Return the networks of a run as a Markdown table, or a sentence if only single layers were measured."""
    rows = summary(run, count)
    return markdown(rows) if rows else f"No whole network was trained or measured; {FOLDER}/{OF_LAYERS} has its layers.\n"


def find_experiment(place: str) -> Experiment:
    """Return the experiment of a config file, of a folder of results, or of a name in `results/`.

    An experiment among several in a file is named FILE:NAME, by its folder, or GROUP/NAME. Raises SpecError if there is no such
    experiment, or it has no operators.
    """
    return Experiment.checked(find_any(place))


def find_any(place: str) -> AnyExperiment:
    """Return the experiment of a place as `find_experiment` does, but of any kind, also one without operators."""
    if parted(place)[0].is_file() or (Path(place) / KEPT).is_file():
        return load_any(place)
    if (RESULTS / place / KEPT).is_file():
        return load_any(RESULTS / place)
    known = ", ".join(str(folder.relative_to(RESULTS)) for folder in all_results(KEPT)) or "none yet"
    raise SpecError(
        f'"{place}" is neither a config nor a folder of results with {KEPT}; experiments in {RESULTS}/ are: {known}'
    )


def summary(run: Run, count: int | None = None) -> list[Row]:
    """Return a row for the original, each baseline and each of `count` operators: score, cost, latency by compiler."""
    if not run.scores:
        return _timed(run.latencies, count)
    is_judged = any(one.verdict for one in run.scores)
    is_timed = is_judged and any(not isnan(one.speedup.value) for one in run.scores)
    shown: list[Row] = []
    found = 0
    for one in run.scores:
        found += one.role == "found"
        if one.role == "found" and count is not None and found > count:
            continue
        # The speedup that the goal is about is no ratio of two latencies in the table.
        speedup = {"speedup": goal_speedup(one) or None} if is_timed else {}
        goal = {"goal": one.state} if is_judged else {}
        times = _times([row for row in run.latencies if row.key == one.key])
        shown.append({"operator": _titled(one), **_quality(one, run.metric), **_cost(one), **times, **speedup, **goal})
    return shown


def _timed(latencies: Sequence[Latency], count: int | None) -> list[Row]:
    """Return a row with the latencies of each network, for a run that trained nothing, in the order of the table."""
    by_key: dict[str, list[Latency]] = {}
    for one in latencies:
        by_key.setdefault(one.key, []).append(one)
    found = [key for key, rows in by_key.items() if rows[0].role == "found"]
    left_out = [] if count is None else found[count:]
    return [{"operator": _titled(rows[0]), **_times(rows)} for key, rows in by_key.items() if key not in left_out]


def _titled(row: Score | Latency) -> str:
    return f"{row.operator} ({row.role})" if row.role in ("baseline", "rival") else row.operator


def _quality(score: Score, metric: Metric) -> Row:
    spread = nan if score.spread is None else score.spread
    return {
        metric.heading: metric.text(nan if score.score is None else score.score, spread),
        "seeds": score.seeds,
        "difference": metric.difference_text(*score.difference),
    }


def _cost(score: Score) -> Row:
    costs = {"FLOPs": (score.flops, score.flops_share), "parameters": (score.parameters, score.parameters_share)}
    known = {name: [nan if number is None else number for number in pair] for name, pair in costs.items()}
    return {name: f"{cost:,.0f} ({share:.1%})" for name, (cost, share) in known.items()}


def _times(latencies: Sequence[Latency]) -> Row:
    times: dict[str, object] = {}
    for one in latencies:
        faster = "" if one.speedup is None else f" ({one.speedup:.2f}x)"
        times[f"{one.compiler} on {one.device}/ms"] = f"{one.ms.value:.3f}{faster}" if one.is_ok else one.status
    return times
