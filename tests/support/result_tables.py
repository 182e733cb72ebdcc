"""Made-up results of an experiment: known operators with plausible numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas
from matplotlib.figure import Figure

from syno.base.interval import Interval
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.report.result_figures import speedup_figure
from syno.report.search_rewards import reward_figure
from syno.report.trade_off import cost_figure, pareto_figure
from syno.run import FOLDER, LATENCY
from syno.run import SCORES as SCORE_FILE
from syno.run.run import Run
from syno.run.table import SCORE_COLUMNS, complete, latencies_in, parts_in, rows_in, trials_in
from syno.run.values import SPEED, STATES, UNKNOWN, Part, Round, Score, Speedup, Verdict
from syno.stages.tables import make_tables
from syno.train.metric import ACCURACY

NAMES = ("conv2d", "separable_conv2d", "shift_conv1x1", "operator_1", "operator_2")
ROLES = ("baseline", "baseline", "found", "found", "found")
SHARES = (1.0, 0.29, 0.12, 0.41, 0.08)
SCORES = {  # the original's, then those of NAMES; the same are better by either metric
    "accuracy": (0.9593, 0.9588, 0.9412, 0.9013, 0.9467, 0.8512),
    "loss": (1.811, 1.824, 1.985, 2.311, 1.903, 2.874),
}
COMPILERS = {"eager": 20.0, "inductor": 12.0}
NOTES = ("experiment: glyphs", "measured on one machine")
BEGAN, MINUTE = pandas.Timestamp("2026-01-01 12:00"), pandas.Timedelta(minutes=1)
FAILURE = "InductorError: <nothing> & 'more'"


def score_table(names: tuple[str, ...] = NAMES, metric: str = "accuracy") -> pandas.DataFrame:
    original, *scores = SCORES[metric]
    rows = [_scored("original", None, "original", metric, original, 0.0, 1.0)]
    rows += [
        _scored(name, OPERATORS[name]().id, role, metric, score, score - original, share)
        for name, role, score, share in zip(NAMES, ROLES, scores, SHARES, strict=True)
        if name in names
    ]
    return pandas.DataFrame(rows)


def latency_table(names: tuple[str, ...] = NAMES, devices: tuple[str, ...] = ("cpu",)) -> pandas.DataFrame:
    """All measured but one, which failed; one that is faster than the device can be."""
    rows = []
    for device in devices:
        for compiler, original in COMPILERS.items():
            for row in score_table(names).to_dict("records"):
                failed = row["operator"] == "shift_conv1x1" and compiler == "inductor"
                share = 1.0 if row["role"] == "original" else 0.2 + 0.7 * row["flops_share"]
                rows.append(_latency(row, device, compiler, None if failed else original * share, 1 / share))
    return pandas.DataFrame(rows)


def trial_table(count: int = 30, metric: str = "accuracy") -> pandas.DataFrame:
    """Of seven trials one is pruned and one has failed; trial 3 is `operator_1`."""
    outcomes = ("complete", "complete", "pruned", "complete", "failed", "complete", "complete")
    rows: list[dict[str, Any]] = []
    for number in range(count):
        outcome = outcomes[number % len(outcomes)]
        reward = (number * 37 % 100) / 100 if outcome == "complete" else None
        rows.append({
            "number": number, "outcome": outcome, "reward": reward,
            f"metric_{metric}": None if reward is None else 0.5 + reward / 2 if metric == "accuracy" else 4 - reward,
            "metric_flops": 1e6 + 1e4 * number, "metric_original_flops": 4e6, "metric_parameters": 7000.0, "seconds": 3.25,
            "message": "" if outcome == "complete" else "no <b>good</b>",
            "name": "operator_1" if number == 3 else f"glyphs_{number}",
            "operator": "operator x", "fingerprint": "ab" * 8,
            "started": BEGAN + number * MINUTE, "ended": BEGAN + (number + 0.9) * MINUTE,
        })  # fmt: skip
    return pandas.DataFrame(rows)


def results(names: tuple[str, ...] = NAMES, metric: str = "accuracy", **changed: Any) -> Run:
    """Return a run with these parts, which may be tables."""
    given: dict[str, Any] = {
        "name": "glyphs", "trials": trial_table(metric=metric), "scores": score_table(names, metric),
        "latencies": latency_table(names),
        "operators": {name: OPERATORS[name]() for name in names}, "notes": NOTES,
    } | changed  # fmt: skip
    tables = {name: part for name, part in given.items() if isinstance(part, pandas.DataFrame)}
    return Run(**(given | {name: READERS[name](table) for name, table in tables.items()}))


def verdict_of(state: str, speedup: Interval = UNKNOWN, least: float = 1.5, missing: float = 0.0) -> Verdict | None:
    """Return a verdict with this state, by its speedup; None for ""."""
    parts = {one: Part(SPEED, one, speedup, least, missing) for one in STATES}
    return Verdict((parts[state],), ACCURACY) if state in parts else None  # type: ignore[index]


def scores_in(table: pandas.DataFrame) -> list[Score]:
    return [
        Score(
            row.text("operator"), row.text("role"), row.text("key"), row.text("metric"), row.number("score"),
            row.number("score_std"), row.count("seeds"), row.interval("difference"), row.number("flops"),
            row.number("flops_share"), row.number("parameters"), row.number("parameters_share"),
            verdict_of(row.text("verdict"), row.interval("goal_speedup")), row.interval("goal_speedup"), row.text("goal_timed"),
            operator_id=row.text("operator_id") or None,
        )
        for row in rows_in(complete(table, SCORE_COLUMNS, "scores"))
    ]  # fmt: skip


def speedups_in(table: pandas.DataFrame) -> list[Speedup]:
    return [
        Speedup(
            row.text("operator"), row.text("key"), row.text("role"), row.text("device"), row.text("compiler"),
            row.interval("speedup"), row.text("timed"), row.is_true("suspicious"),
        )
        for row in rows_in(table)
    ]  # fmt: skip


def rounds_in(table: pandas.DataFrame) -> list[Round]:
    return [
        Round(row.text("operator"), row.text("metric"), row.count("seed"), row.count("round") or 0, row.number("score") or 0.0)
        for row in rows_in(table)
    ]


def pareto(scores: pandas.DataFrame, latency: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    return pareto_figure(scores_in(scores), latencies_in(latency), results(scores=scores).metric, notes)


def costs(scores: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    return cost_figure(scores_in(scores), results(scores=scores).metric, notes)


def bars(latency: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    return speedup_figure(latencies_in(latency), notes)


def rewards(trials: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    return reward_figure(trials_in(trials), notes)


class Tables(NamedTuple):
    """Tables as other programs read them."""

    scores: pandas.DataFrame
    latency: pandas.DataFrame


def read_tables(experiment: Experiment) -> Tables:
    return Tables(*(pandas.read_parquet(experiment.folder / FOLDER / f"{name}.parquet") for name in (SCORE_FILE, LATENCY)))


def made_tables(experiment: Experiment) -> Tables:
    make_tables(experiment)
    return read_tables(experiment)


READERS: dict[str, Any] = {
    "trials": trials_in, "scores": scores_in, "latencies": latencies_in, "layers": lambda table: latencies_in(table, "layers"),
    "speedups": speedups_in, "parts": parts_in, "rounds": rounds_in,
}  # fmt: skip
SPEEDUP_COLUMNS = (
    "operator", "key", "role", "device", "compiler", "speedup", "speedup_low", "speedup_high", "timed", "suspicious",
)  # fmt: skip


def _scored(
    name: str, id_: str | None, role: str, metric: str, score: float, difference: float, share: float
) -> dict[str, Any]:
    known = role != "original"
    return {
        "operator": name, "operator_id": id_, "role": role, "metric": metric, "score": score, "score_std": 0.004, "seeds": 3,
        "difference": difference, "difference_low": difference - 0.0088 if known else None,
        "difference_high": difference + 0.0088 if known else None,
        "flops": int(3_126_016 * share), "flops_share": share, "parameters": int(78_172 * share), "parameters_share": share,
    }  # fmt: skip


def _latency(row: dict[Any, Any], device: str, compiler: str, latency: float | None, speedup: float) -> dict[str, Any]:
    return {
        "operator": row["operator"], "operator_id": row["operator_id"], "role": row["role"], "device": device,
        "device_name": "Made-up Processor 1 @ 2.00GHz", "compiler": compiler, "status": "failed" if latency is None else "ok",
        "reason": FAILURE if latency is None else None, "latency_ms": latency,
        "latency_low_ms": None if latency is None else 0.97 * latency,
        "latency_high_ms": None if latency is None else 1.04 * latency, "batch": 8, "threads": 1,
        "checked": row["operator"] != "operator_1", "suspicious": row["operator"] == "operator_2" and compiler == "inductor",
        "speedup": None if latency is None else speedup,
    }  # fmt: skip
