"""A running search in words: how far it is, the best operator, the goal, the rate, and what runs, has ended and has failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from syno.base.progress import duration, rate_text
from syno.base.text_tables import Row, markdown
from syno.report.results import metrics_of, rewarded
from syno.results.goal import SPEED, STATES, fastest_of, order_of_trial, speedup_in, times_as_fast, verdict_on_trial
from syno.results.metric import METRICS
from syno.search.goal import Goal
from syno.search.reward import OF_ORIGINAL, score_of
from syno.search.snapshot import Snapshot

SHOWN = 5  # running trials, last trials, reasons of failures
LONGEST_REASON = 100  # characters
VERBS = {  # of one trial, and of several
    "meets": ("meets it", "meet it"), "may meet": ("may meet it",) * 2, "misses": ("misses it", "miss it"),
    "unknown": ("is uncertain", "are uncertain"),
}  # fmt: skip
FAULTY = ("failed", "interrupted", "withdrawn")  # outcomes of trials that have a reason
Trial = Mapping[Hashable, Any]


def watch_text(name: str, found: Snapshot, goal: Goal | None = None) -> str:
    """Return a search in lines, for a terminal or a log. `name` is the experiment's, with which operators are named."""
    parts = ["\n".join(status_lines(name, found, goal))]
    if rows := _running(name, found):
        parts.append(f"running:\n{markdown(rows, left=len(rows[0]))}".rstrip())
    if rows := _latest(name, found):
        parts.append(f"ended last:\n{markdown(rows, left=len(rows[0]))}".rstrip())
    if lines := failure_lines(found):
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def progress_line(name: str, found: Snapshot) -> str:
    """Return how far a search is, in one line."""
    counts = ", ".join(f"{count} {kind}" for kind, count in found.ended.items() if count)
    parts = [f"{found.finished:,} of {found.planned:,} trials finished" + (f" ({counts})" if counts else "")]
    parts.append(f"{found.running:,} running")
    if found.screened:
        why = ", ".join(f"{count} {reason}" for reason, count in found.screened.items())
        parts.append(f"{sum(found.screened.values()):,} screened out ({why})")
    return f"{name}: {', '.join(parts)}"


def status_lines(name: str, found: Snapshot, goal: Goal | None = None) -> list[str]:
    """Return how far a search is, its best operator, the state of the goal, and its rate, in a line each."""
    lines = [progress_line(name, found), _best(name, found)]
    if goal is not None:
        lines.append(_of_goal(name, found, goal))
    return [*lines, _of_time(found), *_end(found)]


def failure_lines(found: Snapshot) -> list[str]:
    """Return the reasons for which trials failed or were interrupted, the most frequent first, and how often."""
    reasons = Counter[tuple[str, str]]()
    for trial in _trials(found):
        if trial["outcome"] in FAULTY:
            lines = str(trial["message"]).strip().splitlines() or ["its worker died, or was told to stop"]
            reasons[str(trial["outcome"]), _short(lines[-1])] += 1  # of a traceback, the last line is the error
    shown = [f"{outcome}, {count} {_trials_word(count)}: {reason}" for (outcome, reason), count in reasons.most_common(SHOWN)]
    left = sum(reasons.values()) - sum(count for _, count in reasons.most_common(SHOWN))
    return [*shown, *([f"for other reasons: {left} {_trials_word(left)}"] if left else [])]


def _best(name: str, found: Snapshot) -> str:
    if found.trials.empty or (done := rewarded(found.trials)).empty:
        return "best: no trial has a reward yet"
    row = done.sort_values(["reward", "number"], ascending=[False, True]).iloc[0].to_dict()
    return f"best: {name}_{row['number']}, reward {row['reward']:.4g}{''.join(f', {part}' for part in _measured(row))}"


def _measured(row: Trial) -> Iterator[str]:
    """Yield the score, the speedup and the costs of a trial, as far as they were measured."""
    metrics = metrics_of(row)
    metric = METRICS.get(score_of(metrics) or "")
    if metric is not None:
        original = metrics.get(f"{OF_ORIGINAL}{metric.name}")
        beside = "" if original is None else f" (original {metric.text(original)})"
        yield f"{metric.name} {metric.text(metrics[metric.name])}{beside}"
    elif "value" in metrics:
        yield f"value {metrics['value']:.4g}"
    if (speedup := speedup_in(metrics)) is not None:
        yield f"{SPEED} {times_as_fast(speedup)}"
    if "flops" in metrics:
        original = metrics.get(f"{OF_ORIGINAL}flops")
        yield f"{metrics['flops'] / original:.1%} of the original's FLOPs" if original else f"{metrics['flops']:,.0f} FLOPs"


def _of_goal(name: str, found: Snapshot, goal: Goal) -> str:
    """Return how many trained operators meet the goal, and the verdict on the nearest."""
    done = [] if found.trials.empty else [dict(row) for row in rewarded(found.trials).to_dict("records")]
    judged = [(verdict_on_trial(goal, metrics_of(row)), row) for row in done]
    if not judged:
        speeds = [one for trial in _trials(found) if (one := speedup_in(metrics_of(trial))) is not None]
        fastest = max(speeds, key=lambda one: one.value, default=None)
        measured = "" if fastest is None else f"; {fastest_of(fastest, 'the fastest operator so far')}"
        return f"goal: no trial is complete yet{measured}"
    counts = Counter(one.state for one, _ in judged)
    nearest, row = min(judged, key=lambda pair: (*order_of_trial(goal, metrics_of(pair[1])), -pair[1]["reward"]))
    states = ", ".join(f"{counts[state]} {VERBS[state][counts[state] != 1]}" for state in STATES if counts[state])
    said = f"of {len(judged)} complete {_trials_word(len(judged))}, {states}"
    return f"goal: {said}; the nearest, {name}_{row['number']}, {nearest.text}"


def _of_time(found: Snapshot) -> str:
    since = found.seconds_since_last
    if since is None:
        return "time: no trial that counts has ended yet"
    parts = [f"{found.recent} {_trials_word(found.recent)} ended in the last 10 minutes, the last one {duration(since)} ago"]
    if (rate := found.rate) is not None and not found.is_over:
        parts.append(f"{rate_text(rate.per_second)}, measured over the last {rate.trials} trials")
    if found.seconds_left is not None:
        parts.append(f"estimate: {duration(found.seconds_left)} left at this rate")
    return f"time: {'; '.join(parts)}"


def _end(found: Snapshot) -> Iterator[str]:
    if found.is_over and found.is_exhausted and found.finished < found.planned:
        yield "The search is finished: the space holds no further operator."
    elif found.is_over:
        yield "The search is finished."
    elif found.is_stopped:
        yield f"Failures stopped the search; when they are mended, `syno search` goes on: {_short(found.withdrawn[-1])}"
    elif found.is_idle:
        yield "No trial is running: there is no worker, or one is about to begin. `syno search` goes on with the search."


def _running(name: str, found: Snapshot) -> list[Row]:
    rows = [trial for trial in _trials(found) if trial["outcome"] == "running"]
    shown: list[Row] = [
        {"trial": f"{name}_{trial['number']}", "runs for": _age(found, trial["started"]), "worker": str(trial["worker"])}
        for trial in rows[:SHOWN]
    ]
    return [*shown, *([{"trial": f"and {len(rows) - SHOWN} more"}] if len(rows) > SHOWN else [])]


def _latest(name: str, found: Snapshot) -> list[Row]:
    rows = [trial for trial in _trials(found) if trial["ended"] == trial["ended"] and trial["ended"] is not None]
    rows = sorted((row for row in rows if row["outcome"] != "running"), key=lambda row: row["ended"])[-SHOWN:]
    return [
        {
            "trial": f"{name}_{trial['number']}",
            "outcome": trial["outcome"],
            "ended": f"{_age(found, trial['ended'])} ago",
            "took": duration(trial["seconds"]) if trial["seconds"] == trial["seconds"] else None,
            "reward": trial["reward"] if trial["reward"] == trial["reward"] else None,
            "measured": "; ".join(_measured(trial)) or _short(str(trial["message"]).strip().splitlines()[-1:] or ["–"]),
        }
        for trial in reversed(rows)
    ]


def _trials(found: Snapshot) -> list[Trial]:
    return [dict(row) for row in found.trials.to_dict("records")]


def _age(found: Snapshot, time: Any) -> str:
    return duration(max(0.0, (found.now - time).total_seconds()))


def _short(text: str | list[str]) -> str:
    line = " ".join(text if isinstance(text, list) else [text])
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"


def _trials_word(count: int) -> str:
    return "trial" if count == 1 else "trials"
