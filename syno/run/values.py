"""The rows of an experiment's tables as values. Tables are files; they are read here, and figures and texts use these values.

A number that a table lacks is None; ends of intervals are NaN, and texts empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from syno.base.errors import SpecError, suggestion
from syno.base.interval import Interval
from syno.run.breakdown import BREAKDOWN_COLUMNS
from syno.run.measurement import OF_LIMIT, OK
from syno.run.table import LATENCY_COLUMNS, SCORE_COLUMNS, SPEEDUP_COLUMNS
from syno.train.metric import Metric

if TYPE_CHECKING:
    from datetime import datetime

    import pandas

TRIAL_COLUMNS = ("number", "outcome", "reward")
LEARNING_COLUMNS = ("operator", "role", "metric", "seed", "round", "score")  # rounds count from 1
METRIC = "metric_"  # the beginning of the names of columns that trials have for metrics
Target = tuple[str, str]  # device, compiler
UNKNOWN = Interval(nan)
T = TypeVar("T")
_ID = re.compile(r"^id ([0-9a-f]+)\s*$", re.MULTILINE)  # the last line of an operator's text


@dataclass(frozen=True)
class Score:
    """A network's score, its mean over seeds, and its costs; a row of `syno.run.table.score_view`.

    Attributes:
        operator, role, key: of the operator.
        metric: the name of the score's metric.
        score, spread, seeds: the mean, which is infinite after a training that diverged, the standard deviation, and the number
            of seeds.
        difference: from the original's score.
        flops, flops_share, parameters, parameters_share: costs, and as shares of the original's.
        verdict, reason: by the goal of the search, and why; "" without a goal.
        missing: by how much it misses the goal.
        speedup, timed: the one that the verdict is about, and how it was timed.
        reward: in the search, where the score is from there.
        among: the number of networks that it was chosen from by these numbers: its intervals count that. 1 in tables.
    """

    operator: str
    role: str = ""
    key: str = ""
    metric: str = ""
    score: float | None = None
    spread: float | None = None
    seeds: int | None = None
    difference: Interval = UNKNOWN
    flops: float | None = None
    flops_share: float | None = None
    parameters: float | None = None
    parameters_share: float | None = None
    verdict: str = ""
    reason: str = ""
    speedup: Interval = UNKNOWN
    timed: str = ""
    reward: float | None = None
    missing: float = 0.0
    among: int = 1

    @property
    def is_finite(self) -> bool:
        """Whether the score is known, and the training did not diverge."""
        return self.score is not None and isfinite(self.score)

    def lost(self, metric: Metric) -> Interval:
        """Return the loss of score against the original; below 0 for a better score."""
        value, low, high = self.difference
        return Interval(-value, -high, -low) if metric.more_is_better else self.difference


@dataclass(frozen=True)
class Latency:
    """The latency of a network, or of one of its layers; a row of `syno.run.table.latency_view` or `layer_view`.

    Attributes:
        operator, role, key: of the operator.
        layer: the layer; "" for the whole network.
        device, device_name, compiler: where; the device as the settings name it, and as it names itself.
        status, reason: as in a measurement.
        ms: milliseconds of one call; NaN where there is none.
        speedup: over the original there.
        batch, threads, is_checked: as in a measurement.
        is_suspicious: whether it is faster than the device's own peak allows.
        of_limit: the share of the device's limit; None if it is not known.
    """

    operator: str
    role: str
    key: str
    layer: str
    device: str
    device_name: str
    compiler: str
    status: str
    reason: str
    ms: Interval
    speedup: float | None
    batch: int | None
    threads: int | None
    is_checked: bool | None
    is_suspicious: bool
    of_limit: float | None = None

    @property
    def target(self) -> Target:
        """The device and the compiler."""
        return self.device, self.compiler

    @property
    def is_ok(self) -> bool:
        """Whether it was measured successfully, so that it can be compared."""
        return self.status == OK


@dataclass(frozen=True)
class Speedup:
    """A network's speedup over the original; a row of `syno.run.speedups.speedup_view`.

    Attributes:
        operator, key, role: of the operator.
        device, compiler: where.
        ratio: the speedup.
        timed: how.
        is_suspicious: whether a latency behind it is faster than the device's own peak allows.
    """

    operator: str
    key: str
    role: str
    device: str
    compiler: str
    ratio: Interval
    timed: str
    is_suspicious: bool

    @property
    def target(self) -> Target:
        """The device and the compiler."""
        return self.device, self.compiler


@dataclass(frozen=True)
class Judged:
    """A network that was judged by a goal; a row of `syno.run.goal_tables.verdicts`.

    Attributes:
        operator, key, role: of the operator.
        verdict, reason, missing: the verdict's state, its text, and by how much it misses.
        speedup, timed: the speedup of the verdict, NaN where none is known, and how it was timed.
        lost: how much worse than the original's the score is.
    """

    operator: str
    key: str
    role: str
    verdict: str
    reason: str
    missing: float
    speedup: Interval
    timed: str
    lost: Interval


@dataclass(frozen=True)
class TimedPart:
    """The time of a part of a network; a row of `syno.run.breakdown.breakdown_table`, which says what the parts are.

    Attributes:
        operator, key, role: of the operator.
        device, compiler: where.
        part, layer, count, stage: the part, its layer and how many the network has, and the stage; "" where there is none.
        ms, speedup: milliseconds, and the speedup over the original; NaN where they are unknown.
        status, reason: as in a measurement.
    """

    operator: str
    key: str
    role: str
    device: str
    compiler: str
    part: str
    layer: str
    count: int
    stage: str
    ms: Interval
    speedup: Interval
    status: str
    reason: str


class Round(NamedTuple):
    """The score of a network after a round of its training with a seed; a row of `LEARNING_COLUMNS`. Rounds count from 1."""

    operator: str
    metric: str
    seed: int | None
    number: int
    score: float


@dataclass(frozen=True)
class Trial:
    """A trial of a search; a row of `syno.search.storage.records.table`.

    Attributes:
        number, outcome, reward: of the trial.
        metrics: what was measured, by name.
        name, operator: the operator's name, and its text.
        message: why it is not complete.
        started, ended, seconds: when it ran, and how long the evaluation took.
        worker: who ran it.
        path, steps: the kinds and the ids of its steps, separated by spaces.
    """

    number: int
    outcome: str
    reward: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    operator: str = ""
    message: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    seconds: float | None = None
    worker: str = ""
    path: str = ""
    steps: str = ""

    @property
    def is_rewarded(self) -> bool:
        """Whether it is complete and has a reward."""
        return self.outcome == "complete" and self.reward is not None

    @property
    def operator_id(self) -> str:
        """The id of the operator; "" if its text is not known."""
        return str((_ID.findall(self.operator) or [""])[-1])

    @property
    def last_line(self) -> str:
        """The last line of the message, which is the error at the end of a traceback; "" without a message."""
        return (self.message.strip().splitlines() or [""])[-1]


# ---- reading --------------------------------------------------------------------------------------------------------


def number(value: Any) -> float | None:
    """Return a cell of a table as a number; None where it has none."""
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, float | int):  # most cells of long tables, where pandas takes ten times as long
        return None if value != value else float(value)
    import pandas

    return None if pandas.isna(value) else float(value)


class Row:
    """A row of a table, whose cells are read by their kind. A column that the table lacks is missing in its rows."""

    def __init__(self, cells: Mapping[Hashable, Any]) -> None:
        self._cells = cells

    def text(self, name: str) -> str:
        """Return a text; "" where it is missing."""
        value = self._cells.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        import pandas

        return "" if pandas.isna(value) else str(value)

    def number(self, name: str) -> float | None:
        """Return a number; None where it is missing."""
        return number(self._cells.get(name))

    def count(self, name: str) -> int | None:
        """Return a whole number; None where it is missing."""
        found = self.number(name)
        return None if found is None else int(found)

    def is_true(self, name: str) -> bool:
        """Return whether a cell is true; it is not where it is missing."""
        return self.answer(name) is True

    def answer(self, name: str) -> bool | None:
        """Return a boolean; None where it is missing."""
        found = self.number(name)
        return None if found is None else bool(found)

    def time(self, name: str) -> datetime | None:
        """Return a time; None where it is missing."""
        import pandas

        value: datetime = pandas.Timestamp(self._cells.get(name, pandas.NaT))
        return None if pandas.isna(value) else value

    def interval(self, name: str, low: str = "", high: str = "") -> Interval:
        """Return a number with the ends of its interval, by default in the columns `NAME_low` and `NAME_high`."""
        found = map(self.number, (name, low or f"{name}_low", high or f"{name}_high"))
        return Interval(*(nan if one is None else one for one in found))


def rows_in(table: pandas.DataFrame) -> list[Row]:
    """Return the rows of a table."""
    return [Row(cells) for cells in table.to_dict("records")]


def complete(rows: pandas.DataFrame, columns: Sequence[str], kind: str) -> pandas.DataFrame:
    """Return the table, numbered from 0; an empty one gets the columns it lacks. SpecError if one with rows lacks any."""
    if rows.empty:
        return rows.reindex(columns=list(dict.fromkeys([*rows.columns, *columns])))
    if missing := [name for name in columns if name not in rows.columns]:
        hint = suggestion(missing[0], map(str, rows.columns))
        raise SpecError(f'the {kind} table has no column "{missing[0]}"; it needs: {", ".join(columns)}.{hint}')
    return rows.reset_index(drop=True)


def scores_in(table: pandas.DataFrame) -> list[Score]:
    """Return the rows of a table of scores. SpecError if it lacks a column."""
    return [
        Score(
            row.text("operator"), row.text("role"), row.text("key"), row.text("metric"), row.number("score"),
            row.number("score_std"), row.count("seeds"), row.interval("difference"), row.number("flops"),
            row.number("flops_share"), row.number("parameters"), row.number("parameters_share"), row.text("verdict"),
            row.text("verdict_reason"), row.interval("goal_speedup"), row.text("goal_timed"),
            missing=row.number("verdict_missing") or 0.0,
        )
        for row in rows_in(complete(table, SCORE_COLUMNS, "scores"))
    ]  # fmt: skip


def latencies_in(table: pandas.DataFrame, kind: str = "latency") -> list[Latency]:
    """Return the rows of a table of latencies, also one of layers. SpecError if it lacks a column."""
    columns = LATENCY_COLUMNS if kind == "latency" else (*LATENCY_COLUMNS, "layer")
    return [
        Latency(
            row.text("operator"), row.text("role"), row.text("key"), row.text("layer"), row.text("device"),
            row.text("device_name"), row.text("compiler"), row.text("status"), row.text("reason"),
            row.interval("latency_ms", "latency_low_ms", "latency_high_ms"), row.number("speedup"), row.count("batch"),
            row.count("threads"), row.answer("checked"), row.is_true("suspicious"), row.number(OF_LIMIT),
        )
        for row in rows_in(complete(table, columns, kind))
    ]  # fmt: skip


def speedups_in(table: pandas.DataFrame) -> list[Speedup]:
    """Return the rows of a table of speedups. SpecError if it lacks a column."""
    return [
        Speedup(
            row.text("operator"), row.text("key"), row.text("role"), row.text("device"), row.text("compiler"),
            row.interval("speedup"), row.text("timed"), row.is_true("suspicious"),
        )
        for row in rows_in(complete(table, SPEEDUP_COLUMNS, "speedups"))
    ]  # fmt: skip


def judged_in(table: pandas.DataFrame) -> list[Judged]:
    """Return the rows of a table of verdicts."""
    return [
        Judged(
            row.text("operator"), row.text("key"), row.text("role"), row.text("verdict"), row.text("reason"),
            row.number("missing") or 0.0, row.interval("speedup"), row.text("timed"), row.interval("lost"),
        )
        for row in rows_in(table)
    ]  # fmt: skip


def parts_in(table: pandas.DataFrame) -> list[TimedPart]:
    """Return the rows of a table of where the time goes. SpecError if it lacks a column."""
    return [
        TimedPart(
            row.text("operator"), row.text("key"), row.text("role"), row.text("device"), row.text("compiler"),
            row.text("part"), row.text("layer"), row.count("count") or 0, row.text("stage"), row.interval("ms"),
            row.interval("speedup"), row.text("status"), row.text("reason"),
        )
        for row in rows_in(complete(table, BREAKDOWN_COLUMNS, "breakdown"))
    ]  # fmt: skip


def rounds_in(table: pandas.DataFrame) -> list[Round]:
    """Return the rows of a table of learning curves that have a score. SpecError if it lacks a column."""
    return [
        Round(row.text("operator"), row.text("metric"), row.count("seed"), row.count("round") or 0, score)
        for row in rows_in(complete(table, LEARNING_COLUMNS, "learning curves"))
        if (score := row.number("score")) is not None
    ]


def trials_in(table: pandas.DataFrame | list[Trial]) -> list[Trial]:
    """Return the rows of a table of trials, or those that were read from it before. SpecError if it lacks a column."""
    if isinstance(table, list):
        return table
    found = complete(table, TRIAL_COLUMNS, "trials")
    of_metrics = [name for name in found.columns if str(name).startswith(METRIC)]
    names = [str(name).removeprefix(METRIC) for name in of_metrics]
    metrics = zip(*(map(number, found[name].tolist()) for name in of_metrics), strict=True) if names else repeat(())
    return [
        Trial(
            row.count("number") or 0, row.text("outcome"), row.number("reward"),
            {name: value for name, value in zip(names, values, strict=True) if value is not None}, row.text("name"),
            row.text("operator"), row.text("message"), row.time("started"), row.time("ended"), row.number("seconds"),
            row.text("worker"), row.text("path"), row.text("steps"),
        )
        for row, values in zip(rows_in(found.drop(columns=of_metrics)), metrics, strict=False)
    ]  # fmt: skip


def best_first(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials with a reward, the highest first, and the earlier trial first among equals."""
    return sorted((trial for trial in trials if trial.is_rewarded), key=lambda trial: (-(trial.reward or 0.0), trial.number))


def last_of_each(values: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Return the last value of each key, in the order of these: a table may repeat a measurement."""
    kept: dict[Hashable, T] = {}
    for one in values:
        kept.pop(key(one), None)
        kept[key(one)] = one
    return list(kept.values())


def by_target(values: Iterable[T], target: Callable[[T], Target]) -> dict[Target, list[T]]:
    """Return values by device and compiler, in the order of these."""
    groups: dict[Target, list[T]] = {}
    for one in values:
        groups.setdefault(target(one), []).append(one)
    return dict(sorted(groups.items()))
