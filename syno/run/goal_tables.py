"""The verdicts on the networks of a run, and in sentences what a search with a goal has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan, nan
from typing import NamedTuple

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.run.goal import (
    NONE_FASTER,
    SPEED,
    STATES,
    WORDS,
    judge,
    none_faster,
    shares_in,
    speedup_in,
    times_as_fast,
)
from syno.run.rivals import best_in_words, best_of, choice_in_words, compared, worth
from syno.run.speedups import APART, BY_LAYERS, IN_SEARCH, IN_TURNS, speedup_apart, speedup_by_layers
from syno.run.values import Latency, Score, TimedPart, Trial
from syno.search.goal import COSTS, Goal
from syno.train.metric import METRICS, Metric

SELECTED_BY = "the speedup is the one of the search, by which it was selected, and may be too high"
TRAINED = ("complete", "pruned", "paused")  # outcomes of trials whose operators may meet the goal
PREDICTED, SCREENED = "predicted", "screened"  # how a speedup is known, and the role of an operator that was screened out


def goal_speedup(row: Score) -> str:
    """Return the speedup that the verdict on a network is about, with its interval; "" if there is none.

    One that was not measured again after the selection says so.
    """
    when = " in the search" if row.timed == IN_SEARCH else ""
    return "" if isnan(row.speedup.value) else f"{times_as_fast(row.speedup)}{when}"


def judged_networks(
    goal: Goal,
    scores: Sequence[Score],
    latencies: Sequence[Latency],
    searched: Mapping[str, Mapping[str, float]],
    parts: Sequence[TimedPart] = (),
    again: Mapping[str, Interval] | None = None,
    rivals: Mapping[str, tuple[str, Interval]] | None = None,
) -> list[Score]:
    """Return each network but the original with the verdict on it, in the order of the scores.

    The speedup is the one that was measured after the selection, where original and candidate were timed in turns: its interval
    contains the true one in 95 % of all cases. Without one it is that of the search, by which the operator was selected, and
    the reason says so. Without that, too, it is that of the breakdown by the goal's compiler on its device, where their layers
    were timed in turns, and at last that of the latencies, where they were timed apart; its interval is then that of both
    latencies.

    Args:
        goal: the goal.
        scores: of the networks.
        latencies: of the networks.
        searched: the metrics in the search, by the key of the operator.
        parts: where the time goes, if that was measured.
        again: the speedups that were measured after the selection, by the key of the operator.
        rivals: how the rivals were timed, and their speedups, by their keys.
    """
    judged = []
    for one in scores:
        if one.key == ORIGINAL:
            continue
        metrics, place = searched.get(one.key, {}), (one.key, goal.compiler, goal.device)
        known = (
            (rivals or {}).get(one.key, ("", None)),
            (IN_TURNS, (again or {}).get(one.key)),
            (IN_SEARCH, speedup_in(metrics)),
            (BY_LAYERS, speedup_by_layers(parts, *place)),
            (APART, speedup_apart(latencies, *place)),
        )
        timed, speedup = next(((how, ratio) for how, ratio in known if ratio is not None), ("", None))
        shares = {"parameters": nan if one.parameters_share is None else one.parameters_share, **shares_in(metrics)}
        is_asked = goal.lose_at_most is not None or not isnan(one.lost.value)
        verdict = judge(goal, METRICS[one.metric], speedup, one.lost if is_asked else None, shares, one.seeds)
        reason = f"{verdict.text}; {SELECTED_BY}" if timed == IN_SEARCH and goal.measures else verdict.text
        judged.append(replace(
            one, verdict=verdict.state, reason=reason, missing=verdict.missing, speedup=speedup or Interval(nan), timed=timed
        ))  # fmt: skip
    return judged


def described(goal: Goal, metric: Metric | None = None) -> str:
    """Return a goal in words, with the unit of the score if that is one of a task of one's own."""
    wanted = []
    if goal.speedup is not None:
        wanted.append(f"at least {goal.speedup:g} times as fast as the original with {goal.place}")
    if goal.lose_at_most is not None:
        is_own = metric is not None and metric.margin is None
        wanted.append(
            f"at most {metric.amount(goal.lose_at_most)} of the {metric.name} lost"
            if metric is not None and is_own
            else f"at most {goal.lose_at_most:g} of the score lost"
        )
    wanted += [f"at most {most:g} of the {WORDS[COSTS[option]]}" for option, most in goal.limits.items()]
    of = {"most_accurate": "the most accurate", "fastest": "the fastest", "front": "the best trade-offs of score and speed"}
    return f"{of[goal.find or 'front']} network, {', '.join(wanted)}" if wanted else of[goal.find or "front"]


def answer(goal: Goal, judged: Sequence[Score], metric: Metric | None = None, networks: Sequence[Score] = ()) -> list[str]:
    """Return the answer to the goal, in sentences: the operators that meet it, or the nearest one and what helps.

    Args:
        goal: the goal.
        judged: the networks, with their verdicts.
        metric: of the scores; None if it is not known.
        networks: all that were trained. With rivals, the answer begins with the best of all, and what synthesis is worth.
    """
    own = [one for one in judged if one.role == "found"]
    lines = [f"Goal: {described(goal, metric)}."]
    if metric is not None:
        lines += ["".join(parts) for parts in beside_rivals(goal, metric, networks)]
    if not own:
        return [*lines, "No operator was trained and measured yet."]
    fastest = max((one for one in own if not isnan(one.speedup.value)), key=lambda one: one.speedup.value, default=None)
    if fastest is not None and not fastest.speedup.value > 1:
        lines.append(none_faster(fastest.operator, fastest.speedup, goal.place))
    for state in STATES[:2]:
        lines += [f"{one.operator} {one.reason}." for one in own if one.verdict == state]
    if not any(one.verdict == "meets" for one in own):
        nearest = min(own, key=lambda one: one.missing)
        if nearest.verdict != "may meet":
            lines.append(f"None of {len(own)} meets it. The nearest, {nearest.operator}, {nearest.reason}.")
        lines.append(_help(goal, nearest))
    return lines


def beside_rivals(goal: Goal, metric: Metric, networks: Sequence[Score]) -> list[tuple[str, str, str]]:
    """Return which network is the best of all, and what synthesis is worth, in sentences; none without rivals.

    The name of the network stands between two texts.
    """
    if not any(one.role == "rival" for one in networks):
        return []
    best, found = best_of(networks, goal, metric), compared(networks, goal, metric)
    lines = [] if best is None else [best_in_words(best, goal, metric), ("", "", choice_in_words(best))]
    lines += [] if found is None else [("", "", worth(found, metric))]
    return [line for line in lines if any(line)]


def _help(goal: Goal, judged: Score) -> str:
    if judged.verdict == "may meet":
        if goal.lose_at_most is not None and not (isfinite(judged.lost.low) and isfinite(judged.lost.high)):
            return "Without an interval of the score nothing is certain: train with more seeds (train: seeds)."
        return "More seeds (train: seeds) and longer timing (tune: latency: least_ms) would narrow the intervals."
    return help_with([name for name, is_missed in (
        (SPEED, goal.speedup is not None and judged.speedup.value < goal.speedup),
        ("score", goal.lose_at_most is not None and judged.lost.value > goal.lose_at_most),
    ) if is_missed])  # fmt: skip


def help_with(binding: Sequence[str]) -> str:
    """Return advice for the requirements that are not met."""
    has_score = not {SPEED, *WORDS.values()}.issuperset(binding)
    if SPEED in binding and has_score:
        return "Both speed and score bind: search longer (study: n_trials), or ask for less of one of the two."
    if SPEED in binding:
        return (
            "The speed binds: ask for less (goal: speedup), lower the bounds of the costs (relative_budget: most_flops), or "
            "search longer (study: n_trials)."
        )
    if has_score:
        return "The score binds: allow a larger loss (goal: lose_at_most), train longer, or search longer (study: n_trials)."
    return "Search longer (study: n_trials), or ask for less."


def end_of_search(goal: Goal, trials: Sequence[Trial], n_trials: int) -> str | None:
    """Return in words that a search has ended before its number of trials, and how near the best operator came; None if not."""
    counted = sum(trial.outcome in (*TRAINED, "failed") for trial in trials)
    out = [trial for trial in trials if trial.outcome == "screened"]
    nothing = nothing_meets(goal, trials)
    if not out or (counted >= n_trials and nothing is None):
        return None
    kinds = Counter(trial.message.partition(":")[0] for trial in out)
    why = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    if failed := sum(trial.outcome == "failed" for trial in trials):
        why += f"; {failed} failed in training"
    advice = help_with([SPEED] if kinds["too slow"] >= len(out) / 2 else [])
    is_limit = len(out) >= goal.screened_for(n_trials)
    end = "goal: most_screened is when a search ends" if is_limit else "No other operator is left in the space"
    if nothing is not None:
        return f"{nothing} ({why}). {advice} {end}"
    return (
        f"{counted} of {n_trials} trials were trained when the search ended, since {len(out)} operators cannot meet the goal "
        f"({why}): {_nearest(goal, out)}. {advice} {end}"
    )


class Screened(NamedTuple):
    """An operator that was screened out.

    Attributes:
        trial: its trial.
        speedup: as measured or, if that was enough to screen the operator out, as predicted; NaN if neither is known.
        timed: which of the two, `IN_TURNS` or `PREDICTED`; None if neither is known.
        missing: by how much the goal is missed, as a share (`syno.run.goal.Part`); None where nothing is known.
    """

    trial: Trial
    speedup: Interval
    timed: str | None
    missing: float | None


def nearest_screened(goal: Goal, trials: Iterable[Trial]) -> list[Screened]:
    """Return the trials that were screened out, the nearest to the goal first."""
    found = [_screened(goal, trial) for trial in trials if trial.outcome == "screened"]
    return sorted(found, key=lambda one: (one.missing is None, one.missing, -one.speedup.value if one.timed else 0.0))


def _screened(goal: Goal, trial: Trial) -> Screened:
    measured, predicted = (speedup_in(trial.metrics, name) for name in (SPEED, f"predicted_{SPEED}"))
    speedup = measured or predicted
    timed = IN_TURNS if measured is not None else PREDICTED if predicted is not None else None
    shares = ((trial.metrics.get(f"{COSTS[option]}_share", 0.0), most) for option, most in goal.limits.items())
    over = [share - most for share, most in shares if share > most]
    slow = 0.0 if speedup is None or not goal.least_speedup else max(0.0, 1 - speedup.value / goal.least_speedup)
    return Screened(trial, speedup or Interval(nan), timed, sum(over) + slow if timed or over else None)


def nothing_meets(goal: Goal, trials: Sequence[Trial]) -> str | None:
    """Return the sentence for a search in which nothing met the goal, with the nearest operator; None if one was trained."""
    outcomes = {trial.outcome for trial in trials}
    return None if outcomes & {*TRAINED} or "screened" not in outcomes else f"nothing meets the goal: {_nearest(goal, trials)}"


def _nearest(goal: Goal, trials: Iterable[Trial]) -> str:
    """Return the distance of the nearest screened operator from the goal, in words."""
    out = nearest_screened(goal, trials)
    best = max((one for one in out if one.timed is not None), key=lambda one: one.speedup.value, default=None)
    if best is None:
        return _smallest(goal, out)
    of = f"the fastest of {len(out)}" if len(out) > 1 else "the only operator"
    verb = "is" if best.timed == IN_TURNS else "is predicted to be"
    slower = "" if best.speedup.value > 1 else f"{NONE_FASTER}; "
    return f"{slower}{of} {verb} {times_as_fast(best.speedup, ' times as fast')}, and the goal is {goal.least_speedup:g}"


def _smallest(goal: Goal, out: Sequence[Screened]) -> str:
    """Return a clause: the limit of cost that the nearest operator exceeds, or the reason why none was measured."""
    for option, most in goal.limits.items():
        share = out[0].trial.metrics.get(f"{COSTS[option]}_share", nan)
        if share > most:
            of = f"the smallest of {len(out)}" if len(out) > 1 else "the only operator"
            return f"{of} has {share:.3g} of the original's {WORDS[COSTS[option]]}, and the goal is at most {most:g}"
    return f"none of {len(out)} operators could be measured; the last: {out[-1].trial.message}"
