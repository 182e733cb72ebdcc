"""The table of measurements, the one table of numbers of a folder of results, and the views that are computed from it.

It has a row for each measurement and a column for each field of `Measurement`; own and published numbers may be mixed. The
tables `scores` and `latency` of an experiment are views of it. Loss curves over the steps of a training are not measurements,
since they have many points: `tables/losses` (`LOSS_COLUMNS`) holds them, where there are any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, nan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from syno.base.files import ORIGINAL, write_whole
from syno.base.interval import Interval
from syno.results import FOLDER, LOSSES, MEASUREMENTS
from syno.results.measurement import OK, SUSPICIOUS, Measurement
from syno.results.metric import METRICS, difference, spread
from syno.results.parquet import read_parquet, write_parquet

if TYPE_CHECKING:
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
SPEEDUP_COLUMNS = (
    "operator", "key", "role", "device", "compiler", "speedup", "speedup_low", "speedup_high", "timed", "suspicious",
)  # fmt: skip
KINDS_OF_DEVICES = ("cpu", "cuda")  # what stands in the column `device` where a device has no name of its own
UNKNOWN = Interval(nan)
ITSELF = Interval(0.0)


def measurement_table(measurements: Iterable[Measurement]) -> pandas.DataFrame:
    """Return the table. Versions are JSON, times are UTC; what is unknown is missing."""
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

    Raises SpecError, which names the command that makes it, if it is not there.
    """
    return read_parquet(folder / FOLDER / f"{MEASUREMENTS}.parquet", made_by, COLUMNS)


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

    Those of an import name no experiment.
    """
    file = folder / FOLDER / f"{LOSSES}.parquet"
    if not file.is_file():
        return loss_table([])
    return read_parquet(file, made_by, ("step", "minutes", "loss", "operator")).reindex(columns=list(LOSS_COLUMNS))


# ---- the views of an experiment -------------------------------------------------------------------------------------


def score_view(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row for each operator that was trained, the best first: `SCORE_COLUMNS` and `key`.

    The score is the mean over seeds; a training that diverged has an infinite loss. The difference is from the original's
    score, with its 95 % interval. Costs are of one sample, and as shares of the original's.
    """
    import pandas

    trained = table[table["role"].notna() & table["seed"].notna() & table["layer"].isna()]
    groups = {str(key): list(_rows(rows)) for key, rows in trained.groupby("key", sort=False)}
    if not groups:
        return pandas.DataFrame(columns=[*SCORE_COLUMNS, "key"])
    original = groups.get(ORIGINAL)
    view = pandas.DataFrame([_score_row(rows, original) for rows in groups.values()])
    view = view.astype({"parameters": "int64", **dict.fromkeys(("flops_share", "parameters_share"), float)})
    ascending = not METRICS[view["metric"].iloc[0]].more_is_better
    return view.sort_values("score", ascending=ascending, kind="stable", ignore_index=True)


def _score_row(rows: list[dict[str, Any]], original: list[dict[str, Any]] | None) -> dict[str, Any]:
    first, scores, costs = rows[0], _scores(rows), _costs(rows)
    theirs = None if original is None else _costs(original)
    apart = UNKNOWN if original is None else ITSELF if rows is original else difference(scores, _scores(original))
    return {
        **{name: first[name] for name in ("operator", "operator_id", "key", "role")},
        "metric": next(row["metric"] for row in rows if row["metric"] in METRICS),
        "score": mean(scores),
        "score_std": spread(scores),
        "seeds": len(scores),
        "difference": apart.value,
        "difference_low": apart.low,
        "difference_high": apart.high,
        "flops": costs["flops"],
        "flops_share": None if theirs is None else costs["flops"] / theirs["flops"],
        "parameters": costs["parameters"],
        "parameters_share": None if theirs is None else costs["parameters"] / theirs["parameters"],
    }


def _scores(rows: list[dict[str, Any]]) -> list[float]:
    """Return the score of each seed; only a loss can be missing, and then training diverged."""
    return [inf if row["value"] is None else row["value"] for row in rows if row["metric"] in METRICS]


def _costs(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return FLOPs and parameters, of the first seed."""
    return {row["metric"]: row["value"] for row in reversed(rows) if row["metric"] not in METRICS}


def latency_view(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row for each latency of an experiment's networks: `key` and `LATENCY_COLUMNS`.

    Speedups are over the original, by the same compiler on the same device, and of measurements whose status is "ok".
    """
    return _latencies(table[table["layer"].isna()], ("device_setting", "compiler"))


def layer_view(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row for each latency of a single layer: `key`, `LATENCY_COLUMNS` and `layer`.

    Speedups are over the original's same layer, by the same compiler on the same device.
    """
    return _latencies(table[table["layer"].notna()], ("device_setting", "compiler", "layer"), "layer")


def _latencies(table: pandas.DataFrame, same: Sequence[str], *others: str) -> pandas.DataFrame:
    """Return a row for each latency with `others` of its columns, and the speedup over the original with the same values."""
    import pandas

    measured = table[(table["metric"] == "latency") & table["role"].notna() & table["device_setting"].notna()]
    rows = list(_rows(measured))
    originals = {
        tuple(row[name] for name in same): row["value"] for row in rows if row["key"] == ORIGINAL and row["status"] == OK
    }
    found = [
        _latency_row(row, originals.get(tuple(row[name] for name in same))) | {name: row[name] for name in others}
        for row in rows
    ]
    view = pandas.DataFrame(found, columns=["key", *LATENCY_COLUMNS, *others])
    return view.astype(dict.fromkeys(("latency_ms", "latency_low_ms", "latency_high_ms", "speedup"), float))


def _latency_row(row: dict[str, Any], original: float | None) -> dict[str, Any]:
    same = ("key", "operator", "operator_id", "role", "compiler", "status", "reason", "batch", "threads", "checked")
    return {
        **{name: row[name] for name in same},
        "device": row["device_setting"],
        "device_name": "" if row["device"] in KINDS_OF_DEVICES else row["device"],
        "latency_ms": row["value"],
        "latency_low_ms": row["low"],
        "latency_high_ms": row["high"],
        "suspicious": row["note"] == SUSPICIOUS,
        "speedup": original / row["value"] if row["status"] == OK and original is not None else None,
    }


def _rows(table: pandas.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows; what is missing is None."""
    import pandas

    for row in table.to_dict("records"):
        yield {str(name): None if pandas.isna(value) else value for name, value in row.items()}
