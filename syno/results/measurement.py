"""A measurement: one number, what was measured, where, and where the number comes from. All numbers have this schema."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import AwareDatetime, Field, model_validator

from syno.base.record import Count, Record
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.train.settings import Metric, check_score

if TYPE_CHECKING:
    from syno.measure.tuning_record import TuningRecord
    from syno.train.training_record import TrainingRecord

Quantity: TypeAlias = Literal["accuracy", "loss", "latency", "flops", "parameters"]
Origin: TypeAlias = Literal["measured", "artifact", "paper"]

QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
UNITS: dict[Quantity, str] = {
    "accuracy": "fraction",
    "loss": "nats per token",
    "latency": "ms",
    "flops": "multiply-adds per sample",
    "parameters": "numbers",
}
SUSPICIOUS = "suspicious: faster than the device's own peak allows"


class Measurement(Record):
    """One number.

    Attributes:
        operator: its name, or "original" for the network (or the layer) as it is.
        operator_id: of its graph; None if there is none, or it is unknown.
        model: the network; None for an operator by itself.
        data: the data set; None where it does not matter.
        layer: one layer of the network, or the sizes of an operator by itself; None for the whole network.
        device: where it was measured; None for what no device decides, or nobody has told.
        compiler: a name in `COMPILERS`; None where none took part.
        metric: what was measured.
        value: of the metric, in `unit`. It is finite: what failed is no measurement.
        unit: that of the metric in `UNITS`.
        repeats: how often it was measured; None if unknown.
        seed: of weights and of the order of samples; None if there is none, or it is unknown.
        versions: of what took part.
        when: it was measured; None if unknown.
        origin: "measured" here, by the authors ("artifact": read from their data), or told in the "paper".
        source: the file it was read from, or the place in the paper.
        note: what is to be known before it is used.
    """

    kind_of_record = "measurement"
    again = "measure"
    passing = frozenset({"when"})

    operator: str
    operator_id: str | None = None
    model: str | None = None
    data: str | None = None
    layer: str | None = None
    device: str | None = None
    compiler: str | None = None
    metric: Quantity
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: str
    repeats: Count | None = None
    seed: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    when: AwareDatetime | None = None
    origin: Origin
    source: str
    note: str = ""

    @classmethod
    def of(cls, metric: Quantity, value: float, **fields: Any) -> Self:
        """A measurement in the metric's unit."""
        return cls(metric=metric, value=value, unit=UNITS[metric], **fields)

    @model_validator(mode="after")
    def _is_in_its_unit(self) -> Self:
        if self.unit != UNITS[self.metric]:
            raise ValueError(f'{self.metric} is measured in "{UNITS[self.metric]}"; given: "{self.unit}"')
        if self.metric in get_args(Metric):
            check_score(self.metric, self.value)
        elif self.value < 0:
            raise ValueError(f"{self.metric} is 0 or more; given: {self.value}")
        return self


class Measurements(Record):
    """Many measurements in one file."""

    kind_of_record = "file of measurements"
    again = "collect them (`syno artifact import`, for published ones)"

    measurements: tuple[Measurement, ...]


def of_training(record: TrainingRecord, source: str) -> list[Measurement]:
    """What a training measured: the score, and what the network costs. A loss that is infinite is no measurement.

    Args:
        record: of the training.
        source: the record's file.
    """
    numbers: dict[Quantity, float] = {record.metric: record.score, "flops": record.flops, "parameters": record.parameters}
    return [
        Measurement.of(
            metric,
            value,
            operator=record.name,
            operator_id=record.operator_id,
            model=record.workload.model,
            data=record.workload.data,
            device=record.device,
            repeats=1,
            seed=record.seed,
            versions=record.versions,
            when=record.date,
            origin="measured",
            source=source,
        )
        for metric, value in numbers.items()
        if isfinite(value)
    ]


def of_tuning(record: TuningRecord, source: str) -> list[Measurement]:
    """What a compiled network or operator takes, and costs. Nothing comes of a record that is not "ok".

    Args:
        record: of the tuning.
        source: the record's file.
    """
    if record.status != "ok" or record.latency_ms is None:
        return []
    numbers: dict[Quantity, float | None] = {
        "latency": record.latency_ms,
        "flops": None if record.flops is None else record.flops / record.settings.batch,
        "parameters": record.parameters,
    }
    model, layer = _measured(record.subject)
    return [
        Measurement.of(
            metric,
            value,
            operator=record.name,
            operator_id=record.operator_id,
            model=model,
            layer=layer,
            device=record.device.name or record.device.kind,
            compiler=record.compiler,
            repeats=record.repeats if metric == "latency" else None,
            versions=record.versions,
            when=record.date,
            origin="measured",
            source=source,
            note=SUSPICIOUS if record.suspicious and metric == "latency" else "",
        )
        for metric, value in numbers.items()
        if value is not None
    ]


def _measured(subject: OperatorSubject | NetworkSubject | LanguageModelSubject | ModelSubject) -> tuple[str | None, str | None]:
    """The network, and which part of it."""
    match subject:
        case NetworkSubject() | LanguageModelSubject():
            return subject.model, subject.layer
        case ModelSubject():
            return subject.factory, None
        case _:
            return None, ", ".join(f"{name}={size}" for name, size in sorted(subject.sizes.items()))
