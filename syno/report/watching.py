"""The text of a running search: progress, best operator, goal, rate, and its running, ended and failed trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from syno.base.progress import duration, rate_text
from syno.base.text_tables import Row, markdown, plural
from syno.run.story import goal_so_far, measured_in_trial
from syno.run.table import trials_in
from syno.run.values import Trial, best_first
from syno.search.goal import Goal
from syno.search.snapshot import Snapshot

SHOWN = 5  # running trials, last trials, reasons of failures
LONGEST_REASON = 100  # characters
FAULTY = ("failed", "interrupted", "withdrawn")  # outcomes of trials that have a reason


def watch_text(name: str, snapshot: Snapshot, goal: Goal | None = None) -> str:
    """Return the state of a search in lines, for a terminal or a log. Operators are named after the experiment `name`."""
    parts = ["\n".join(status_lines(name, snapshot, goal))]
    if rows := _running(name, snapshot):
        parts.append(f"running:\n{markdown(rows, left=len(rows[0]))}".rstrip())
    if rows := _latest(name, snapshot):
        parts.append(f"ended last:\n{markdown(rows, left=len(rows[0]))}".rstrip())
    if lines := failure_lines(snapshot):
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def progress_line(name: str, snapshot: Snapshot) -> str:
    """Return the progress of a search, in one line."""
    counts = ", ".join(f"{count} {kind}" for kind, count in snapshot.ended.items() if count)
    parts = [f"{snapshot.finished:,} of {snapshot.planned:,} trials finished" + (f" ({counts})" if counts else "")]
    parts.append(f"{snapshot.running:,} running")
    if snapshot.screened:
        why = ", ".join(f"{count} {reason}" for reason, count in snapshot.screened.items())
        parts.append(f"{sum(snapshot.screened.values()):,} screened out ({why})")
    return f"{name}: {', '.join(parts)}"


def status_lines(name: str, snapshot: Snapshot, goal: Goal | None = None) -> list[str]:
    """Return lines with the progress of a search, its best operator, the state of the goal, and its trials per hour."""
    lines = [progress_line(name, snapshot), _best(name, snapshot)]
    if goal is not None:
        lines.append(goal_so_far(name, _trials(snapshot), goal))
    return [*lines, _rate_line(snapshot), *_end(snapshot)]


def failure_lines(snapshot: Snapshot) -> list[str]:
    """Return a line for each reason why trials failed or were interrupted, with its count, the most frequent first."""
    reasons = Counter[tuple[str, str]]()
    for trial in _trials(snapshot):
        if trial.outcome in FAULTY:
            reasons[trial.outcome, _short(trial.last_line or "its worker died, or was told to stop")] += 1
    shown = [f"{outcome}, {plural(count, 'trial')}: {reason}" for (outcome, reason), count in reasons.most_common(SHOWN)]
    left = sum(reasons.values()) - sum(count for _, count in reasons.most_common(SHOWN))
    return [*shown, *([f"for other reasons: {plural(left, 'trial')}"] if left else [])]


def _best(name: str, snapshot: Snapshot) -> str:
    best = next(iter(best_first(_trials(snapshot))), None)
    if best is None:
        return "best: no trial has a reward yet"
    return ", ".join([f"best: {name}_{best.number}", f"reward {best.reward:.4g}", *measured_in_trial(best.metrics)])


def _rate_line(snapshot: Snapshot) -> str:
    since = snapshot.seconds_since_last
    if since is None:
        return "time: no trial that counts has ended yet"
    parts = [f"{plural(snapshot.recent, 'trial')} ended in the last 10 minutes, the last one {duration(since)} ago"]
    if (rate := snapshot.rate) is not None and not snapshot.is_over:
        parts.append(f"{rate_text(rate.per_second)}, measured over the last {rate.trials} trials")
    if snapshot.seconds_left is not None:
        parts.append(f"estimate: {duration(snapshot.seconds_left)} left at this rate")
    return f"time: {'; '.join(parts)}"


def _end(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.is_over and snapshot.is_exhausted and snapshot.finished < snapshot.planned:
        yield "The search is finished: the space holds no further operator."
    elif snapshot.is_over:
        yield "The search is finished."
    elif snapshot.is_stopped:
        yield f"Failures stopped the search; when they are mended, `syno search` goes on: {_short(snapshot.withdrawn[-1])}"
    elif snapshot.is_idle:
        yield "No trial is running: there is no worker, or one is about to begin. `syno search` goes on with the search."


def _running(name: str, snapshot: Snapshot) -> list[Row]:
    rows = [trial for trial in _trials(snapshot) if trial.outcome == "running"]
    shown: list[Row] = [
        {"trial": f"{name}_{trial.number}", "runs for": _age(snapshot, trial.started), "worker": trial.worker}
        for trial in rows[:SHOWN]
    ]
    return [*shown, *([{"trial": f"and {len(rows) - SHOWN} more"}] if len(rows) > SHOWN else [])]


def _latest(name: str, snapshot: Snapshot) -> list[Row]:
    ended = [(trial.ended, trial) for trial in _trials(snapshot) if trial.ended is not None and trial.outcome != "running"]
    return [
        {
            "trial": f"{name}_{trial.number}",
            "outcome": trial.outcome,
            "ended": f"{_age(snapshot, time)} ago",
            "took": None if trial.seconds is None else duration(trial.seconds),
            "reward": trial.reward,
            "measured": "; ".join(measured_in_trial(trial.metrics)) or _short(trial.last_line or "–"),
        }
        for time, trial in reversed(sorted(ended, key=lambda pair: pair[0])[-SHOWN:])
    ]


def _trials(snapshot: Snapshot) -> list[Trial]:
    return [] if snapshot.trials.empty else trials_in(snapshot.trials)


def _age(snapshot: Snapshot, time: datetime | None) -> str:
    return duration(0.0 if time is None else max(0.0, (snapshot.now - time).total_seconds()))


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
