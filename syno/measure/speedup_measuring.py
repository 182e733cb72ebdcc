"""Measuring speedups in this process: the original is compiled once, and each operator's network is timed in turns with it.

`syno.measure.speedups.Speedups` runs it in a process of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import torch

from syno.base.errors import DeviceError, MisfitError, SpecError
from syno.measure.compilers import compiler_named
from syno.measure.expected import Deviation
from syno.measure.job import Job, Phase
from syno.measure.latency import pinned, pool_of
from syno.measure.measuring import Request, status_of, take_gpu
from syno.measure.network_subject import BackboneSubject
from syno.measure.output_check import OutputCheck, check_of
from syno.measure.reference import Material
from syno.measure.speedup_layers import Layers, layer_speedups, layers_of
from syno.measure.speedup_record import Measured
from syno.measure.timing import evaluate_of, stopwatch_of
from syno.measure.turns import Turns, take_turns

MOST_COMPILED = 12  # modules that PyTorch's compiler holds at once; then it forgets all of them
Fields = dict[str, Any]  # of a record of a speedup
Alone = Callable[[], AbstractContextManager[object]]


class SpeedupRequest(Request):
    """A request to measure how much faster the network with an operator, which is the subject, is than the original."""

    measured: Measured = "network"


@dataclass
class Prepared:
    """A compiled module whose output is right, with inputs to time it on."""

    material: Material
    check: OutputCheck
    compiled: Callable[..., Any]
    compile_seconds: float
    deviation: Deviation
    inputs: Any  # endless
    last: tuple[Any, Any] = (None, None)  # the input and the output of the last call

    def __call__(self) -> None:
        """Call it on the next input."""
        given = next(self.inputs)
        self.last = given, self.compiled(*given)

    def check_last(self) -> Deviation:
        """Return the deviation of the output of the last call. Raises WrongOutputError if it is too large."""
        given, output = self.last
        return self.check.require(self.check.of_output(output, given), "the output of a timed call")


@dataclass
class SpeedupMeasuring:
    """Measures one request after another, and keeps what belongs to the original.

    Attributes:
        begin: gets the name of each phase.
        alone: the context in which is timed: nothing else should compute on the same cores or GPU.
    """

    begin: Callable[[Phase], None] = lambda _: None
    alone: Alone = nullcontext
    _kept: dict[str, Any] = field(default_factory=dict)  # prepared originals, and shares of the rest of networks
    _compiled: int = 0

    def fields(self, request: SpeedupRequest) -> Fields:
        """Return the fields of the record: results, status and reason. Raises DeviceError if a remote device fails."""
        phase: Phase = "building"

        def begin(name: Phase) -> None:
            nonlocal phase
            phase = name
            self.begin(name)

        try:
            begin("building")
            with torch.no_grad(), pinned(request.settings):
                if request.device.startswith("cuda") and request.remote is None:
                    take_gpu(request.device, request.memory_limit_mib)
                self._make_room()
                return self._by_layers(request, begin) if request.measured == "layers" else self._whole(request, begin)
        except MisfitError as error:
            return {"status": "misfit", "reason": str(error)}
        except DeviceError:
            raise
        except Exception as error:
            status, reason = status_of(error, phase)
            return {"status": status, "reason": reason}

    def _whole(self, request: SpeedupRequest, begin: Callable[[Phase], None]) -> Fields:
        original = self._original(request, self._subject(request), begin)
        own = self._prepared(request, request.subject, begin)
        turns = self._timed([original, own], request, begin)
        return {**_facts([own], request), **_times(turns), "compile_seconds": own.compile_seconds}

    def _by_layers(self, request: SpeedupRequest, begin: Callable[[Phase], None]) -> Fields:
        subject = self._subject(request)
        layers = self._keep(f"layers {subject.model_dump_json()}", lambda: layers_of(subject))
        names = layers.names
        originals = [self._original(request, subject.model_copy(update={"layer": name}), begin) for name in names]
        share = self._keep(f"rest {_identity(request, subject)}", lambda: self._rest(request, layers, originals, begin))
        own = [self._prepared(request, request.subject.model_copy(update={"layer": name}), begin) for name in names]
        turns = self._timed([*originals, *own], _shared(request, len(names)), begin, lambda times: layers.summed(times, share))
        material = request.subject.make("cpu", request.settings.batch)
        found = {**_facts(own, request), "flops": material.flops, "parameters": material.parameters}
        return {
            **found,
            **_times(turns),
            "compile_seconds": sum(one.compile_seconds for one in own),
            "layers": layer_speedups(layers, turns),
            "rest_ms": share * turns.latencies[0].value,
        }

    def _rest(
        self, request: SpeedupRequest, layers: Layers, originals: Sequence[Prepared], begin: Callable[[Phase], None]
    ) -> float:
        """Return the share of the original's time outside of its replaced layers; 0 if the layers by themselves take more."""
        network = self._original(request, self._subject(request), begin)
        turns = self._timed([network, *originals], _shared(request, len(originals)), begin)
        shares = sorted(1 - layers.total(times[1:]) / times[0] for times in turns.rounds)
        return max(0.0, shares[len(shares) // 2])

    def _timed(
        self,
        calls: Sequence[Prepared],
        request: SpeedupRequest,
        begin: Callable[[Phase], None],
        combined: Callable[[Sequence[float]], Sequence[float]] = tuple,
    ) -> Turns:
        """Time the calls in turns, and check their outputs once more."""
        stopwatch = stopwatch_of(request.device)
        begin("waiting")
        with self.alone():
            begin("measuring")
            turns = take_turns([evaluate_of(call, stopwatch) for call in calls], request.settings, combined)
        for call in calls:
            call.deviation = call.deviation.worse(call.check_last())
        return turns

    # ---- what is compiled --------------------------------------------------------------------------------------------

    def _subject(self, request: SpeedupRequest) -> BackboneSubject:
        assert isinstance(request.subject, BackboneSubject)
        return request.subject.model_copy(update={"operator": None})

    def _original(self, request: SpeedupRequest, subject: BackboneSubject, begin: Callable[[Phase], None]) -> Prepared:
        return self._keep(_identity(request, subject), lambda: self._prepared(request, subject, begin))  # type: ignore[no-any-return]

    def _keep(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _make_room(self) -> None:
        """Have PyTorch's compiler forget everything if it holds much: it compiles one piece of code only so many times."""
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, 4 * MOST_COMPILED)
            if self._compiled >= MOST_COMPILED:
                dynamo.reset()
                self._kept = {name: kept for name, kept in self._kept.items() if not isinstance(kept, Prepared)}
                self._compiled = 0

    def _prepared(self, request: SpeedupRequest, subject: Any, begin: Callable[[Phase], None]) -> Prepared:
        """Compile a module, and check its output."""
        begin("building")
        compiler = compiler_named(request.compiler)
        compiler.check_kind(request.device)
        material = subject.make(request.device, request.settings.batch)
        check = check_of(material, request.settings, request.device)
        job = job_of(request.model_copy(update={"subject": subject}), material, check, begin)
        begin("compiling")
        start = time.perf_counter()
        compiled = compiler(job)
        if not callable(compiled):
            raise SpecError(f"the compiler {compiler.name} returned {type(compiled).__name__}, not a function of tensors")
        compiled(*job.example)
        if request.device.startswith("cuda"):
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        self._compiled += 1
        deviation = check.require(check.of(compiled))
        inputs = cycle(pool_of(material.make_inputs)[0])
        return Prepared(material, check, compiled, seconds, deviation, inputs)


def job_of(request: Request, material: Material, check: OutputCheck, begin: Callable[[Phase], None]) -> Job:
    """Return the job of a compiler for a request's subject."""
    settings = compiler_named(request.compiler).settings
    return Job(
        module=material.module,
        example=material.make_inputs(),
        make_inputs=material.make_inputs,
        device=request.device,
        settings=request.settings,
        check=check,
        name=request.name,
        folder=request.folder,
        options=None if settings is None else settings.model_validate(request.options),
        began=time.monotonic(),
        time_limit_s=request.time_limit_s,
        begin=begin,
        found=lambda **_: None,
        count=lambda _: None,
        lacks=lambda _: None,
    )


def _identity(request: SpeedupRequest, subject: BackboneSubject) -> str:
    """Return a text that is equal for requests of the same original."""
    rest = request.model_dump_json(exclude={"subject", "measured", "time_limit_s", "memory_limit_mib"})
    return f"{subject.model_dump_json()} {rest}"


def _shared(request: SpeedupRequest, count: int) -> SpeedupRequest:
    """Return the request with the time for one network shared by so many layers."""
    settings = request.settings
    part = {name: getattr(settings, name) / count for name in ("least_ms", "warm_up_ms")}
    return request.model_copy(update={"settings": settings.model_copy(update=part)})


def _facts(own: Sequence[Prepared], request: SpeedupRequest) -> Fields:
    """Return the fields about what was compiled and checked."""
    return {
        "status": "ok",
        "flops": own[0].material.flops,
        "parameters": own[0].material.parameters,
        "checked": True,
        "reference": own[0].material.reference_name,
        "share_of_allowed": max(one.deviation.of_allowed for one in own),
    }


def _times(turns: Turns) -> Fields:
    """Return the fields about times in turns."""
    found: Fields = {
        "original_ms": turns.latencies[0],
        "latency_ms": turns.latencies[1],
        "ratio": turns.speedups[0],
        "drift": turns.drift,
        "attempts": turns.attempts,
        "unsteady": turns.unsteady,
    }
    return found
