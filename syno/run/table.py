"""The table of measurements, the one table of numbers of a folder of results, and the views that are computed from it.

It has a row for each measurement and a column for each field of `Measurement`; own and published numbers may be mixed. The
tables `scores` and `latency` of an experiment are views of it. Loss curves over the steps of a training are not measurements,
since they have many points: `tables/losses` (`LOSS_COLUMNS`) holds them, where there are any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from syno.base.addresses import cleaned
from syno.base.errors import SpecError
from syno.base.files import ORIGINAL, write_whole
from syno.base.interval import Interval
from syno.run import FOLDER, LOSSES, MEASUREMENTS
from syno.run.measurement import OF_LIMIT, OK, SUSPICIOUS, Measurement
from syno.run.metric import difference, spread
from syno.run.parquet import read_parquet, write_parquet
from syno.train.metric import METRICS

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
# Columns that have a few known values, by which rows are found.
CHECKED: dict[str, Any] = {
    name: TypeAdapter(cast("Any", Measurement.model_fields[name].annotation)) for name in ("metric", "status", "origin")
}
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

    Raises SpecError, which names the command that makes it, if it is not there, or has an unknown quantity, status or origin.
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

    Those of an import name no experiment.
    """
    file = folder / FOLDER / f"{LOSSES}.parquet"
    if not file.is_file():
        return loss_table([])
    return read_parquet(file, made_by, ("step", "minutes", "loss", "operator")).reindex(columns=list(LOSS_COLUMNS))


# ---- the views of an experiment, of measurements that are read from the table once for all (`measurements_in`) --------


def score_view(measured: Iterable[Measurement]) -> pandas.DataFrame:
    """Return a row for each operator that was trained, the best first: `SCORE_COLUMNS` and `key`.

    The score is the mean over seeds; a training that diverged has an infinite loss. The difference is from the original's
    score, with its 95 % interval. Costs are of one sample, and as shares of the original's.
    """
    import pandas

    groups: dict[str, list[Measurement]] = {}
    for one in measured:
        if one.role is not None and one.seed is not None and one.layer is None and one.key is not None:
            groups.setdefault(one.key, []).append(one)
    if not groups:
        return pandas.DataFrame(columns=[*SCORE_COLUMNS, "key"])
    original = groups.get(ORIGINAL)
    view = pandas.DataFrame([_score_row(rows, original) for rows in groups.values()])
    view = view.astype({"parameters": "int64", **dict.fromkeys(("flops_share", "parameters_share"), float)})
    metric = next(one.metric for rows in groups.values() for one in rows if one.metric in METRICS)
    return view.sort_values("score", ascending=not METRICS[metric].more_is_better, kind="stable", ignore_index=True)


def _score_row(rows: Sequence[Measurement], original: Sequence[Measurement] | None) -> dict[str, Any]:
    first, scores = rows[0], _scores(rows)
    apart = UNKNOWN if original is None else ITSELF if rows is original else difference(scores, _scores(original))
    (flops, flops_share), (parameters, parameters_share) = (_cost(rows, original, name) for name in ("flops", "parameters"))
    return {
        "operator": first.operator,
        "operator_id": first.operator_id,
        "key": first.key,
        "role": first.role,
        "metric": next(one.metric for one in rows if one.metric in METRICS),
        "score": mean(scores),
        "score_std": spread(scores),
        "seeds": len(scores),
        "difference": apart.value,
        "difference_low": apart.low,
        "difference_high": apart.high,
        "flops": flops,
        "flops_share": flops_share,
        "parameters": parameters,
        "parameters_share": parameters_share,
    }


def _scores(rows: Sequence[Measurement]) -> list[float]:
    """Return the score of each seed; where one is missing, training diverged."""
    found = [(METRICS[one.metric], one.value) for one in rows if one.metric in METRICS]
    return [metric.of_broken if value is None else value for metric, value in found]


def _cost(rows: Sequence[Measurement], original: Sequence[Measurement] | None, name: str) -> tuple[float, float | None]:
    """Return a cost, of the first seed, and as a share of the original's."""
    own, *theirs = (
        next(one.value for one in group if one.metric == name and one.value is not None)
        for group in (rows, *([] if original is None else [original]))
    )
    return own, own / theirs[0] if theirs else None


def latency_view(measured: Iterable[Measurement]) -> pandas.DataFrame:
    """Return a row for each latency of an experiment's networks: `key`, `LATENCY_COLUMNS` and `OF_LIMIT`.

    Speedups are over the original, by the same compiler on the same device, and of measurements whose status is "ok".
    """
    rows = [one for one in measured if one.layer is None]
    return _latencies(rows, lambda one: (one.device_setting, one.compiler)).drop(columns="layer")


def layer_view(measured: Iterable[Measurement]) -> pandas.DataFrame:
    """Return a row for each latency of a single layer: `key`, `LATENCY_COLUMNS`, `OF_LIMIT` and `layer`.

    Speedups are over the original's same layer, by the same compiler on the same device.
    """
    rows = [one for one in measured if one.layer is not None]
    return _latencies(rows, lambda one: (one.device_setting, one.compiler, one.layer))


def _latencies(rows: Sequence[Measurement], place: Callable[[Measurement], tuple[str | None, ...]]) -> pandas.DataFrame:
    """Return a row for each latency with its layer, and the speedup over the original at the same place."""
    import pandas

    timed = [one for one in rows if one.metric == "latency" and one.role is not None and one.device_setting is not None]
    limits = {(one.key, *place(one)): one.value for one in rows if one.metric == "limit"}
    originals = {place(one): one.value for one in timed if one.key == ORIGINAL and one.status == OK}
    found = [_latency_row(one, originals.get(place(one)), limits.get((one.key, *place(one)))) for one in timed]
    view = pandas.DataFrame(found, columns=["key", *LATENCY_COLUMNS, OF_LIMIT, "layer"])
    return view.astype(dict.fromkeys(("latency_ms", "latency_low_ms", "latency_high_ms", "speedup", OF_LIMIT), float))


def _latency_row(one: Measurement, original: float | None, limit: float | None) -> dict[str, Any]:
    same = ("key", "operator", "operator_id", "role", "compiler", "status", "reason", "batch", "threads", "checked", "layer")
    return {
        **{name: getattr(one, name) for name in same},
        "device": one.device_setting,
        "device_name": "" if one.device in KINDS_OF_DEVICES else one.device,
        "latency_ms": one.value,
        "latency_low_ms": one.low,
        "latency_high_ms": one.high,
        "suspicious": one.note == SUSPICIOUS,
        "speedup": original / one.value if one.status == OK and original is not None and one.value is not None else None,
        OF_LIMIT: limit / one.value if one.status == OK and limit is not None and one.value else None,
    }


def measurements_in(table: pandas.DataFrame) -> list[Measurement]:
    """Return the rows of a table of measurements, which are not checked again; their versions stay JSON."""
    import pandas

    return [
        Measurement.model_construct(**{str(name): None if pandas.isna(value) else value for name, value in row.items()})
        for row in table.to_dict("records")
    ]
