"""The measurements in records of trainings and of measured quantities, as rows of the table of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, inf, isfinite
from typing import TYPE_CHECKING, Any

from syno.model.networks import INT8, NUMBER_FORMATS
from syno.run.measurement import OK, Measurement
from syno.train.metric import LOSS

if TYPE_CHECKING:
    from syno.measure.tuning_record import MeasurementRecord
    from syno.train.training_record import TrainingRecord


MOST_LOSS = 700.0  # in nats; exp of more is too large for a floating-point number
DIVERGED = "training produced NaN or infinity"


def perplexity(loss: float) -> float:
    """Return the perplexity of a token, exp(loss), for a loss in nats; infinity if that is too large for a number."""
    return exp(loss) if loss < MOST_LOSS else inf


def rows_of_training(record: TrainingRecord, source: str, **place: Any) -> Iterator[Measurement]:
    """Yield the measurements of a training: the score, for text also the perplexity, and the network's FLOPs and parameters.

    If it diverged, the score has no value, and there is no perplexity.

    If the trained network was also tested in 8-bit integers, this is a score of the baseline `int8`, with the same costs.

    Args:
        record: The record of the training.
        source: The record's file.
        place: Further fields of all measurements, such as `key` and `role` in an experiment.
    """
    costs: dict[str, float] = {"flops": record.flops, "parameters": record.parameters}
    numbers = _scores(record.metric, record.score) | costs
    yield from _rows_of_numbers(record, numbers, source, {"operator": record.name, **place})
    if record.int8_score is not None:
        own = {"operator": INT8, "key": INT8, "role": "baseline"} if place.get("role") else {"operator": INT8}
        numbers = _scores(record.metric, record.int8_score) | costs
        yield from _rows_of_numbers(record, numbers, source, {**place, **own, "note": NUMBER_FORMATS[INT8].note})


def _scores(metric: str, score: float) -> dict[str, float]:
    """Return {metric: score}; for a loss, with the perplexity."""
    is_known = metric == LOSS.key and isfinite(score)
    return {metric: score, "perplexity": perplexity(score)} if is_known else {metric: score}


def _rows_of_numbers(
    record: TrainingRecord, numbers: dict[str, float], source: str, place: dict[str, Any]
) -> Iterator[Measurement]:
    for metric, value in numbers.items():
        known = isfinite(value)
        yield Measurement.of(
            metric,
            value if known else None,
            operator_id=record.operator_id,
            model=record.workload.model,
            data=record.workload.data,
            device=record.device,
            repeats=1,
            seed=record.seed,
            status=OK if known else "failed",
            reason="" if known else DIVERGED,
            versions=record.versions,
            when=record.date,
            origin="measured",
            source=source,
            **place,
        )


def rows_of(record: MeasurementRecord, source: str, **place: Any) -> Iterator[Measurement]:
    """Yield the measurements in a record.

    Args:
        record: The record, which knows its rows.
        source: The record's file.
        place: Further fields of all measurements, such as `key`, `role` and `device_setting` in an experiment.
    """
    for row in record.rows():
        yield Measurement.of(**place | row, origin="measured", source=source)
