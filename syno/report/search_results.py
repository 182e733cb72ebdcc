"""What a search has found: the best operators of a table of trials, and how many trials there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno.report.tables import Row

if TYPE_CHECKING:
    import pandas

METRIC = "metric_"


def search_rows(trials: pandas.DataFrame, count: int) -> list[Row]:
    """A row for each of the best trials: reward and metrics, the highest reward first, the earlier first of equals."""
    complete = trials[trials["outcome"] == "complete"]
    best = complete.sort_values(["reward", "number"], ascending=[False, True]).head(count)
    shown = [str(name) for name in best if str(name).startswith(METRIC) and not str(name).startswith(f"{METRIC}original_")]
    return [
        {"trial": str(row["number"]), "reward": row["reward"], **{name.removeprefix(METRIC): row[name] for name in shown}}
        for _, row in best.iterrows()
    ]


def outcomes(trials: pandas.DataFrame) -> str:
    """How many trials there are, and how they ended, in words."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in trials["outcome"].value_counts().items())
    return f"{len(trials)} trials ({counts})"
