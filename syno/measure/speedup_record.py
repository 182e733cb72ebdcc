"""The record of a speedup: how many times as fast a network is with an operator, timed in turns with the original."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from syno.base.files import checksum
from syno.base.interval import times_as_fast
from syno.base.record import Amount, Count, Name, Number, Positive, PositiveInterval, Record
from syno.measure.network_subject import AnyNetwork
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import CompiledCode, CompilerChoice, Device, Line, MeasuredSubject, Status, in_ms

Network: TypeAlias = Annotated[AnyNetwork, Field(discriminator="kind")]
Measured: TypeAlias = Literal["network", "layers"]


class OtherCompiler(BaseModel):
    """The compiler of the original network, where it is another than that of the network with the operator.

    Attributes:
        name: a name in `COMPILERS`, or the path of a user's own.
        options: the compiler's own settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    options: dict[str, Any] = {}


class Conditions(BaseModel):
    """Everything that a measurement depends on. Where all of it is equal, nothing is measured again.

    Attributes:
        operator_id: id of the operator.
        network: the original network, with the sizes of its input.
        measured: "network": the whole networks are timed in turns; "layers": each distinct size of the replaced layers is
            timed.
        compiler: a name in `COMPILERS`, or the path of a user's own.
        options: the compiler's own settings.
        device: the device that measures: its kind, its name, and CPU threads.
        machine: an identifier of the machine: a hash, or the address of a remote device.
        settings: how latency is measured.
        versions: versions of the packages that take part, on the machine that measures; a checksum of the code that makes
            networks; and a checksum of the user's own code in the network, the operator and the compiler, if there is any.
        repeat: the number of this measurement among several of the same network, from 0.
        original_compiler: the compiler of the original network; None: `compiler`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    operator_id: str
    network: Network
    measured: Measured
    compiler: str
    options: dict[str, Any] = {}
    device: Device
    machine: str
    settings: LatencySettings
    versions: dict[str, str]
    repeat: int = 0
    original_compiler: OtherCompiler | None = Field(default=None, exclude_if=lambda value: value is None)  # older keys stay

    @property
    def key(self) -> str:
        """Hash of all fields: the name of the measurement's file."""
        return checksum(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode())


class LayerSpeedup(BaseModel):
    """The times of one size of the replaced layers.

    Attributes:
        name: the layer's name by its sizes, as in the paper: "conv_io64".
        count: the number of replaced layers of this size.
        original_ms: milliseconds of one call of the original layer.
        latency_ms: milliseconds of one call of the operator in its place.
        speedup: `original_ms` over `latency_ms`.
        original_limit_ms, limit_ms: lower bounds of the two latencies by the device's peak, as in tuning records; None if the
            peak is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    count: Count
    original_ms: PositiveInterval
    latency_ms: PositiveInterval
    speedup: PositiveInterval
    original_limit_ms: Positive | None = None
    limit_ms: Positive | None = None


class SpeedupRecord(Record):
    """The measured speedup of a network by an operator, or the reason why there is none.

    All intervals are 95 % confidence intervals of medians over rounds. If single layers were timed instead of the network,
    latencies of the networks are sums over layers.

    Attributes:
        name: name of the operator.
        operator: text of the operator.
        conditions: what the measurement depends on.
        status: "ok", or why there is no speedup: "compile_failed", "wrong_output", "failed", "crashed", "timeout",
            "out_of_memory", "misfit", as in `syno.measure.tuning_record`; "partial" if parts of the network run untuned.
        reason: the reason for any status but "ok".
        latency_ms: milliseconds of one call of the network with the operator.
        original_ms: milliseconds of one call of the original network.
        ratio: the speedup with its interval: the median over rounds of the original's time divided by the time with the
            operator. Read `speedup`, `speedup_low` and `speedup_high`.
        original_limit_ms, limit_ms: lower bounds of the two latencies by the device's peak, as in tuning records; None if the
            peak is not known.
        drift: how much the original's own time changed over the rounds, as a share; see `syno.measure.turns.Turns`.
        attempts: how often the rounds were timed; more than once if the drift was above its limit.
        unsteady: a sentence if the drift stayed above its limit: the interval may then be too narrow. Else empty.
        layers: the latencies of each distinct size of the replaced layers, if single layers were timed.
        rest_ms: milliseconds of the original network outside of the replaced layers, if single layers were timed.
        checked: whether the outputs of the compiled code were compared with `reference`, as in tuning records.
        share_of_allowed: the largest difference of an output element, as a share of the tolerance for this element.
        compile_seconds: seconds of compiling the network, or the layers, with the operator.
        code, original_code: the kind of code that ran for the two networks, as in tuning records; if single layers were timed,
            for all layers together.
        choice, original_choice: the compilers that `fastest` chose for the two networks; None with other compilers, or if
            single layers were timed.
        flops, parameters: FLOPs and parameters of the network with the operator; a multiply-add counts as one FLOP.
        time_limit_s, memory_limit_mib: limits of the measurement. A record of a measurement that exceeded a limit is not valid
            for larger limits.
        date: time of the measurement, UTC.
    """

    kind_of_record = "record of a speedup"
    again = "measure"
    passing = frozenset({"date"})

    name: Name
    operator: str
    conditions: Conditions
    status: Status
    reason: str = ""
    latency_ms: PositiveInterval | None = None
    original_ms: PositiveInterval | None = None
    ratio: PositiveInterval | None = None
    original_limit_ms: Positive | None = None
    limit_ms: Positive | None = None
    drift: Amount | None = None
    attempts: Count | None = None
    unsteady: str = ""
    layers: tuple[LayerSpeedup, ...] = ()
    rest_ms: Amount | None = None
    checked: bool = False
    reference: str = ""
    share_of_allowed: Amount | None = None
    compile_seconds: Amount | None = None
    code: CompiledCode | None = None
    original_code: CompiledCode | None = None
    choice: CompilerChoice | None = None
    original_choice: CompilerChoice | None = None
    flops: Number | None = None
    parameters: Number | None = None
    time_limit_s: Positive | None = None
    memory_limit_mib: Positive | None = None
    date: AwareDatetime

    @model_validator(mode="after")
    def _is_a_speedup_or_a_reason(self) -> Self:
        found = (self.ratio, self.latency_ms, self.original_ms, self.drift)
        is_measured = self.status in ("ok", "partial")
        if any((one is not None) != is_measured for one in found) or bool(self.reason) != (self.status != "ok"):
            raise ValueError(
                'a record that is "ok" has a speedup, both latencies, a drift and no reason; one that is "partial" has a '
                "reason, too; every other has a reason alone"
            )
        return self

    @property
    def operator_id(self) -> str:
        """The operator's id."""
        return self.conditions.operator_id

    @property
    def measured(self) -> tuple[MeasuredSubject, ...]:
        """The measured subject: the original network, with the settings of the measurement."""
        found = self.conditions
        return (MeasuredSubject(found.network, found.settings, found.compiler),)

    def lines(self, is_known: bool = False) -> Iterator[Line]:
        """Yield the lines to print: the speedup with its interval, the speedups of layers, and why it is missing or uncertain.

        Args:
            is_known: whether the speedup was measured before.
        """
        place = f"{self.name}, {self.conditions.compiler} on {self.conditions.device.name}"
        fast = partial(times_as_fast, form=".3f", level="95 % in ")
        if self.ratio is not None and self.latency_ms is not None and self.original_ms is not None:
            before = " (measured before)" if is_known else ""
            yield Line(
                f"{place}: {fast(self.ratio)}, {in_ms(self.latency_ms.value, self.limit_ms)}{_by(self.choice)}, original "
                f"{in_ms(self.original_ms.value, self.original_limit_ms)}{_by(self.original_choice)}{self._kernels}{before}"
            )
        for network, choice in ((self.name, self.choice), ("original", self.original_choice)):
            yield from () if choice is None else choice.lines(network)
        for one in self.layers:
            yield Line(
                f"  {one.name}, {one.count} times: {fast(one.speedup)}, {in_ms(one.latency_ms.value, one.limit_ms)}, "
                f"original {in_ms(one.original_ms.value, one.original_limit_ms)}"
            )
        if self.status != "ok":
            yield Line(f"{place}: {self.status}: {self.reason}", is_problem=True)
        if self.unsteady:
            yield Line(f"{place}: {self.unsteady}", is_problem=True)

    @property
    def _kernels(self) -> str:
        """A clause with the numbers of layers of both networks that native kernels compute; "" with other compilers."""
        own, original = (one.kernels if one is not None else "" for one in (self.code, self.original_code))
        return f", {own}, original {original.removeprefix('native kernels ')}" if own and original else own and f", {own}"

    @property
    def speedup(self) -> float | None:
        """The speedup: how many times as fast as the original the network with the operator is; None if it is not known."""
        return None if self.ratio is None else self.ratio.value

    @property
    def speedup_low(self) -> float | None:
        """The lower end of the interval of the speedup."""
        return None if self.ratio is None else self.ratio.low

    @property
    def speedup_high(self) -> float | None:
        """The upper end of the interval of the speedup."""
        return None if self.ratio is None else self.ratio.high


def _by(choice: CompilerChoice | None) -> str:
    """Return a clause that names the compiler that `fastest` chose; "" if there was no choice."""
    return "" if choice is None else f" with {choice.compiler}"
