"""What tuning found out about one operator or model, with one compiler on one device: a record, and its file."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from syno.base.record import Amount, Count, Number, Positive, Record
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tvm.summary import TuningSummary

Status: TypeAlias = Literal["ok", "partial", "compile_failed", "wrong_output", "failed", "crashed", "timeout", "out_of_memory"]
AnySubject: TypeAlias = Annotated[
    OperatorSubject | NetworkSubject | LanguageModelSubject | ModelSubject, Field(discriminator="kind")
]


class Device(BaseModel):
    """Where it was measured: "cpu" or "cuda", what the device calls itself (empty if unknown), and the CPU threads used."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str
    name: str
    threads: Count


class TuningRecord(Record):
    """One measurement, or why there is none.

    Attributes:
        name: of the operator, or "original"; of a user's own model, its factory.
        operator_id: of the operator.
        subject: what was measured, with its sizes or arguments.
        compiler: a name in `COMPILERS`.
        status: "ok"; "partial": it was measured, but parts of it are not tuned, so its latency is not to be compared;
            "compile_failed"; "wrong_output": it does not compute what its reference does; "failed": another error, such as
            a factory that raises; "crashed", "timeout", "out_of_memory": the process ended early or was stopped.
        reason: of any status but "ok".
        latency_ms: the median of one call; `latency_low_ms` and `latency_high_ms` are its 95 % confidence interval,
            `latency_minimum_ms` is the fastest repeat.
        checked: whether outputs were compared with `reference`, that of a timed call among them.
        largest_relative_error: the largest difference of an output, as a share of the reference's largest value.
        share_of_allowed: the largest difference of an element, as a share of what is allowed for that element: what rounding
            explains, or `settings.tolerance` of the largest value if that is set. None in records of versions that compared
            with `settings.tolerance` only.
        rounding_error: how much rounding alone changes an output: the standard deviation as a share of the root mean square.
        suspicious: whether it is faster than the device's own peak allows.
        compile_seconds: what the compiler took, with its tuning, and the first call, in which compilers do their work. Nothing
            was cached but TVM's trials.
        flops, parameters: of the module; multiply-adds count as one FLOP.
        tuning: how schedules were found, for the compiler "tvm".
        versions: of what took part.
        date: when it was measured, UTC.
    """

    kind_of_record = "tuning record"
    again = "run `syno tune`"
    name: str
    operator_id: str | None
    subject: AnySubject
    compiler: str
    device: Device
    settings: LatencySettings
    status: Status
    reason: str = ""
    latency_ms: Positive | None = None
    latency_low_ms: Positive | None = None
    latency_high_ms: Positive | None = None
    latency_minimum_ms: Positive | None = None
    repeats: Count | None = None
    calls_per_repeat: Count | None = None
    inputs_exceed_cache: bool | None = None
    checked: bool = False
    reference: str = ""
    largest_relative_error: Amount | None = None
    share_of_allowed: Amount | None = None
    rounding_error: Amount | None = None
    flops_per_second: Amount | None = None
    bytes_per_second: Amount | None = None
    suspicious: bool = False
    compile_seconds: Amount | None = None
    flops: Number | None = None
    parameters: Number | None = None
    tuning: TuningSummary | None = None
    versions: dict[str, str]
    date: AwareDatetime

    @model_validator(mode="after")
    def _is_a_time_or_a_reason(self) -> TuningRecord:
        has_time, has_reason = self.latency_ms is not None, bool(self.reason)
        if has_time != (self.status in ("ok", "partial")) or has_reason != (self.status != "ok"):
            raise ValueError(
                'a record that is "ok" has a latency and no reason; one that is "partial" has both; every other has a '
                "reason and no latency"
            )
        low, high = self.latency_low_ms, self.latency_high_ms
        if self.latency_ms is not None and low is not None and high is not None and not low <= self.latency_ms <= high:
            raise ValueError(f"the latency, {self.latency_ms:g} ms, is not in its confidence interval, {low:g} to {high:g} ms")
        return self
