"""The points of trials in figures: what each says when the reader points at it."""

from __future__ import annotations

from syno.report.page_tables import trial_operators
from syno.report.points import Point
from syno.report.results import Results


def trial_points(results: Results) -> dict[int, Point]:
    """Return the text at the point of each trial in a figure, by the trial's number."""
    metric, found = results.metric, {}
    operators = trial_operators(results)
    for trial in results.trial_list:
        name, score = operators[trial.number].name, trial.metrics.get(metric.key)
        is_known = name in results.operators
        parts = [f"trial {trial.number}, {name}" if name else f"trial {trial.number}"]
        parts += [trial.outcome if trial.reward is None else f"reward {trial.reward:.4g}"]
        parts += [] if score is None else [f"{metric.name} {metric.text(score)}"]
        found[trial.number] = Point(": ".join([parts[0], ", ".join(parts[1:])]), name if is_known else "")
    return found
