"""What a search has found: the best operators of a table of trials, and how many trials there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno.base.text_tables import Row

if TYPE_CHECKING:
    import pandas

METRIC = "metric_"


def search_rows(trials: pandas.DataFrame, study: str, count: int) -> list[Row]:
    """A row for each of the best trials, the highest reward first, the earlier first of equals.

    Each has the name of its operator in the store, its reward and its metrics.
    """
    complete = trials[trials["outcome"] == "complete"]
    best = complete.sort_values(["reward", "number"], ascending=[False, True]).head(count)
    metrics = {str(column): str(column).removeprefix(METRIC) for column in best if str(column).startswith(METRIC)}
    shown = {column: name for column, name in metrics.items() if not name.startswith("original_")}
    return [
        {
            "operator": f"{study}_{row['number']}",
            "reward": row["reward"],
            **{name: row[column] for column, name in shown.items()},
        }
        for _, row in best.iterrows()
    ]


def outcomes(trials: pandas.DataFrame) -> str:
    """How many trials there are, and how they ended, in words."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in trials["outcome"].value_counts().items())
    return f"{len(trials)} trials ({counts})"
