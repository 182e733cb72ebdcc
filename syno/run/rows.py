"""The measurements in the records of trainings, latencies and layers, as rows of the table."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, inf, isfinite
from typing import TYPE_CHECKING, Any

from syno.base.extensions import load_extensions
from syno.measure.layers_record import LayersRecord, MeasuredLayer
from syno.measure.network_subject import AnyNetwork, BackboneSubject, NetworkSubject
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.model.networks import INT8, NUMBER_FORMATS
from syno.run import NUMBERED_LAYERS
from syno.run.measurement import OK, SUSPICIOUS, Measurement
from syno.train.metric import LOSS

if TYPE_CHECKING:
    from syno.measure.tuning_record import TuningRecord
    from syno.train.training_record import TrainingRecord


MOST_LOSS = 700.0  # in nats; exp of more is too large for a floating-point number
DIVERGED = "training produced NaN or infinity"


def perplexity(loss: float) -> float:
    """Return the perplexity of a token, exp(loss), for a loss in nats; infinity if that is too large for a number."""
    return exp(loss) if loss < MOST_LOSS else inf


def rows_of_training(record: TrainingRecord, source: str, **place: Any) -> Iterator[Measurement]:
    """Yield the rows of a training: the score, for text also the perplexity, and what the network costs.

    If it diverged, the score has no value, and there is no perplexity.

    If the trained network was also tested in 8-bit integers, that is the baseline `int8`, with the same costs.

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
    """Return a score, and for a loss the perplexity."""
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


def rows_of_tuning(record: TuningRecord, source: str, **place: Any) -> Iterator[Measurement]:
    """Yield the latency of a compiled network or operator, and what it costs.

    A tuning that failed gives a latency without a value, one that is partial a latency only.

    Args:
        record: The record of the tuning.
        source: The record's file.
        place: Further fields of all measurements, such as `key`, `role` and `device_setting` in an experiment.
    """
    model, layer = _measured(record.subject)
    shared: dict[str, Any] = {
        "operator": record.name,
        "operator_id": record.operator_id,
        "model": model,
        "layer": layer,
        "device": record.device.name or record.device.kind,
        "compiler": record.compiler,
        "versions": record.versions,
        "when": record.date,
        "origin": "measured",
        "source": source,
        **place,
    }
    yield Measurement.of(
        "latency",
        record.latency_ms,
        low=record.latency_low_ms,
        high=record.latency_high_ms,
        batch=record.settings.batch,
        threads=record.settings.threads,
        repeats=record.repeats,
        checked=record.checked,
        status=record.status,
        reason=record.reason,
        note=SUSPICIOUS if record.suspicious else "",
        **shared,
    )
    if record.status == OK and record.flops is not None:
        yield Measurement.of("flops", record.flops / record.settings.batch, **shared)
    if record.status == OK and record.parameters is not None:
        yield Measurement.of("parameters", record.parameters, **shared)
    if record.status == OK and record.limit_ms is not None:
        yield Measurement.of("limit", record.limit_ms, batch=record.settings.batch, threads=record.settings.threads, **shared)


def _measured(subject: OperatorSubject | AnyNetwork | ModelSubject) -> tuple[str | None, str | None]:
    """Return the network, and which part of it was measured."""
    match subject:
        case BackboneSubject():
            return subject.model, subject.layer
        case ModelSubject():
            return subject.factory, None
        case _:
            return None, ", ".join(f"{name}={size}" for name, size in sorted(subject.sizes.items()))


def rows_of_layers(record: LayersRecord, source: str, **place: Any) -> Iterator[Measurement]:
    """Yield the latency of each layer, and what it costs. Arguments are those of `rows_of_tuning`."""
    for layer in record.layers:
        yield from rows_of_tuning(layer.record, source, **place, layer=layer_name(layer))


def layer_name(layer: MeasuredLayer) -> str:
    """Return the layer's name in tables: its size in a network whose layers a publication numbers, else its name there."""
    load_extensions()
    subject = layer.record.subject
    network = (subject.model, subject.width, subject.image_shape[1:]) if isinstance(subject, NetworkSubject) else None
    is_numbered = network is not None and layer.name in NUMBERED_LAYERS.get(network, {})
    return layer.name if is_numbered else str(getattr(subject, "layer", None) or layer.name)


def numbered(layer: str) -> str:
    """Return the name of a layer with its number in a publication before it, if it has one."""
    load_extensions()
    number = next((numbers[layer] for numbers in NUMBERED_LAYERS.values() if layer in numbers), "")
    return f"{number} {layer}".lstrip()
