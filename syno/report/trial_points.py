"""The points of trials in figures: what each says when the reader points at it."""

from __future__ import annotations

from syno.report.page_tables import number as known_number
from syno.report.page_tables import trial_operators
from syno.report.points import Point
from syno.report.results import TRIAL_COLUMNS, Results, complete


def trial_points(results: Results) -> dict[int, Point]:
    """Return what the point of each trial in a figure says, by the trial's number."""
    metric, found = results.metric, {}
    operators = trial_operators(results)
    for row in complete(results.trials, TRIAL_COLUMNS, "trials").to_dict("records"):
        number, reward, score = int(row["number"]), known_number(row["reward"]), known_number(row.get(metric.column))
        name = operators[number].name
        is_known = name in results.operators
        parts = [f"trial {number}, {name}" if name else f"trial {number}"]
        parts += [str(row["outcome"]) if reward is None else f"reward {reward:.4g}"]
        parts += [] if score is None else [f"{metric.name} {score:.4f}"]
        found[number] = Point(": ".join([parts[0], ", ".join(parts[1:])]), name if is_known else "")
    return found
