"""Verdicts as a table, and in sentences: what a search with a goal has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING, Any

from syno.base.files import ORIGINAL
from syno.results.goal import (
    NONE_FASTER,
    SPEED,
    STATES,
    WORDS,
    Span,
    none_faster,
    shares_in,
    speedup_in,
    times_as_fast,
    verdict,
)
from syno.results.metric import ACCURACY, LOSS, METRICS
from syno.results.speedups import APART, BY_LAYERS, IN_TURNS, speedup_apart, speedup_by_layers
from syno.search.goal import COSTS, Goal

if TYPE_CHECKING:
    import pandas

GOAL_COLUMNS = (
    "operator", "key", "role", "verdict", "reason", "missing", "speedup", "speedup_low", "speedup_high", "timed", "lost",
    "lost_low", "lost_high", "least_speedup", "lose_at_most",
)  # fmt: skip
GOAL_SPEEDUP = {  # columns of the scores: the speedup that the verdict is about, from the columns of verdicts
    "goal_speedup": "speedup",
    "goal_speedup_low": "speedup_low",
    "goal_speedup_high": "speedup_high",
}


def goal_speedup(row: Mapping[Any, Any]) -> str:
    """Return the speedup that the verdict on a row of the scores is about, with its interval; "" if there is none."""
    found = Span(*(float(row.get(name, nan)) for name in GOAL_SPEEDUP))
    return "" if isnan(found.value) else times_as_fast(found)


def verdicts(
    goal: Goal,
    scores: pandas.DataFrame,
    latency: pandas.DataFrame,
    searched: Mapping[str, Mapping[str, float]],
    breakdown: pandas.DataFrame | None = None,
) -> pandas.DataFrame:
    """Return a row of `GOAL_COLUMNS` for each network but the original, in the order of the scores.

    The speedup is that of the search, where original and candidate were timed in turns. Without one it is that of the
    breakdown by the goal's compiler on its device, where their layers were timed in turns. Without that, too, it is that of the
    latency table, where they were timed apart; its interval is then that of both latencies.

    Args:
        goal: the goal.
        scores: `syno.results.table.score_view`.
        latency: `syno.results.table.latency_view`.
        searched: the metrics in the search, by the key of the operator.
        breakdown: where the time goes (`syno.results.breakdown.breakdown_table`), if that was measured.
    """
    import pandas

    rows = []
    for row in scores[scores["key"] != ORIGINAL].to_dict("records"):
        metric, metrics = METRICS[row["metric"]], searched.get(row["key"], {})
        sign = -1 if metric.more_is_better else 1
        ends = ("difference", "difference_low", "difference_high") if sign > 0 else (
            "difference", "difference_high", "difference_low"
        )  # fmt: skip
        lost = Span(*(sign * float(nan if row[name] is None else row[name]) for name in ends))
        turns = speedup_in(metrics)
        place = (row["key"], goal.compiler, goal.device)
        by_layers = speedup_by_layers(breakdown, *place)
        speedup = turns or by_layers or speedup_apart(latency, *place)
        shares = {"parameters": row["parameters_share"], **shares_in(metrics)}
        is_asked = goal.lose_at_most is not None or not isnan(lost.value)
        seeds = row.get("seeds")
        known = None if seeds is None or isnan(seeds) else int(seeds)
        found = verdict(goal, metric, speedup, lost if is_asked else None, shares, known)
        timed = None if speedup is None else IN_TURNS if turns else BY_LAYERS if by_layers else APART
        fast = speedup or Span(nan)
        rows.append((
            *(row[name] for name in ("operator", "key", "role")), found.state, found.text, found.missing, *fast, timed, *lost,
            goal.least_speedup, goal.lose_at_most,
        ))  # fmt: skip
    return pandas.DataFrame(rows, columns=list(GOAL_COLUMNS))


# ---- sentences --------------------------------------------------------------------------------------------------------------


def described(goal: Goal) -> str:
    """Return a goal in words."""
    wanted = []
    if goal.speedup is not None:
        wanted.append(f"at least {goal.speedup:g} times as fast as the original with {goal.place}")
    if goal.lose_at_most is not None:
        wanted.append(f"at most {goal.lose_at_most:g} of the score lost")
    wanted += [f"at most {most:g} of the {WORDS[COSTS[option]]}" for option, most in goal.limits.items()]
    of = {"most_accurate": "the most accurate", "fastest": "the fastest", "front": "the best trade-offs of score and speed"}
    return f"{of[goal.find or 'front']} network, {', '.join(wanted)}" if wanted else of[goal.find or "front"]


def answer(goal: Goal, found: pandas.DataFrame) -> list[str]:
    """Return what was found, in sentences: the goal, the operators that meet it, or how near the nearest comes and what helps.

    Args:
        goal: the goal.
        found: the table that `verdicts` returns.
    """
    own = found[found["role"] == "found"]
    lines = [f"Goal: {described(goal)}."]
    if own.empty:
        return [*lines, "No operator was trained and measured yet."]
    speeds = own[own["speedup"].notna()]
    if len(speeds) and not (speeds["speedup"] > 1).any():
        best = speeds.sort_values("speedup", ascending=False, kind="stable").iloc[0]
        span = Span(*(float(best[name]) for name in ("speedup", "speedup_low", "speedup_high")))
        lines.append(none_faster(best["operator"], span, goal.place))
    for state in STATES[:2]:
        for row in own[own["verdict"] == state].to_dict("records"):
            lines.append(f"{row['operator']} {row['reason']}.")
    if not (own["verdict"] == "meets").any():
        nearest = own.sort_values("missing", kind="stable").iloc[0]
        if nearest["verdict"] != "may meet":
            lines.append(f"None of {len(own)} meets it. The nearest, {nearest['operator']}, {nearest['reason']}.")
        lines.append(_help(goal, nearest.to_dict()))
    return lines


def _help(goal: Goal, row: Mapping[Any, Any]) -> str:
    if row["verdict"] == "may meet":
        if goal.lose_at_most is not None and not (isfinite(row["lost_low"]) and isfinite(row["lost_high"])):
            return "Without an interval of the score nothing is certain: train with more seeds (train: seeds)."
        return "More seeds (train: seeds) and longer timing (tune: latency: least_ms) would narrow the intervals."
    return help_with([name for name, is_missed in (
        (SPEED, goal.speedup is not None and row["speedup"] < goal.speedup),
        (ACCURACY.name, goal.lose_at_most is not None and row["lost"] > goal.lose_at_most),
    ) if is_missed])  # fmt: skip


def help_with(binding: Sequence[str]) -> str:
    """Return what would help where these requirements are not met."""
    if SPEED in binding and {ACCURACY.name, LOSS.name} & {*binding}:
        return "Both speed and score bind: search longer (study: n_trials), or ask for less of one of the two."
    if SPEED in binding:
        return (
            "The speed binds: ask for less (goal: speedup), lower the bounds of the costs (relative_budget: most_flops), or "
            "search longer (study: n_trials)."
        )
    if {ACCURACY.name, LOSS.name} & {*binding}:
        return "The score binds: allow a larger loss (goal: lose_at_most), train longer, or search longer (study: n_trials)."
    return "Search longer (study: n_trials), or ask for less."


def end_of_search(goal: Goal, trials: pandas.DataFrame, n_trials: int) -> str | None:
    """Return in words that a search has ended before its number of trials, and how near the best operator came; None if not."""
    if trials.empty:
        return None
    trained = int(trials["outcome"].isin(["complete", "pruned", "paused", "failed"]).sum())
    out = trials[trials["outcome"] == "screened"]
    if out.empty or trained >= n_trials:
        return None
    kinds = out["message"].str.partition(":")[0].value_counts()
    why = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    nearest = ""
    if "metric_speedup" in out and out["metric_speedup"].notna().any():
        best = out.sort_values("metric_speedup", ascending=False, kind="stable").iloc[0]
        first = "" if best["metric_speedup"] > 1 else f" {NONE_FASTER.capitalize()}."
        nearest = (
            f"{first} The fastest of them was {best['metric_speedup']:.2f} times as fast ({best['metric_speedup_low']:.2f} to "
            f"{best['metric_speedup_high']:.2f}); the goal is {goal.least_speedup:g}."
        )
    speed_binds = kinds.get("too slow", 0) >= len(out) / 2
    return (
        f"{trained} of {n_trials} trials were trained when the search ended, since {len(out)} operators cannot meet the goal "
        f"({why}).{nearest} {help_with([SPEED] if speed_binds else [])} goal: most_screened is when a search ends"
    )
