"""The time of a network by parts (layers, stages of the operator, rest), from breakdown records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.run.values import TimedPart

if TYPE_CHECKING:
    from syno.measure.breakdown_record import BreakdownRecord

NETWORK, REST, STAGE, OPERATOR = "network", "rest", "stage", "operator"  # parts; the original layers are ORIGINAL


def parts_of_record(record: BreakdownRecord, **place: Any) -> Iterator[TimedPart]:
    """Yield the parts of a network's time, before and after an operator is in the layers.

    Parts are: "original" and "network", the whole network as it is and with the operator, with its speedup; for each size of
    the layers "original", "operator" with its speedup, and "stage" for each stage of the operator (a second conv2d is
    "conv2d 2"); and "rest". Times of layers are of one call of one layer of this size; `count` says how many the network has.

    Args:
        record: the record.
        place: `key`, `role`, `device`, `compiler` and `source` of all parts.
    """
    times = record.speedup
    part = partial(TimedPart, record.name, operator_id=record.operator_id, status=times.status, reason=times.reason, **place)
    yield part(part=ORIGINAL, **_times(times.original_ms, limit_ms=times.original_limit_ms))
    yield part(part=NETWORK, **_times(times.latency_ms, times.ratio, times.limit_ms))
    for number, layer in enumerate(times.layers):
        earlier = [other.name for other in times.layers[:number]].count(layer.name)  # of other pictures, or sequences
        of_layer = partial(part, layer=f"{layer.name} ({earlier + 1})" if earlier else layer.name, count=layer.count)
        yield of_layer(part=ORIGINAL, **_times(layer.original_ms, limit_ms=layer.original_limit_ms))
        yield of_layer(part=OPERATOR, **_times(layer.latency_ms, layer.speedup, layer.limit_ms))
        stages = record.stages[number] if record.stages else ()
        for index, stage in enumerate(stages):
            nth = [other.name for other in stages[: index + 1]].count(stage.name)
            name = stage.name if nth == 1 else f"{stage.name} {nth}"
            yield of_layer(part=STAGE, stage=name, ms=Interval(stage.share * layer.latency_ms.value))
    if times.rest_ms is not None:
        yield part(part=REST, ms=Interval(times.rest_ms))


def _times(time: Interval | None, speedup: Interval | None = None, limit_ms: float | None = None) -> dict[str, Any]:
    return {
        "ms": time or Interval(nan),
        "speedup": speedup or Interval(nan),
        "of_limit": None if time is None or limit_ms is None else limit_ms / time.value,
    }
