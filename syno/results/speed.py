"""The measurements in a record of the speed of training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from syno.base.files import ORIGINAL
from syno.results.measurement import Measurement

if TYPE_CHECKING:
    from syno.train.speed_record import SpeedRecord


def rows_of_speed(record: SpeedRecord, source: str, key: str, role: str) -> Iterator[Measurement]:
    """Yield the training throughput of the network with the operator, and of the original, which trained in turns with it.

    Both rows have the same `source`. A ratio of two throughputs is of two rows of one source.

    Args:
        record: The record.
        source: The record's file.
        key, role: Of the operator in its experiment.
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
    }
    own = {"operator": record.name, "operator_id": record.operator_id, "key": key, "role": role, "note": beside}
    of_original = {"operator": ORIGINAL, "key": ORIGINAL, "role": ORIGINAL, "note": f"in turns with {record.name}"}
    for speed, place in ((record.original, of_original), (record.changed, own)):
        found = speed.samples_per_second
        yield Measurement.of("training_throughput", found.value, low=found.low, high=found.high, **shared, **place)
