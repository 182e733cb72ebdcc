"""Descriptions of the points of trials in figures, shown as tooltips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from syno.report.points import Point
from syno.run.run import Run


class TrialPoints(Mapping[int, Point]):
    """The description of each trial's point in a figure, by the trial's number; made lazily, since few points are drawn."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._trials = {trial.number: trial for trial in run.trials}

    def __getitem__(self, number: int) -> Point:
        trial, metric, name = self._trials[number], self._run.metric, self._run.trial_operators[number].name
        score, is_known = trial.metrics.get(metric.key), name in self._run.operators
        parts = [f"trial {number}, {name}" if name else f"trial {number}"]
        parts += [trial.outcome if trial.reward is None else f"reward {trial.reward:.4g}"]
        parts += [] if score is None else [f"{metric.name} {metric.text(score)}"]
        return Point(": ".join([parts[0], ", ".join(parts[1:])]), name if is_known else "")

    def __contains__(self, number: object) -> bool:
        return number in self._trials

    def __iter__(self) -> Iterator[int]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)
