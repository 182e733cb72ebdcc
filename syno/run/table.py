"""The tables of a folder of results: this module alone writes values of a run as tables, and reads them from tables.

The table of measurements is the one table of numbers: it has a row for each measurement and a column for each field of
`Measurement`; own and published numbers may be mixed. `tables/scores`, `latency`, `layers` and `goal` are views of it
(`syno.run.views`), written for other programs. Loss curves over the steps of a training are not measurements, since they have
many points: `tables/losses` (`LOSS_COLUMNS`) holds them, where there are any.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from syno.base.addresses import cleaned
from syno.base.errors import SpecError, suggestion
from syno.base.files import write_whole
from syno.base.interval import Interval
from syno.run import FOLDER, LOSSES, MEASUREMENTS, OF_BREAKDOWN
from syno.run.measurement import OF_LIMIT, Measurement
from syno.run.parquet import read_parquet, write_parquet
from syno.run.story import reason
from syno.run.values import Latency, Score, TimedPart, Trial
from syno.search.goal import Goal

if TYPE_CHECKING:
    from datetime import datetime

    import pandas

    from syno.train.training_record import TrainingRecord

COLUMNS = tuple(Measurement.model_fields)
TYPES = {
    **dict.fromkeys(("value", "low", "high"), "float64"),
    **dict.fromkeys(("repeats", "seed", "batch", "threads"), "Int64"),  # whole numbers, some of which may be unknown
    "checked": "boolean",
}
LOSS_COLUMNS = (  # minutes are those of training, without tests; the loss is the mean since the row before, in nats
    "step", "minutes", "loss", "operator", "operator_id", "key", "model", "data", "seed", "origin", "source", "experiment",
)  # fmt: skip
SCORE_COLUMNS = (
    "operator", "operator_id", "role", "metric", "score", "score_std", "seeds", "difference", "difference_low",
    "difference_high", "flops", "flops_share", "parameters", "parameters_share",
)  # fmt: skip
LATENCY_COLUMNS = (
    "operator", "operator_id", "role", "device", "device_name", "compiler", "status", "reason", "latency_ms", "latency_low_ms",
    "latency_high_ms", "batch", "threads", "checked", "suspicious", "speedup",
)  # fmt: skip
GOAL_COLUMNS = (
    "operator", "key", "role", "verdict", "reason", "missing", "speedup", "speedup_low", "speedup_high", "timed", "lost",
    "lost_low", "lost_high", "least_speedup", "lose_at_most",
)  # fmt: skip
BREAKDOWN_COLUMNS = (
    "operator", "operator_id", "key", "role", "device", "compiler", "part", "layer", "count", "stage", "ms", "ms_low",
    "ms_high", "speedup", "speedup_low", "speedup_high", "status", "reason", "source",
)  # fmt: skip
TRIAL_COLUMNS = ("number", "outcome", "reward")
METRIC, VERSION = "metric_", "version_"  # the beginnings of the names of columns that trials have for metrics and versions
# Columns that have a few known values, by which rows are found.
CHECKED: dict[str, Any] = {
    name: TypeAdapter(cast("Any", Measurement.model_fields[name].annotation)) for name in ("metric", "status", "origin")
}


def measurement_table(measurements: Iterable[Measurement]) -> pandas.DataFrame:
    """Return measurements as a table. Versions are JSON, times are UTC; unknown values are missing cells."""
    import pandas

    rows = [
        {**measurement.model_dump(), "versions": json.dumps(measurement.versions, sort_keys=True)}
        for measurement in measurements
    ]
    table = pandas.DataFrame(rows, columns=list(COLUMNS))
    table["when"] = pandas.to_datetime(table["when"], utc=True)
    return table.astype(TYPES)


def write_table(table: pandas.DataFrame, folder: Path, name: str) -> list[Path]:
    """Write a table as Parquet and as CSV into the tables of a folder of results; return the files."""
    files = [folder / FOLDER / f"{name}.{kind}" for kind in ("parquet", "csv")]
    write_parquet(table, files[0])
    write_whole(files[1], table.to_csv(index=False), durable=False)
    return files


def read_measurements(folder: Path, made_by: str) -> pandas.DataFrame:
    """Return the table of measurements in a folder of results.

    Raises SpecError, which names the command `made_by`, if the table is missing, or has an unknown quantity, status or origin.
    """
    file = folder / FOLDER / f"{MEASUREMENTS}.parquet"
    table = read_parquet(file, made_by, COLUMNS)
    for column, kind in CHECKED.items():
        for value in table[column].dropna().unique():
            try:
                kind.validate_python(value)
            except ValueError:
                shown = cleaned(str(value))
                raise SpecError(
                    f'{file} holds no measurements: {column} is "{shown}"; delete it and run `{made_by}` again'
                ) from None
    return table


def loss_table(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return loss curves as a table with `LOSS_COLUMNS`, a row for each point; columns that a row lacks are missing."""
    import pandas

    table = pandas.DataFrame(list(rows), columns=list(LOSS_COLUMNS))
    return table.astype({"step": "int64", "minutes": "float64", "loss": "float64", "seed": "Int64"})


def curve_rows(record: TrainingRecord, source: str, key: str | None, experiment: str) -> Iterator[dict[str, Any]]:
    """Yield the points of a training's loss curve as rows for `loss_table`.

    Args:
        record: The record of the training.
        source: The record's file.
        key: The operator's key in the experiment; None if the experiment no longer uses it.
        experiment: The experiment's name.
    """
    shared = {
        "operator": record.name,
        "operator_id": record.operator_id,
        "key": key,
        "model": record.workload.model,
        "data": record.workload.data,
        "seed": record.seed,
        "origin": "measured",
        "source": source,
        "experiment": experiment,
    }
    for step, minutes, loss in zip(record.curve_steps, record.curve_minutes, record.curve_losses, strict=True):
        yield {"step": step, "minutes": minutes, "loss": loss, **shared}


def read_losses(folder: Path, made_by: str) -> pandas.DataFrame:
    """Return the loss curves in a folder of results (`LOSS_COLUMNS`); a table without rows if there are none.

    Curves of imported records name no experiment.
    """
    file = folder / FOLDER / f"{LOSSES}.parquet"
    if not file.is_file():
        return loss_table([])
    return read_parquet(file, made_by, ("step", "minutes", "loss", "operator")).reindex(columns=list(LOSS_COLUMNS))


def score_table(scores: Iterable[Score], *, judged: bool = False) -> pandas.DataFrame:
    """Return a row for each network that was trained: `SCORE_COLUMNS` and `key`.

    `judged` adds the columns `verdict`, `verdict_reason` and `verdict_missing` and, if any is known, the verdict's speedup:
    `goal_speedup` with its interval, and `goal_timed`.
    """
    import pandas

    rows = list(scores)
    names = [*SCORE_COLUMNS[:2], "key", *SCORE_COLUMNS[2:]]
    cells = [
        [
            one.operator, one.operator_id, one.key, one.role, one.metric, one.score, one.spread, one.seeds, *one.difference,
            one.flops, one.flops_share, one.parameters, one.parameters_share,
        ]
        for one in rows
    ]  # fmt: skip
    if judged:
        names += ["verdict", "verdict_reason", "verdict_missing"]
        cells = [
            [*row, *((one.state, reason(one), one.missing) if one.verdict else (None, None, nan))]
            for row, one in zip(cells, rows, strict=True)
        ]
        if any(not isnan(one.speedup.value) for one in rows):
            names += ["goal_speedup", "goal_speedup_low", "goal_speedup_high", "goal_timed"]
            cells = [[*row, *one.speedup, one.timed or None] for row, one in zip(cells, rows, strict=True)]
    table = pandas.DataFrame(cells, columns=names)
    return table.astype({"parameters": "int64", **dict.fromkeys(("flops_share", "parameters_share"), float)}) if rows else table


def latency_table(latencies: Iterable[Latency], *, layers: bool = False) -> pandas.DataFrame:
    """Return a row for each latency: `key`, `LATENCY_COLUMNS` and `OF_LIMIT`, and with `layers` the column `layer`."""
    import pandas

    rows = [
        (
            one.key, one.operator, one.operator_id, one.role, one.device, one.device_name, one.compiler, one.status, one.reason,
            *one.ms, one.batch, one.threads, one.is_checked, one.is_suspicious, one.speedup, one.of_limit,
            *((one.layer,) if layers else ()),
        )
        for one in latencies
    ]  # fmt: skip
    table = pandas.DataFrame(rows, columns=["key", *LATENCY_COLUMNS, OF_LIMIT, *(("layer",) if layers else ())])
    return table.astype(dict.fromkeys(("latency_ms", "latency_low_ms", "latency_high_ms", "speedup", OF_LIMIT), float))


def goal_table(judged: Iterable[tuple[Score, str]], goal: Goal) -> pandas.DataFrame:
    """Return a row of `GOAL_COLUMNS` for each network that was judged by a goal, and the reason for its verdict."""
    import pandas

    rows = [
        (
            one.operator, one.key, one.role, one.state, why, one.missing, *one.speedup, one.timed or None, *one.lost,
            goal.least_speedup, goal.lose_at_most,
        )
        for one, why in judged
    ]  # fmt: skip
    return pandas.DataFrame(rows, columns=list(GOAL_COLUMNS))


def breakdown_table(parts: Iterable[TimedPart]) -> pandas.DataFrame:
    """Return a row of `BREAKDOWN_COLUMNS` and `OF_LIMIT` for each part of a network's time."""
    import pandas

    rows = [
        (
            one.operator, one.operator_id, one.key, one.role, one.device, one.compiler, one.part, one.layer or None,
            one.count or None, one.stage or None, *one.ms, *one.speedup, one.status, one.reason, one.source, one.of_limit,
        )
        for one in parts
    ]  # fmt: skip
    table = pandas.DataFrame(rows, columns=[*BREAKDOWN_COLUMNS, OF_LIMIT])
    numbers = [name for name in table.columns if name.startswith(("ms", "speedup", OF_LIMIT))]
    return table.astype(dict.fromkeys(numbers, float))


def read_breakdown(folder: Path, made_by: str) -> list[TimedPart]:
    """Return the parts of networks' time in a folder's table of breakdowns; [] without it. SpecError if it is damaged."""
    file = folder / FOLDER / f"{OF_BREAKDOWN}.parquet"
    return parts_in(read_parquet(file, made_by, BREAKDOWN_COLUMNS)) if file.is_file() else []


def measurements_in(table: pandas.DataFrame) -> list[Measurement]:
    """Return the rows of a table of measurements, which are not checked again; their versions stay JSON."""
    import pandas

    return [
        Measurement.model_construct(**{str(name): None if pandas.isna(value) else value for name, value in row.items()})
        for row in table.to_dict("records")
    ]


def number(value: Any) -> float | None:
    """Return a cell of a table as a number; None if it is missing, NaN or a text."""
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, float | int):  # most cells of long tables, where pandas takes ten times as long
        return None if value != value else float(value)
    import pandas

    return None if pandas.isna(value) else float(value)


class Row:
    """A row of a table, with a reader for each type of cell. Cells of a column that the table lacks are missing."""

    def __init__(self, cells: Mapping[Hashable, Any]) -> None:
        self._cells = cells

    def text(self, name: str) -> str:
        """Return the text in a column; "" if it is missing."""
        value = self._cells.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        import pandas

        return "" if pandas.isna(value) else str(value)

    def number(self, name: str) -> float | None:
        """Return the number in a column; None if it is missing."""
        return number(self._cells.get(name))

    def count(self, name: str) -> int | None:
        """Return the whole number in a column; None if it is missing."""
        found = self.number(name)
        return None if found is None else int(found)

    def is_true(self, name: str) -> bool:
        """Return whether the cell in a column is true; false if it is missing."""
        return self.answer(name) is True

    def answer(self, name: str) -> bool | None:
        """Return the boolean in a column; None if it is missing."""
        found = self.number(name)
        return None if found is None else bool(found)

    def time(self, name: str) -> datetime | None:
        """Return the date and time in a column; None if it is missing."""
        import pandas

        value: datetime = pandas.Timestamp(self._cells.get(name, pandas.NaT))
        return None if pandas.isna(value) else value

    def interval(self, name: str, low: str = "", high: str = "") -> Interval:
        """Return the number in a column with its interval; its ends are by default in `NAME_low` and `NAME_high`."""
        found = map(self.number, (name, low or f"{name}_low", high or f"{name}_high"))
        return Interval(*(nan if one is None else one for one in found))


def rows_in(table: pandas.DataFrame) -> list[Row]:
    """Return the rows of a table as `Row` objects."""
    return [Row(cells) for cells in table.to_dict("records")]


def complete(rows: pandas.DataFrame, columns: Sequence[str], kind: str) -> pandas.DataFrame:
    """Return the table with its rows numbered from 0. Missing columns: added if it has no rows, else SpecError."""
    if rows.empty:
        return rows.reindex(columns=list(dict.fromkeys([*rows.columns, *columns])))
    if missing := [name for name in columns if name not in rows.columns]:
        hint = suggestion(missing[0], map(str, rows.columns))
        raise SpecError(f'the {kind} table has no column "{missing[0]}"; it needs: {", ".join(columns)}.{hint}')
    return rows.reset_index(drop=True)


def latencies_in(table: pandas.DataFrame, kind: str = "latency") -> list[Latency]:
    """Return the latencies in a table, of networks or of layers (`kind`, for messages). SpecError if it lacks a column."""
    columns = LATENCY_COLUMNS if kind == "latency" else (*LATENCY_COLUMNS, "layer")
    return [
        Latency(
            row.text("operator"), row.text("role"), row.text("key"), row.text("layer"), row.text("device"),
            row.text("device_name"), row.text("compiler"), row.text("status"), row.text("reason"),
            row.interval("latency_ms", "latency_low_ms", "latency_high_ms"), row.number("speedup"), row.count("batch"),
            row.count("threads"), row.answer("checked"), row.is_true("suspicious"), row.number(OF_LIMIT),
            row.text("operator_id"),
        )
        for row in rows_in(complete(table, columns, kind))
    ]  # fmt: skip


def parts_in(table: pandas.DataFrame) -> list[TimedPart]:
    """Return the parts of networks' time in a table of breakdowns. SpecError if it lacks a column."""
    return [
        TimedPart(
            row.text("operator"), row.text("key"), row.text("role"), row.text("device"), row.text("compiler"),
            row.text("part"), row.text("layer"), row.count("count") or 0, row.text("stage"), row.interval("ms"),
            row.interval("speedup"), row.text("status"), row.text("reason"), row.text("operator_id"), row.text("source"),
            row.number(OF_LIMIT),
        )
        for row in rows_in(complete(table, BREAKDOWN_COLUMNS, "breakdown"))
    ]  # fmt: skip


def trials_in(table: pandas.DataFrame) -> list[Trial]:
    """Return the trials in a table. SpecError if it lacks a column."""
    found = complete(table, TRIAL_COLUMNS, "trials")
    of_metrics = [name for name in found.columns if str(name).startswith(METRIC)]
    names = [str(name).removeprefix(METRIC) for name in of_metrics]
    packages = {str(name): str(name).removeprefix(VERSION) for name in found.columns if str(name).startswith(VERSION)}
    metrics = zip(*(map(number, found[name].tolist()) for name in of_metrics), strict=True) if names else repeat(())
    return [
        Trial(
            row.count("number") or 0, row.text("outcome"), row.number("reward"),
            {name: value for name, value in zip(names, values, strict=True) if value is not None}, row.text("name"),
            row.text("operator"), row.text("message"), row.time("started"), row.time("ended"), row.number("seconds"),
            row.text("worker"), row.text("path"), row.text("steps"),
            {package: version for name, package in packages.items() if (version := row.text(name))},
        )
        for row, values in zip(rows_in(found.drop(columns=of_metrics)), metrics, strict=False)
    ]  # fmt: skip
