"""Measurement of speedups in this process: the original is compiled once, and timed in turns with each operator's network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from syno.base.core_locks import alone, computing
from syno.base.errors import DeviceError, SpecError
from syno.measure.job import Phase
from syno.measure.latency import pinned
from syno.measure.measuring import (
    REASON_CHARACTERS,
    Begin,
    Prepared,
    findings,
    job_of,
    limit_ms,
    prepared,
    status_of,
    take_gpu,
)
from syno.measure.network_subject import BackboneSubject
from syno.measure.output_check import check_of
from syno.measure.protocol import Findings, Request, Tell
from syno.measure.speedup_record import LayerSpeedup
from syno.measure.subjects import Subject
from syno.measure.timing import evaluate_of, stopwatch_of
from syno.measure.tuning_record import CompiledCode
from syno.measure.turns import Turns, take_turns
from syno.measure.tvm.targets import DeviceSettings

# Measured by layers, each distinct size is timed alone, and a network's time is the sum of these times by their counts.


@dataclass(frozen=True)
class Layers:
    """The distinct sizes of a network's replaced layers.

    Attributes:
        names: the name in the network of one layer of each size.
        titles: the names of the sizes, as in the paper: "conv_io64".
        counts: the number of layers of each size.
    """

    names: tuple[str, ...]
    titles: tuple[str, ...]
    counts: tuple[int, ...]

    def total(self, times: Sequence[float]) -> float:
        """Return the time of all layers together from the times of one layer of each size."""
        return sum(count * time for count, time in zip(self.counts, times, strict=True))

    def summed(self, times: Sequence[float], rest: float) -> tuple[float, float]:
        """Return the times of the original network and of the network with the operator, as sums over layers.

        Args:
            times: times of one original layer of each size, followed by those of the operator in each size.
            rest: the share of the original network's time outside of these layers.
        """
        before, after = self.total(times[: len(self.names)]), self.total(times[len(self.names) :])
        whole = before / (1 - rest)
        return whole, rest * whole + after


def layers_of(subject: BackboneSubject) -> Layers:
    """Return the distinct sizes of the layers that are replaced in a network. Raises SpecError if there is none."""
    from syno.model.extraction import distinct_layers, replaceable, size_of

    network, example = subject.backbone(), subject.example()
    sizes = [size_of(layer) for layer in replaceable(network, example, subject.layers)]
    found = distinct_layers(network, example, subject.layers)
    return Layers(
        names=tuple(one.layer.name for one in found),
        titles=tuple(one.name for one in found),
        counts=tuple(sizes.count(size_of(one.layer)) for one in found),
    )


def layer_speedups(layers: Layers, turns: Turns, limits: Sequence[float | None]) -> tuple[LayerSpeedup, ...]:
    """Return the times and the speedup for each size of the replaced layers.

    Args:
        layers: the distinct sizes.
        turns: the rounds: in each, the times of all original layers, followed by those of the operator in each size.
        limits: lower bounds of one call, in milliseconds, in the same order.
    """
    found = []
    for place, (title, count) in enumerate(zip(layers.titles, layers.counts, strict=True)):
        other = place + len(layers.names)
        pair = Turns.of([(times[place], times[other]) for times in turns.rounds])
        original, own = pair.latencies
        times = {"original_ms": original, "latency_ms": own, "speedup": pair.speedups[0]}
        found.append(LayerSpeedup(name=title, count=count, **times, original_limit_ms=limits[place], limit_ms=limits[other]))
    return tuple(found)


Fields: TypeAlias = dict[str, Any]


def joined(shortcomings: Sequence[str]) -> str:
    """Return the distinct sentences about shortcomings as one text."""
    return " ".join(sorted(set(filter(None, shortcomings))))


def times_of(turns: Turns) -> Fields:
    """Return the fields of a speedup record that follow from timing in turns."""
    found: Fields = {
        "original_ms": turns.latencies[0],
        "latency_ms": turns.latencies[1],
        "ratio": turns.speedups[0],
        "drift": turns.drift,
        "attempts": turns.attempts,
        "unsteady": turns.unsteady,
    }
    return found


def remote_fields(request: Request, device: DeviceSettings, begin: Begin) -> Fields:
    """Return the fields of a speedup record, measured by TVM's RPC: both networks are timed in turns in one session.

    Raises DeviceError if the device does not answer, and the exceptions of TVM's compiler.
    """
    from syno.measure.tvm.compiler import turns_on

    if request.compiler != "tvm" or request.measured != "network":
        raise SpecError(f"over TVM's RPC whole networks are measured, compiled by tvm, not by {request.compiler}")
    assert isinstance(request.subject, BackboneSubject)
    lacking: list[str] = []
    begin("building")
    jobs, materials = [], []
    for subject in (request.subject.model_copy(update={"operator": None}), request.subject):
        material = subject.make("cpu", request.settings.batch)
        check = check_of(material, request.settings, "cpu")
        jobs.append(job_of(request.model_copy(update={"subject": subject}), material, check, begin, lacking.append))
        materials.append(material)
    deviations, turns = turns_on(jobs, device)
    return {
        "shortcoming": joined(lacking),
        **times_of(turns),
        "flops": materials[1].flops,
        "parameters": materials[1].parameters,
        "checked": True,
        "reference": materials[1].reference_name,
        "share_of_allowed": max(one.of_allowed for one in deviations),
    }


class Rest(NamedTuple):
    """The part of an original network outside of its replaced layers, if these are measured alone.

    Attributes:
        share: the share of the network's time outside of the layers.
        limit_ms: the lower bound of a call of the network, as in tuning records.
        call_bytes: bytes of the network's input and output.
    """

    share: float
    limit_ms: float | None
    call_bytes: int


MOST_COMPILED = 12  # modules that PyTorch's compiler holds at once; then it forgets all of them


class SpeedupMeasuring:
    """Answers requests for speedups one after another, and caches the compiled original and its check between them."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}  # cache of prepared originals, and of the rests of networks
        self._compiled = 0
        self._begin: Begin = lambda _: None  # is told the name of each phase

    def findings(self, request: Request, tell: Tell = lambda _: None) -> Findings:
        """Return the final findings, as `syno.measure.measuring.findings` does."""
        return findings(request, tell, self._measure)

    def _measure(self, request: Request, findings: Findings, keep: Callable[[], None]) -> None:
        def begin(phase: Phase) -> None:
            findings.phase = phase
            keep()

        findings.phase, self._begin = "building", begin
        with torch.no_grad(), pinned(request.settings):
            if request.device.startswith("cuda") and request.remote is None:
                take_gpu(request.device, request.memory_limit_mib)
            self._make_room()
            begin("waiting")
            with computing(request.device):  # compiling would disturb measurements of other processes
                fields = self._by_layers(request) if request.measured == "layers" else self._whole(request)
        findings.shortcoming = fields.pop("shortcoming")
        findings.fields = fields

    def _whole(self, request: Request) -> Fields:
        if request.remote is not None:
            return remote_fields(request, request.remote, self._begin)
        original = self._original(_of_original(request), self._subject(request))
        own = self._prepared(request, request.subject)
        turns = self._timed([original, own], request)
        limits = {"original_limit_ms": original.limit_ms, "limit_ms": own.limit_ms}
        return {**_facts([original], [own], request), **times_of(turns), **limits, "compile_seconds": own.compile_seconds}

    def _by_layers(self, request: Request) -> Fields:
        subject = self._subject(request)
        layers = self._keep(f"layers {subject.model_dump_json()}", lambda: layers_of(subject))
        names = layers.names
        originals = [self._original(request, subject.model_copy(update={"layer": name})) for name in names]
        rest = self._keep(f"rest {_identity(request, subject)}", lambda: self._rest(request, layers, originals))
        own = [self._prepared(request, request.subject.model_copy(update={"layer": name})) for name in names]
        turns = self._timed([*originals, *own], _shared(request, len(names)), lambda times: layers.summed(times, rest.share))
        material = request.subject.make("cpu", request.settings.batch)
        found = {**_facts(originals, own, request), "flops": material.flops, "parameters": material.parameters}
        return {
            **found,
            **times_of(turns),
            "compile_seconds": sum(one.compile_seconds for one in own),
            "layers": layer_speedups(layers, turns, [one.limit_ms for one in (*originals, *own)]),
            "original_limit_ms": rest.limit_ms,
            "limit_ms": limit_ms(request, material, rest.call_bytes),
            "rest_ms": rest.share * turns.latencies[0].value,
        }

    def _rest(self, request: Request, layers: Layers, originals: Sequence[Prepared]) -> Rest:
        """Measure the original network outside of its replaced layers; its share is 0 if the layers alone take longer."""
        network = self._original(request, self._subject(request))
        turns = self._timed([network, *originals], _shared(request, len(originals)))
        shares = sorted(1 - layers.total(times[1:]) / times[0] for times in turns.rounds)
        return Rest(max(0.0, shares[len(shares) // 2]), network.limit_ms, network.call_bytes)

    def _timed(
        self,
        calls: Sequence[Prepared],
        request: Request,
        combined: Callable[[Sequence[float]], Sequence[float]] = tuple,
    ) -> Turns:
        """Time the calls in turns, and check their outputs once more."""
        stopwatch = stopwatch_of(request.device)
        self._begin("waiting")
        with alone(request.device):
            self._begin("measuring")
            turns = take_turns([evaluate_of(call, stopwatch) for call in calls], request.settings, combined)
            for call in calls:
                call.find_limit(request)
        for call in calls:
            call.deviation = call.deviation.worse(call.check_last())
        return turns

    def _subject(self, request: Request) -> BackboneSubject:
        assert isinstance(request.subject, BackboneSubject)
        return request.subject.model_copy(update={"operator": None})

    def _original(self, request: Request, subject: BackboneSubject) -> Prepared:
        """Return the original network, or a layer of it, prepared. Raises DeviceError if it fails: no operator is the cause."""
        try:
            found: Prepared = self._keep(_identity(request, subject), lambda: self._prepared(request, subject))
        except Exception as error:
            status, _ = status_of(error, "compiling")
            if status == "crashed" or (status == "out_of_memory" and request.memory_limit_mib is None):
                raise  # it may work in another process
            where = "the original network" if subject.layer is None else f"the original layer {subject.layer}"
            said = " ".join(str(error).split())[:REASON_CHARACTERS]
            raise DeviceError(
                f"{where} cannot be measured with the compiler {request.compiler} on {request.device}, so there is nothing to "
                f"compare operators with ({type(error).__name__}: {said}); take another compiler or device"
            ) from error
        return found

    def _keep(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _make_room(self) -> None:
        """Reset PyTorch's compiler if it holds much compiled code: it compiles one piece of code only a limited number of
        times.
        """
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, 4 * MOST_COMPILED)
            if self._compiled >= MOST_COMPILED:
                dynamo.reset()
                self._kept = {name: kept for name, kept in self._kept.items() if not isinstance(kept, Prepared)}
                self._compiled = 0

    def _prepared(self, request: Request, subject: Subject) -> Prepared:
        self._compiled += 1
        return prepared(request, subject, self._begin)


def _identity(request: Request, subject: BackboneSubject) -> str:
    """Return a text that is equal for requests whose original network is the same, as a cache key."""
    rest = request.model_dump_json(exclude={"subject", "measured", "time_limit_s", "memory_limit_mib"})
    return f"{subject.model_dump_json()} {rest}"


def _of_original(request: Request) -> Request:
    """Return the request with the compiler of the original network."""
    other = request.original_compiler
    return request if other is None else request.model_copy(update={"compiler": other.name, "options": other.options})


def _shared(request: Request, count: int) -> Request:
    """Return the request with the time of a measurement divided by `count`, the number of layers that share it."""
    settings = request.settings
    part = {name: getattr(settings, name) / count for name in ("least_ms", "warm_up_ms")}
    return request.model_copy(update={"settings": settings.model_copy(update=part)})


def _facts(originals: Sequence[Prepared], own: Sequence[Prepared], request: Request) -> Fields:
    """Return the record's fields on the compiled code and on the check of its outputs."""
    return {
        "code": CompiledCode.of_all([one.code for one in own]),
        "original_code": CompiledCode.of_all([one.code for one in originals]),
        **({"choice": own[0].choice, "original_choice": originals[0].choice} if len(own) == 1 else {}),
        "shortcoming": joined([one.shortcoming for one in own]),
        "flops": own[0].material.flops,
        "parameters": own[0].material.parameters,
        "checked": True,
        "reference": own[0].material.reference_name,
        "share_of_allowed": max(one.deviation.of_allowed for one in own),
    }
