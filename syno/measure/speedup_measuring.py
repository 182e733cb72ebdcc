"""Measuring speedups in this process: the original is compiled once, and each operator's network is timed in turns with it.

`syno.measure.speedups.Speedups` runs it in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from syno.base.core_locks import alone, computing
from syno.base.errors import DeviceError, MisfitError
from syno.measure.compiled_subject import Prepared, prepared
from syno.measure.job import Phase
from syno.measure.latency import pinned
from syno.measure.measuring import REASON_CHARACTERS, SpeedupRequest, is_of_machine, status_of, take_gpu
from syno.measure.network_subject import BackboneSubject
from syno.measure.speedup_fields import Fields, remote_fields, status_for, times_of
from syno.measure.speedup_layers import Layers, layer_speedups, layers_of
from syno.measure.subjects import Subject
from syno.measure.timing import evaluate_of, stopwatch_of
from syno.measure.turns import Turns, take_turns

MOST_COMPILED = 12  # modules that PyTorch's compiler holds at once; then it forgets all of them


@dataclass
class SpeedupMeasuring:
    """Measures one request after another, and keeps what belongs to the original.

    Attributes:
        begin: gets the name of each phase.
    """

    begin: Callable[[Phase], None] = lambda _: None
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
            with torch.no_grad(), pinned(request.settings):
                if request.device.startswith("cuda") and request.remote is None:
                    take_gpu(request.device, request.memory_limit_mib)
                self._make_room()
                begin("waiting")
                with computing(request.device):  # compiling disturbs measurements of others
                    return self._by_layers(request, begin) if request.measured == "layers" else self._whole(request, begin)
        except MisfitError as error:
            return {"status": "misfit", "reason": str(error)}
        except DeviceError:
            raise
        except Exception as error:
            if is_of_machine(error):
                raise  # this process dies of it, too, and is tried again
            status, reason = status_of(error, phase)
            return {"status": status, "reason": reason}

    def _whole(self, request: SpeedupRequest, begin: Callable[[Phase], None]) -> Fields:
        if request.remote is not None:
            return remote_fields(request, request.remote, begin)
        original = self._original(request, self._subject(request), begin)
        own = self._prepared(request, request.subject, begin)
        turns = self._timed([original, own], request, begin)
        return {**_facts([own], request), **times_of(turns), "compile_seconds": own.compile_seconds}

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
            **times_of(turns),
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
        with alone(request.device):
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
        """Return the original network, or a layer of it. Raises DeviceError if it fails: no operator is the cause."""
        try:
            found: Prepared = self._keep(_identity(request, subject), lambda: self._prepared(request, subject, begin))
        except Exception as error:
            is_short = status_of(error, "compiling")[0] == "out_of_memory" and request.memory_limit_mib is None
            if is_short or is_of_machine(error):
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
        """Have PyTorch's compiler forget everything if it holds much: it compiles one piece of code only so many times."""
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, 4 * MOST_COMPILED)
            if self._compiled >= MOST_COMPILED:
                dynamo.reset()
                self._kept = {name: kept for name, kept in self._kept.items() if not isinstance(kept, Prepared)}
                self._compiled = 0

    def _prepared(self, request: SpeedupRequest, subject: Subject, begin: Callable[[Phase], None]) -> Prepared:
        self._compiled += 1
        return prepared(request, subject, begin)


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
        **status_for([one.shortcoming for one in own]),
        "flops": own[0].material.flops,
        "parameters": own[0].material.parameters,
        "checked": True,
        "reference": own[0].material.reference_name,
        "share_of_allowed": max(one.deviation.of_allowed for one in own),
    }
