"""The table of where networks' time goes: a row for each part, before and after an operator is in the layers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.run import FOLDER, OF_BREAKDOWN
from syno.run.measurement import OF_LIMIT, Measurement
from syno.run.parquet import read_parquet

if TYPE_CHECKING:
    import pandas

    from syno.measure.breakdown_record import BreakdownRecord
    from syno.train.speed_record import SpeedRecord


# The measurements in a record of the speed of training.


def rows_of_speed(record: SpeedRecord, source: str, key: str, role: str, **place: Any) -> Iterator[Measurement]:
    """Yield the training throughput of the network with the operator, and of the original, which trained in turns with it.

    Both rows have the same `source`. A ratio of two throughputs is of two rows of one source.

    Args:
        record: The record.
        source: The record's file.
        key, role: Of the operator in its experiment.
        place: Further fields of both measurements.
    """
    ratio = record.ratio
    beside = f"{ratio.value:.3f} times as fast as the original (95 %: {ratio.low:.3f} to {ratio.high:.3f}), in turns with it"
    shared: dict[str, Any] = {
        "model": record.workload.model,
        "data": record.workload.data,
        "device": record.device,
        "device_setting": record.device_setting,
        "batch": record.batch,
        "threads": record.workload.training.threads,
        "repeats": record.settings.turns,
        "versions": record.versions,
        "when": record.date,
        "origin": "measured",
        "source": source,
        **place,
    }
    own = {"operator": record.name, "operator_id": record.operator_id, "key": key, "role": role, "note": beside}
    of_original = {"operator": ORIGINAL, "key": ORIGINAL, "role": ORIGINAL, "note": f"in turns with {record.name}"}
    for speed, place in ((record.original, of_original), (record.changed, own)):
        found = speed.samples_per_second
        yield Measurement.of("training_throughput", found.value, low=found.low, high=found.high, **shared, **place)


MADE_BY = "syno tables"
NETWORK, REST, STAGE, OPERATOR = "network", "rest", "stage", "operator"  # parts; the original layers are ORIGINAL
BREAKDOWN_COLUMNS = (
    "operator", "operator_id", "key", "role", "device", "compiler", "part", "layer", "count", "stage", "ms", "ms_low",
    "ms_high", "speedup", "speedup_low", "speedup_high", "status", "reason", "source",
)  # fmt: skip


def breakdown_rows(record: BreakdownRecord, **shown: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record, as `breakdown_table` takes them.

    Parts are: "original" and "network", the whole network as it is and with the operator, with its speedup; for each size of
    the layers "original", "operator" with its speedup, and "stage" for each stage of the operator (a second conv2d is
    "conv2d 2"); and "rest". Times of layers are of one call of one layer of this size; `count` says how many the network has.

    Args:
        record: the record.
        shown: further columns of all rows: `key`, `role`, `device`, `compiler` and `source`.
    """
    found = record.speedup
    shared = {
        "operator": record.name,
        "operator_id": record.operator_id,
        "status": found.status,
        "reason": found.reason,
        **shown,
    }
    yield shared | {"part": ORIGINAL, **_times(found.original_ms, limit_ms=found.original_limit_ms)}
    yield shared | {"part": NETWORK, **_times(found.latency_ms, found.ratio, found.limit_ms)}
    for number, layer in enumerate(found.layers):
        earlier = [other.name for other in found.layers[:number]].count(layer.name)  # of other pictures, or sequences
        same = shared | {"layer": f"{layer.name} ({earlier + 1})" if earlier else layer.name, "count": layer.count}
        yield same | {"part": ORIGINAL, **_times(layer.original_ms, limit_ms=layer.original_limit_ms)}
        yield same | {"part": OPERATOR, **_times(layer.latency_ms, layer.speedup, layer.limit_ms)}
        stages = record.stages[number] if record.stages else ()
        for place, stage in enumerate(stages):
            nth = [other.name for other in stages[: place + 1]].count(stage.name)
            name = stage.name if nth == 1 else f"{stage.name} {nth}"
            yield same | {"part": STAGE, "stage": name, "ms": stage.share * layer.latency_ms.value}
    if found.rest_ms is not None:
        yield shared | {"part": REST, "ms": found.rest_ms}


def _times(time: Interval | None, speedup: Interval | None = None, limit_ms: float | None = None) -> dict[str, float]:
    named = [("ms", time), ("speedup", speedup)]
    spans = [(name, span) for name, span in named if span is not None]
    found = {f"{name}{end}": value for name, span in spans for end, value in zip(("", "_low", "_high"), span, strict=True)}
    return found if time is None or limit_ms is None else {**found, OF_LIMIT: limit_ms / time.value}


def breakdown_table(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    """Return rows as a table with `BREAKDOWN_COLUMNS` and `OF_LIMIT`; what a row lacks is missing."""
    import pandas

    table = pandas.DataFrame(rows, columns=[*BREAKDOWN_COLUMNS, OF_LIMIT])
    numbers = [name for name in table.columns if name.startswith(("ms", "speedup", OF_LIMIT))]
    return table.astype(dict.fromkeys(numbers, float))


def read_breakdown(folder: Path) -> pandas.DataFrame:
    """Return the table in a folder of results; one without rows if it is not there. SpecError if it is damaged."""
    file = folder / FOLDER / f"{OF_BREAKDOWN}.parquet"
    return read_parquet(file, MADE_BY, BREAKDOWN_COLUMNS) if file.is_file() else breakdown_table([])
