"""Records of measurements: their base class, and the record of one latency (of one subject, compiler and device)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from syno.base.record import Amount, Count, Name, Number, Positive, Record
from syno.base.text_tables import plural
from syno.measure.network_subject import AnyNetwork, BackboneSubject
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings

Status: TypeAlias = Literal[
    "ok", "partial", "compile_failed", "wrong_output", "failed", "crashed", "timeout", "out_of_memory", "misfit"
]
SUSPICIOUS = "suspicious: faster than the device's own peak allows"
AnySubject: TypeAlias = Annotated[OperatorSubject | AnyNetwork | ModelSubject, Field(discriminator="kind")]


class Device(BaseModel):
    """A device: its kind ("cpu" or "cuda"), its name (empty if unknown), and the CPU threads that were used."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str
    name: str
    threads: Count


class MeasuredSubject(NamedTuple):
    """A measured subject with its settings and its compiler; the compiler is "" for a training."""

    subject: BaseModel
    settings: BaseModel
    compiler: str


class Line(NamedTuple):
    """A printed line about a measurement; a problem goes to stderr."""

    text: str
    is_problem: bool = False


def in_ms(time: float, limit: float | None, between: str = "") -> str:
    """Return a latency as text, as "1.5 ms (BETWEEN; 40 % of the limit)".

    `limit` is the device's lower bound in ms, if known.
    """
    share = "" if limit is None else f"{100 * limit / time:{'.0f' if limit > time / 10 else '.2g'}} % of the limit"
    return f"{time:.4g} ms" + (f" ({'; '.join(filter(None, (between, share)))})" if between or share else "")


class CompiledCode(BaseModel):
    """The compiled code that ran in the timed calls.

    Attributes:
        graphs: the number of graphs that PyTorch's compiler compiled.
        flops_share: the share of a call's FLOPs in these graphs, without the FLOPs of native kernels.
        native_kernels: the number of layers that native kernels compute; None for compilers without native kernels.
        native_layers: the number of layers that native kernels could compute.
        made_by: the C++ compiler of the kernels for the CPU.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    graphs: Number
    flops_share: Amount
    native_kernels: Number | None = None
    native_layers: Number | None = None
    made_by: str = ""

    @classmethod
    def of_all(cls, parts: Sequence[CompiledCode | None]) -> CompiledCode | None:
        """Return the compiled code of several modules, with counts added up; None unless it is known for all of them."""
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
        """A clause with the number of layers that native kernels compute; "" for compilers without native kernels."""
        if self.native_kernels is None or self.native_layers is None:
            return ""
        return f"native kernels in {self.native_kernels} of {plural(self.native_layers, 'layer')}"


class CompilerChoice(BaseModel):
    """The choice of the compiler `fastest` for one network.

    Attributes:
        compiler: the name of the fastest compiler, whose code was timed.
        latencies_ms: milliseconds of a call with each compiler, in a short comparison in turns.
        failures: the reasons why compilers took no part, by their names, such as missing packages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    compiler: str
    latencies_ms: dict[str, Positive]
    failures: dict[str, str] = {}

    def lines(self, network: str) -> Iterator[Line]:
        """Yield a line for each compiler that took no part in the choice for a network, with the reason."""
        for name, reason in self.failures.items():
            yield Line(f"{network}: the fastest compiler was chosen without {name}: {reason}")


class MeasurementRecord(Record):
    """Base class of records of measurements of one network, original or with an operator, on one device.

    Attributes:
        name: the name of the operator, or "original"; for a user's own model, its factory.
        operator_id: the id of the operator; None for the original.
    """

    name: Name
    operator_id: str | None

    @property
    def measured(self) -> tuple[MeasuredSubject, ...]:
        """The measured subjects with their settings: an experiment uses the record only if its own settings are equal."""
        return ()

    @property
    def has_failed(self) -> bool:
        """Whether a measurement failed, so that the measuring command ends with exit code 1."""
        return False

    def lines(self, place: str) -> Iterator[Line]:
        """Yield the lines that the measuring command prints; `place` is the compiler and device, such as "eager on cpu"."""
        raise NotImplementedError

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of each measured number, for a row in the table of measurements
        (`syno.run.measurement.Measurement`).

        The row also gets the network's fields in an experiment, such as `key`. A kind of record with a table of its own has no
        rows.
        """
        return iter(())


class TaskResult(BaseModel):
    """The tuning of one task: a kernel at one shape.

    Attributes:
        name: TVM's name: the operations fused in it.
        calls: how often it occurs in the network.
        trials: number of schedules measured so far, including failed ones and earlier runs.
        measured: number of schedules measured in this run.
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
        trials_wanted: number of schedules to measure, of all tasks together.
        trials: number of schedules measured so far, including failed ones and earlier runs.
        measured: number of schedules measured in this run.
        seconds: duration of this run's tuning.
        complete: whether each task has its wanted number of trials, or no more schedules.
        tasks: the tasks.
        without_schedule: names of tasks without a working schedule, which run untuned.
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
        """Return the summary of the tasks' results; `per_task` is the wanted number of trials of each task."""
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
        """The reason why the latency is not that of a tuned network; "" if it is."""
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
        checked: whether outputs were compared with `reference`, including that of a timed call.
        largest_relative_error: the largest difference of an output, as a share of the reference's largest value.
        share_of_allowed: the largest ratio of an element's difference to the difference allowed for that element, by rounding
            or by `settings.tolerance`.
        rounding_error: the estimated standard deviation of rounding errors, as a share of the root mean square.
        limit_ms: the lower bound of the latency by the device's peak for these FLOPs and bytes; None if it is not known.
        suspicious: whether it is faster than the device's peak allows.
        compile_seconds: seconds of compiling, tuning, and the first call, in which compilers do their work. Nothing but TVM's
            trials is cached.
        flops, parameters: FLOPs and parameters of the module; a multiply-add counts as one FLOP.
        tuning: the summary of tuning; None for compilers that do not tune.
        remark: the compiler's remark, such as the number of layers that native kernels compute.
        code: the compiled code that ran; None for compilers that do not report it.
        choice: the compiler that `fastest` chose; None for other compilers.
        versions: the versions of the packages that were used.
        date: time of the measurement, UTC.
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
    choice: CompilerChoice | None = None
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
        """The measured subject with its settings."""
        return (MeasuredSubject(self.subject, self.settings, self.compiler),)

    @property
    def has_failed(self) -> bool:
        """Whether there is no latency, or only a partial one, which must not be compared."""
        return self.status != "ok"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row with the latency, FLOPs and parameters of the network or operator.

        A failed tuning has a row without values; a partial one, a row with the latency alone.
        """
        model, layer = _part_of(self.subject)
        shared: dict[str, Any] = {
            "operator": self.name,
            "operator_id": self.operator_id,
            "model": model,
            "layer": layer,
            "device": self.device.name or self.device.kind,
            "compiler": self.compiler,
            "versions": self.versions,
            "when": self.date,
        }
        timed = shared | {"batch": self.settings.batch, "threads": self.settings.threads}
        yield timed | {
            "metric": "latency",
            "value": self.latency_ms,
            "low": self.latency_low_ms,
            "high": self.latency_high_ms,
            "repeats": self.repeats,
            "checked": self.checked,
            "status": self.status,
            "reason": self.reason,
            "note": SUSPICIOUS if self.suspicious else "",
        }
        if self.status == "ok" and self.flops is not None:
            yield shared | {"metric": "flops", "value": self.flops / self.settings.batch}
        if self.status == "ok" and self.parameters is not None:
            yield shared | {"metric": "parameters", "value": self.parameters}
        if self.status == "ok" and self.limit_ms is not None:
            yield timed | {"metric": "limit", "value": self.limit_ms}

    def lines(self, place: str = "") -> Iterator[Line]:
        """Yield the lines to print: the latency with its interval, and the reason if the status is not "ok"; `place` is not
        used.
        """
        here = f"{self.name}, {self.compiler} on {self.device.name or self.device.kind}"
        if self.latency_ms is not None:
            interval = f"95 % in {self.latency_low_ms:.4g} to {self.latency_high_ms:.4g}"
            by = "" if self.choice is None else f" with {self.choice.compiler}"
            remark = f", {self.remark}" if self.remark else ""
            yield Line(f"{here}: {in_ms(self.latency_ms, self.limit_ms, interval)}{by}{remark}")
        if self.choice is not None:
            yield from self.choice.lines(self.name)
        if self.has_failed:
            yield Line(f"{here}: {self.status}: {self.reason}", is_problem=True)


def _part_of(subject: OperatorSubject | AnyNetwork | ModelSubject) -> tuple[str | None, str | None]:
    """Return the name of the measured network, and the name of the measured part of it; None for what the subject lacks."""
    match subject:
        case BackboneSubject():
            return subject.model, subject.layer
        case ModelSubject():
            return subject.factory, None
        case _:
            return None, ", ".join(f"{name}={size}" for name, size in sorted(subject.sizes.items()))
