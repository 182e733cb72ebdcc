"""The schema of measurements: a number with its quantity, device, settings and origin.

All numbers have this schema: those of own trainings and latencies, those of the published artifact, and the paper's. A file
of results holds them as one table (`syno.run.table`), from which every other table and every figure is computed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import AwareDatetime, Field, model_validator

from syno.base.record import Count, Record
from syno.measure.tuning_record import Status
from syno.train.metric import METRICS, MetricKey

Quantity: TypeAlias = Literal[
    "accuracy", "loss", "perplexity", "latency", "throughput", "training_throughput", "flops", "parameters", "memory",
    "limit"
]  # fmt: skip
Origin: TypeAlias = Literal["measured", "artifact", "paper"]
Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]

QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
UNITS: dict[str, str] = {
    "accuracy": "fraction",
    "loss": "nats per token",
    "perplexity": "per token",
    "latency": "ms",
    "throughput": "samples per second",
    "training_throughput": "samples per second",
    "flops": "multiply-adds per sample",
    "parameters": "numbers",
    "memory": "bytes",
    "limit": "ms",
}
OK: Status = "ok"
OF_LIMIT = "of_limit"  # a column of tables of times: the share of the device's limit


class Measurement(Record):
    """One number, or the reason why there is none.

    Attributes:
        operator: The operator's name, or "original" for the original network or layer.
        operator_id: The id of its graph; None if there is no graph, or it is unknown.
        key: The operator's key in an experiment: "original", a baseline's name, or its key in the operator store. None for
            numbers that do not belong to an experiment.
        role: The operator's part in the experiment: "original", "baseline", "rival" or "found". None for a record that the
            experiment no longer uses, such as one of an operator that is no longer selected; no figure shows it.
        model: The network; None for an operator by itself.
        data: The data set; None where it does not matter.
        layer: One layer of the network, or the sizes of an operator by itself; None for the whole network.
        device: The device, as it calls itself; None where no device matters, or it is unknown.
        device_setting: The device as the experiment's settings name it, such as "cpu"; None outside of experiments.
        compiler: A name in `COMPILERS`; None where no compiler took part.
        batch: Samples in one call, for a latency; None if unknown.
        threads: CPU threads, for a latency; None if unknown.
        metric: The quantity. Perplexity is exp(loss). A sample of a training's throughput is a picture, or a token of a text.
            This throughput is of whole steps: making a batch, forward, backward, and the update of the weights. The limit is
            the time that the device takes for the work of a latency at its peak.
        value: The number, in `unit`. It is finite; None if the measurement failed.
        low: The lower end of the 95 % confidence interval of `value`; None if unknown.
        high: Its upper end; None if unknown.
        unit: The metric's unit in `UNITS`; that of the score of a task of one's own is in its key (`syno.train.metric`).
        repeats: The number of repetitions of the measurement; None if unknown.
        seed: The seed of weights and of the order of samples; None if there is none, or it is unknown.
        checked: Whether outputs were compared with a reference, for a latency; None if unknown.
        status: "ok"; "partial" for a latency of a network of which some parts are not tuned, so that it does not compare with
            others; anything else says how the measurement failed, and then there is no value.
        reason: Why the status is not "ok".
        versions: The versions of the packages that took part.
        when: The time of the measurement; None if unknown.
        origin: "measured" here, "artifact" for numbers from the authors' data, "paper" for numbers printed there.
        source: The file that it was read from, or the place in the paper.
        note: A warning for readers, such as that the measured code was wrong; "" without one.
    """

    kind_of_record = "measurement"
    again = "measure"
    passing = frozenset({"when"})

    operator: str
    operator_id: str | None = None
    key: str | None = None
    role: str | None = None
    model: str | None = None
    data: str | None = None
    layer: str | None = None
    device: str | None = None
    device_setting: str | None = None
    compiler: str | None = None
    batch: Count | None = None
    threads: Count | None = None
    metric: Quantity | MetricKey
    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    unit: str
    repeats: Count | None = None
    seed: int | None = None
    checked: bool | None = None
    status: Status = OK
    reason: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    when: AwareDatetime | None = None
    origin: Origin
    source: str
    note: str = ""

    @classmethod
    def of(cls, metric: str, value: float | None, **fields: Any) -> Self:
        """Return a measurement of a metric, with the metric's unit; `fields` are the other attributes."""
        return cls(metric=metric, value=value, unit=_unit_of(metric), **fields)

    @model_validator(mode="after")
    def _is_in_its_unit(self) -> Self:
        if self.unit != (unit := _unit_of(self.metric)):
            raise ValueError(f'{self.metric} is measured in "{unit}"; given: "{self.unit}"')
        if (self.value is not None) != (self.status in (OK, "partial")):
            raise ValueError(f'a measurement with the status "{self.status}" has {"no" if self.value is None else "a"} value')
        if self.value is None:
            return self
        if self.metric in METRICS:
            METRICS[self.metric].check(self.value)
        elif self.value < 0:
            raise ValueError(f"{self.metric} is 0 or more; given: {self.value}")
        return self


def _unit_of(metric: str) -> str:
    return UNITS[metric] if metric in UNITS else METRICS[metric].unit


class Measurements(Record):
    """A file with a list of measurements."""

    kind_of_record = "file of measurements"
    again = "collect them (`syno artifact import`, for published ones)"

    measurements: tuple[Measurement, ...]
