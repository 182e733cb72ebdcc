"""Records of measurements: what all of them have, and the record of one latency: one subject, one compiler, one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from syno.base.record import Amount, Count, Name, Number, Positive, Record
from syno.base.text_tables import plural
from syno.measure.network_subject import AnyNetwork
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings

Status: TypeAlias = Literal[
    "ok", "partial", "compile_failed", "wrong_output", "failed", "crashed", "timeout", "out_of_memory", "misfit"
]
AnySubject: TypeAlias = Annotated[OperatorSubject | AnyNetwork | ModelSubject, Field(discriminator="kind")]


class Device(BaseModel):
    """A device: its kind ("cpu" or "cuda"), its name (empty if unknown), and the CPU threads that were used."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str
    name: str
    threads: Count


class MeasuredSubject(NamedTuple):
    """What was measured, with which settings, and by which compiler; "" where it was trained, which none of them does."""

    subject: BaseModel
    settings: BaseModel
    compiler: str


class Line(NamedTuple):
    """A line that tells people of a measurement; a problem goes to the error stream."""

    text: str
    is_problem: bool = False


def in_ms(time: float, limit: float | None, between: str = "") -> str:
    """Return a latency in ms as text, with the share of it that is the device's limit if known; `between` separates both."""
    share = "" if limit is None else f"{100 * limit / time:{'.0f' if limit > time / 10 else '.2g'}} % of the limit"
    return f"{time:.4g} ms" + (f" ({'; '.join(filter(None, (between, share)))})" if between or share else "")


class CompiledCode(BaseModel):
    """What ran in the calls that were timed.

    Attributes:
        graphs: that PyTorch's compiler compiled.
        flops_share: the share of a call's FLOPs that is in them; what native kernels compute does not count.
        native_kernels: how many layers native kernels compute; None where there are none by the compiler's nature.
        native_layers: how many layers they could compute.
        made_by: the C++ compiler that made kernels for the CPU.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    graphs: Number
    flops_share: Amount
    native_kernels: Number | None = None
    native_layers: Number | None = None
    made_by: str = ""

    @classmethod
    def of_all(cls, parts: Sequence[CompiledCode | None]) -> CompiledCode | None:
        """Return the code that ran of several modules, joined; None if it is not known for all of them."""
        known = [one for one in parts if one is not None]
        if not known or len(known) < len(parts):
            return None
        kernels, layers = ([getattr(one, name) for one in known] for name in ("native_kernels", "native_layers"))
        has_kernels = None not in kernels and None not in layers
        return cls(
            graphs=sum(one.graphs for one in known),
            flops_share=min(one.flops_share for one in known),
            native_kernels=sum(kernels) if has_kernels else None,
            native_layers=sum(layers) if has_kernels else None,
            made_by=known[0].made_by,
        )

    @property
    def kernels(self) -> str:
        """How many layers native kernels compute, in words; "" where there are none by the compiler's nature."""
        if self.native_kernels is None or self.native_layers is None:
            return ""
        return f"native kernels in {self.native_kernels} of {plural(self.native_layers, 'layer')}"


class MeasurementRecord(Record):
    """A record of what was measured of one network, as it is or with an operator, on one device.

    Attributes:
        name: of the operator, or "original"; of a user's own model, its factory.
        operator_id: of the operator.
    """

    name: Name
    operator_id: str | None

    @property
    def measured(self) -> tuple[MeasuredSubject, ...]:
        """What was compiled and measured, with its settings: an experiment with others has no use for the record."""
        return ()

    @property
    def has_failed(self) -> bool:
        """Whether something could not be measured, so that the command that measures ends with exit code 1."""
        return False

    def lines(self, place: str) -> Iterator[Line]:
        """Yield the lines that the measuring command prints; `place` is the compiler and device, such as "eager on cpu"."""
        raise NotImplementedError


class TaskResult(BaseModel):
    """The tuning of one task: a kernel at one shape.

    Attributes:
        name: TVM's name: the operations fused in it.
        calls: how often it occurs in the network.
        trials: schedules measured, in earlier runs too; those that failed count.
        measured: of these, in this run.
        best_ms: latency of the best schedule; None if none succeeded.
        exhausted: whether there are no more schedules to measure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    calls: Number
    trials: Number
    measured: Number
    best_ms: Amount | None
    exhausted: bool = False


class TuningSummary(BaseModel):
    """The tuning of a network.

    Attributes:
        target: attributes of TVM's target.
        dtype: the type of tensors.
        trials_wanted: schedules to measure of all tasks together.
        trials: schedules measured, in earlier runs too; those that failed count.
        measured: of these, in this run.
        seconds: duration of this run's tuning.
        complete: whether each task has the trials that were wanted, or has no more.
        tasks: the tasks.
        without_schedule: names of tasks for which no schedule works: they run untuned.
        untuned_ms: latency of the network before tuning, the faster of two calls; None if nothing was tuned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    target: dict[str, Any]
    dtype: str = "float32"
    trials_wanted: Number
    trials: Number
    measured: Number
    seconds: Amount
    complete: bool
    tasks: tuple[TaskResult, ...]
    without_schedule: tuple[str, ...]
    untuned_ms: Amount | None = None

    @classmethod
    def of(
        cls, tasks: list[TaskResult], target: dict[str, Any], per_task: int, seconds: float, untuned_ms: float | None
    ) -> TuningSummary:
        """Return the summary of the tasks' results, where so many trials of each were wanted."""
        return cls(
            target=target,
            trials_wanted=per_task * len(tasks),
            trials=sum(task.trials for task in tasks),
            measured=sum(task.measured for task in tasks),
            seconds=seconds,
            complete=all(task.trials >= per_task or task.exhausted for task in tasks),
            tasks=tuple(tasks),
            without_schedule=tuple(task.name for task in tasks if task.best_ms is None),
            untuned_ms=untuned_ms,
        )

    @property
    def shortcoming(self) -> str:
        """The reason why its latency is not that of a tuned network; empty if it is."""
        if not self.without_schedule:
            return ""
        names = ", ".join(self.without_schedule[:3]) + (", ..." if len(self.without_schedule) > 3 else "")
        why = "their trials failed" if self.complete else "tuning was not finished: tune again, and it goes on"
        return f"{len(self.without_schedule)} of {len(self.tasks)} tasks run untuned ({names}): {why}"


class TuningRecord(MeasurementRecord):
    """One measurement, or the reason why there is none.

    Attributes:
        subject: what was measured, with its sizes or arguments.
        compiler: a name in `COMPILERS`, or the path of a user's own.
        status: "ok"; "partial": measured, but parts of it are not tuned, so its latency is not to be compared;
            "compile_failed"; "wrong_output": it does not compute what its reference does; "failed": another error, such as
            a factory that raises; "crashed", "timeout", "out_of_memory": the process ended early or was stopped; "misfit": the
            operator cannot have the sizes of this layer, so there was nothing to measure.
        reason: the reason for any status but "ok".
        latency_ms: the median of one call; `latency_low_ms` and `latency_high_ms` are its 95 % confidence interval,
            `latency_minimum_ms` is the fastest repeat.
        checked: whether outputs were compared with `reference`, that of a timed call among them.
        largest_relative_error: the largest difference of an output, as a share of the reference's largest value.
        share_of_allowed: the largest difference of an element, as a share of what is allowed for that element: what rounding
            explains, or `settings.tolerance` of the largest value if that is set.
        rounding_error: how much rounding alone changes an output: the standard deviation as a share of the root mean square.
        limit_ms: the milliseconds that the device takes at its peak for so many FLOPs and bytes; None if it is not known.
        suspicious: whether it is faster than the device's own peak allows.
        compile_seconds: seconds of compiling, with tuning, and of the first call, in which compilers do their work. Nothing
            was cached but TVM's trials.
        flops, parameters: of the module; multiply-adds count as one FLOP.
        tuning: how schedules were found, by a compiler that tunes.
        remark: what the compiler says of the result, such as how much of it native kernels compute.
        code: what ran, of the compilers that tell.
        versions: of the packages that took part.
        date: when it was measured, UTC.
    """

    kind_of_record = "tuning record"
    again = "run `syno tune`"

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
    limit_ms: Positive | None = None
    suspicious: bool = False
    compile_seconds: Amount | None = None
    flops: Number | None = None
    parameters: Number | None = None
    tuning: TuningSummary | None = None
    remark: str = ""
    code: CompiledCode | None = None
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

    @property
    def measured(self) -> tuple[MeasuredSubject, ...]:
        """The subject with the settings."""
        return (MeasuredSubject(self.subject, self.settings, self.compiler),)

    @property
    def has_failed(self) -> bool:
        """Whether there is no latency, or one that is not to be compared."""
        return self.status != "ok"

    def lines(self, place: str = "") -> Iterator[Line]:
        """Yield the latency with its interval, and the reason if there is none; the record itself knows the place."""
        here = f"{self.name}, {self.compiler} on {self.device.name or self.device.kind}"
        if self.latency_ms is not None:
            interval = f"95 % in {self.latency_low_ms:.4g} to {self.latency_high_ms:.4g}"
            yield Line(f"{here}: {in_ms(self.latency_ms, self.limit_ms, interval)}{f', {self.remark}' if self.remark else ''}")
        if self.has_failed:
            yield Line(f"{here}: {self.status}: {self.reason}", is_problem=True)
