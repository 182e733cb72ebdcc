"""What a finished experiment has found, as tables: the input of its figures and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas

from syno.base.errors import SpecError, suggestion
from syno.ir.graph import PGraph
from syno.results.metric import ACCURACY, METRICS, ScoreMetric, metric_of_trials
from syno.results.table import LATENCY_COLUMNS, SCORE_COLUMNS
from syno.train.settings import ORIGINAL

ROLES = (ORIGINAL, "baseline", "found")
TRIAL_COLUMNS = ("number", "outcome", "reward")


@dataclass(frozen=True)
class Results:
    """The results of one experiment. Each table may be empty.

    Attributes:
        name: of the experiment.
        trials: one row for each trial (`syno.search.storage.records.table`).
        scores: one row for each operator (`SCORE_COLUMNS`), all of one `metric`: the score is the mean over seeds; the
            difference is from the original's, with its 95 % interval (NaN where that is not known); FLOPs are those of one
            sample; shares are of the original network's.
        latency: one row for each operator, device and compiler (`LATENCY_COLUMNS`): `status` is "ok" or says what failed
            or, with "partial", that some of it is not tuned; `speedup` is of those that are "ok", over the original on the
            same device with the same compiler.
        operators: by the name that the tables use; the original is not among them.
        notes: where the results come from.

    Raises SpecError if a table lacks a column, or the scores are of no metric or of several.
    """

    name: str
    trials: pandas.DataFrame
    scores: pandas.DataFrame
    latency: pandas.DataFrame
    operators: Mapping[str, PGraph]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        complete(self.trials, TRIAL_COLUMNS, "trials")
        complete(self.scores, SCORE_COLUMNS, "scores")
        metric_of(self.scores)
        complete(self.latency, LATENCY_COLUMNS, "latency")

    @property
    def metric(self) -> ScoreMetric:
        """Of the scores; of the trials, where nothing was trained again; accuracy, where there are none."""
        if self.scores.empty:
            return metric_of_trials(self.trials.columns) or ACCURACY
        return metric_of(self.scores)


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        title: what it shows.
        svg: an SVG document.
        caption: how to read it.
    """

    title: str
    svg: str
    caption: str = ""


def metric_of(scores: pandas.DataFrame) -> ScoreMetric:
    """The metric of a table of scores; accuracy if it is empty. SpecError if it is of none or of several."""
    if scores.empty:
        return ACCURACY
    given = list(map(str, scores["metric"].unique()))
    if len(given) == 1 and given[0] in METRICS:
        return METRICS[given[0]]
    raise SpecError(f"the metric in the scores table is {', '.join(given)}; it must be one of: {', '.join(METRICS)}")


def complete(rows: pandas.DataFrame, columns: Sequence[str], what: str) -> pandas.DataFrame:
    """The table, numbered from 0; an empty one gets the columns it lacks. SpecError if one with rows lacks any."""
    if rows.empty:
        return rows.reindex(columns=list(dict.fromkeys([*rows.columns, *columns])))
    if missing := [name for name in columns if name not in rows.columns]:
        hint = suggestion(missing[0], map(str, rows.columns))
        raise SpecError(f'the {what} table has no column "{missing[0]}"; it needs: {", ".join(columns)}.{hint}')
    return rows.reset_index(drop=True)
