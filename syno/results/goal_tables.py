"""Verdicts as a table, and in sentences: what a search with a goal has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING, Any

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.results.goal import (
    NONE_FASTER,
    SPEED,
    STATES,
    WORDS,
    none_faster,
    shares_in,
    speedup_in,
    times_as_fast,
    verdict,
)
from syno.results.metric import ACCURACY, LOSS, METRICS
from syno.results.speedups import APART, BY_LAYERS, IN_SEARCH, IN_TURNS, speedup_apart, speedup_by_layers
from syno.results.values import Score
from syno.search.goal import COSTS, Goal

if TYPE_CHECKING:
    import pandas

GOAL_COLUMNS = (
    "operator", "key", "role", "verdict", "reason", "missing", "speedup", "speedup_low", "speedup_high", "timed", "lost",
    "lost_low", "lost_high", "least_speedup", "lose_at_most",
)  # fmt: skip
SELECTED_BY = "the speedup is the one of the search, by which it was selected, and may be too high"
TRAINED = ("complete", "pruned", "paused")  # outcomes of trials whose operators may meet the goal
PREDICTED, SCREENED = "predicted", "screened"  # how a speedup is known, and the role of an operator that was screened out
GOAL_SPEEDUP = {  # columns of the scores: the speedup that the verdict is about, from the columns of verdicts
    "goal_speedup": "speedup",
    "goal_speedup_low": "speedup_low",
    "goal_speedup_high": "speedup_high",
}

GOAL_TIMED = "goal_timed"  # the column of the scores that says how it was timed


def goal_speedup(row: Score) -> str:
    """Return the speedup that the verdict on a network is about, with its interval; "" if there is none.

    One that was not measured again after the selection says so.
    """
    when = " in the search" if row.timed == IN_SEARCH else ""
    return "" if isnan(row.speedup.value) else f"{times_as_fast(row.speedup)}{when}"


def verdicts(
    goal: Goal,
    scores: pandas.DataFrame,
    latency: pandas.DataFrame,
    searched: Mapping[str, Mapping[str, float]],
    breakdown: pandas.DataFrame | None = None,
    again: Mapping[str, Interval] | None = None,
) -> pandas.DataFrame:
    """Return a row of `GOAL_COLUMNS` for each network but the original, in the order of the scores.

    The speedup is the one that was measured after the selection, where original and candidate were timed in turns: its interval
    contains the true one in 95 % of all cases. Without one it is that of the search, by which the operator was selected, and
    the reason says so. Without that, too, it is that of the breakdown by the goal's compiler on its device, where their layers
    were timed in turns, and at last that of the latency table, where they were timed apart; its interval is then that of both
    latencies.

    Args:
        goal: the goal.
        scores: `syno.results.table.score_view`.
        latency: `syno.results.table.latency_view`.
        searched: the metrics in the search, by the key of the operator.
        breakdown: where the time goes (`syno.results.breakdown.breakdown_table`), if that was measured.
        again: the speedups that were measured after the selection, by the key of the operator.
    """
    import pandas

    rows = []
    for row in scores[scores["key"] != ORIGINAL].to_dict("records"):
        metric, metrics = METRICS[row["metric"]], searched.get(row["key"], {})
        sign = -1 if metric.more_is_better else 1
        ends = ("difference", "difference_low", "difference_high") if sign > 0 else (
            "difference", "difference_high", "difference_low"
        )  # fmt: skip
        lost = Interval(*(sign * float(nan if row[name] is None else row[name]) for name in ends))
        place = (row["key"], goal.compiler, goal.device)
        known = (
            (IN_TURNS, (again or {}).get(row["key"])),
            (IN_SEARCH, speedup_in(metrics)),
            (BY_LAYERS, speedup_by_layers(breakdown, *place)),
            (APART, speedup_apart(latency, *place)),
        )
        timed, speedup = next(((how, one) for how, one in known if one is not None), (None, None))
        shares = {"parameters": row["parameters_share"], **shares_in(metrics)}
        is_asked = goal.lose_at_most is not None or not isnan(lost.value)
        seeds = row.get("seeds")
        trained = None if seeds is None or isnan(seeds) else int(seeds)
        found = verdict(goal, metric, speedup, lost if is_asked else None, shares, trained)
        reason = f"{found.text}; {SELECTED_BY}" if timed == IN_SEARCH and goal.measures else found.text
        rows.append((
            *(row[name] for name in ("operator", "key", "role")), found.state, reason, found.missing,
            *(speedup or Interval(nan)), timed, *lost, goal.least_speedup, goal.lose_at_most,
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
        span = Interval(*(float(best[name]) for name in ("speedup", "speedup_low", "speedup_high")))
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
    counted = int(trials["outcome"].isin([*TRAINED, "failed"]).sum())
    out = trials[trials["outcome"] == "screened"]
    nothing = nothing_meets(goal, trials)
    if out.empty or (counted >= n_trials and nothing is None):
        return None
    kinds = out["message"].str.partition(":")[0].value_counts()
    why = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    if failed := int((trials["outcome"] == "failed").sum()):
        why += f"; {failed} failed in training"
    advice = help_with([SPEED] if kinds.get("too slow", 0) >= len(out) / 2 else [])
    is_limit = len(out) >= goal.screened_for(n_trials)
    end = "goal: most_screened is when a search ends" if is_limit else "No other operator is left in the space"
    if nothing is not None:
        return f"{nothing} ({why}). {advice} {end}"
    return (
        f"{counted} of {n_trials} trials were trained when the search ended, since {len(out)} operators cannot meet the goal "
        f"({why}): {_nearest(goal, out)}. {advice} {end}"
    )


# ---- operators that were screened out ---------------------------------------------------------------------------------------


def nearest_screened(goal: Goal, trials: pandas.DataFrame) -> pandas.DataFrame:
    """Return the trials whose operators were screened out, the nearest to the goal first, with these columns added.

    `speedup`, `speedup_low` and `speedup_high`: as measured or, if that was enough to screen the operator out, as predicted;
    `timed`: which of the two; `missing`: by how much the goal is missed, as a share (`syno.results.goal.Part`).
    """
    import pandas

    found = trials[trials["outcome"] == "screened"]
    rows = []
    for row in found.to_dict("records"):
        speed, timed = Interval(nan), None
        for prefix, how in (("", IN_TURNS), ("predicted_", PREDICTED)):
            value = row.get(f"metric_{prefix}{SPEED}", nan)
            if timed is None and value is not None and not isnan(value):
                speed, timed = Interval(*(row[f"metric_{prefix}{SPEED}{end}"] for end in ("", "_low", "_high"))), how
        over = [
            share - most
            for option, most in goal.limits.items()
            if (share := row.get(f"metric_{COSTS[option]}_share")) is not None and share > most
        ]
        slow = 0.0 if timed is None or not goal.least_speedup else max(0.0, 1 - speed.value / goal.least_speedup)
        is_known = timed is not None or over
        rows.append((*speed, timed, sum(over) + slow if is_known else nan))
    columns = [SPEED, f"{SPEED}_low", f"{SPEED}_high", "timed", "missing"]
    more = pandas.DataFrame(rows, columns=columns, index=found.index)
    return pandas.concat([found, more], axis=1).sort_values(["missing", SPEED], ascending=[True, False], kind="stable")


def nothing_meets(goal: Goal, trials: pandas.DataFrame) -> str | None:
    """Return that nothing meets the goal, and how near the nearest operator comes; None if an operator was trained."""
    if trials.empty or trials["outcome"].isin(TRAINED).any() or not (trials["outcome"] == "screened").any():
        return None
    return f"nothing meets the goal: {_nearest(goal, trials)}"


def _nearest(goal: Goal, trials: pandas.DataFrame) -> str:
    """Return how near the nearest of the operators that were screened out comes, in words."""
    out = nearest_screened(goal, trials)
    if not len(timed := out[out["timed"].notna()]):
        return _smallest(goal, out)
    row = timed.sort_values([SPEED], ascending=False, kind="stable").iloc[0]
    speed = Interval(*(float(row[name]) for name in (SPEED, f"{SPEED}_low", f"{SPEED}_high")))
    of = f"the fastest of {len(out)}" if len(out) > 1 else "the only operator"
    verb = "is" if row["timed"] == IN_TURNS else "is predicted to be"
    slower = "" if speed.value > 1 else f"{NONE_FASTER}; "
    return f"{slower}{of} {verb} {times_as_fast(speed, ' times as fast')}, and the goal is {goal.least_speedup:g}"


def _smallest(goal: Goal, out: pandas.DataFrame) -> str:
    """Return the costs of the nearest of operators whose speedups are not known, or why nothing is known of them."""
    row = out.iloc[0].to_dict()
    for option, most in goal.limits.items():
        share = row.get(f"metric_{COSTS[option]}_share", nan)
        if share > most:
            of = f"the smallest of {len(out)}" if len(out) > 1 else "the only operator"
            return f"{of} has {share:.3g} of the original's {WORDS[COSTS[option]]}, and the goal is at most {most:g}"
    return f"none of {len(out)} operators could be measured; the last: {out.iloc[-1]['message']}"
