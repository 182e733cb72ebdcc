"""Measuring speedups in this process: the original is compiled once, and each operator's network is timed in turns with it.

`syno.measure.speedups.Speedups` runs it in a process of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO, TypeAlias

import torch
from pydantic_core import to_jsonable_python

from syno.base.core_locks import alone, computing
from syno.base.errors import DeviceError, MisfitError, SpecError
from syno.base.gpu_leases import leased
from syno.measure.compiled_subject import Prepared, job_of, prepared
from syno.measure.job import Phase
from syno.measure.latency import pinned
from syno.measure.measuring import REASON_CHARACTERS, SpeedupRequest, end_group, is_of_machine, status_of, take_gpu
from syno.measure.network_subject import BackboneSubject
from syno.measure.output_check import check_of
from syno.measure.speedup_record import LayerSpeedup
from syno.measure.ssh.protocol import SIGN_OF_LIFE_SECONDS, Code, Kind, line
from syno.measure.subjects import Subject
from syno.measure.timing import evaluate_of, stopwatch_of
from syno.measure.turns import Turns, take_turns
from syno.measure.tvm.targets import DeviceSettings

# The speedup of a network by its layers: each size is timed by itself, and times are summed as often as the sizes occur.


@dataclass(frozen=True)
class Layers:
    """The distinct sizes of a network's replaced layers.

    Attributes:
        names: of one layer of each size, in the network.
        titles: of the sizes, as in the paper: "conv_io64".
        counts: how many layers have each size.
    """

    names: tuple[str, ...]
    titles: tuple[str, ...]
    counts: tuple[int, ...]

    def total(self, times: Sequence[float]) -> float:
        """Return the time of all layers for the time of one of each size."""
        return sum(count * time for count, time in zip(self.counts, times, strict=True))

    def summed(self, times: Sequence[float], rest: float) -> tuple[float, float]:
        """Return the times of the original network and of the network with the operator.

        Args:
            times: of one original layer of each size, and then of the operator in each.
            rest: the share of the original network's time that is spent outside of these layers.
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


def layer_speedups(layers: Layers, turns: Turns) -> tuple[LayerSpeedup, ...]:
    """Return the times of each size from rounds with the times of all originals, and then of the operator in each."""
    found = []
    for place, (title, count) in enumerate(zip(layers.titles, layers.counts, strict=True)):
        pair = Turns.of([(times[place], times[place + len(layers.names)]) for times in turns.rounds])
        original, own = pair.latencies
        found.append(LayerSpeedup(name=title, count=count, original_ms=original, latency_ms=own, speedup=pair.speedups[0]))
    return tuple(found)


# The process that measures speedups, one after another: it reads requests, a line of JSON each, and answers in messages.
#
# The messages are those of `syno.measure.ssh.protocol`: the phases of a measurement, and then the fields of its record, or a
# fault of a device. The process ends with its input.


def main(working: Path | None = None) -> None:
    """Answer requests until the input ends.

    Args:
        working: the folder of the process that asks, for temporary files. None: that process is on another machine. Then this
            one has a folder of its own, and leases GPUs.
    """
    leasing = working is None
    working = working or Path(tempfile.mkdtemp(prefix="syno-speedups-"))
    tempfile.tempdir = os.environ["TMPDIR"] = str(working)  # for compilers, which leave files when they are killed
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what compilers print is no message
    turn = threading.Lock()

    def say(kind: Kind, content: object) -> None:
        try:
            with turn:
                out.write(line(kind, to_jsonable_python(content)))
        except BrokenPipeError:
            end_group(working)

    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, requests, working), daemon=True).start()
    say("hello", Code.of_this().model_dump())
    threading.Thread(target=_live, args=(say,), daemon=True).start()

    measuring = SpeedupMeasuring(begin=lambda phase: say("phase", phase))
    while True:
        request = SpeedupRequest.model_validate_json(requests.get())
        if request.folder == Path():
            request = request.model_copy(update={"folder": working})
        try:
            with leased(request.device if leasing else "cpu"):
                say("fields", measuring.fields(request))
        except DeviceError as error:
            say("fault", str(error))


def _read(lines: TextIO, requests: SimpleQueue[str], working: Path) -> None:
    """Put the lines into the queue. After the last one, nobody waits for an answer: end this process and its compilers."""
    for text in lines:
        requests.put(text)
    end_group(working)  # the process that asks may have been killed: it removes nothing then


def _live(say: Callable[[Kind, object], None]) -> None:
    """Say from time to time that this process lives."""
    while True:
        time.sleep(SIGN_OF_LIFE_SECONDS)
        say("alive", None)


# Fields of the record of a speedup, and the measurement of them over TVM's RPC.


Fields: TypeAlias = dict[str, Any]


def status_for(shortcomings: Sequence[str]) -> Fields:
    """Return status and reason of a measurement whose compiled code lacks something, or nothing if all are empty."""
    found = " ".join(sorted({one for one in shortcomings if one}))
    return {"status": "partial", "reason": found} if found else {"status": "ok"}


def times_of(turns: Turns) -> Fields:
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


def remote_fields(request: SpeedupRequest, device: DeviceSettings, begin: Callable[[Phase], None]) -> Fields:
    """Measure on a device that TVM's RPC reaches, where both networks are timed in turns in one session.

    Raises DeviceError if the device does not answer, and as TVM's compiler does.
    """
    from syno.measure.tvm.compiler import network_of, turns_on
    from syno.measure.tvm.integers import network_in_integers

    ways = {"tvm": network_of, "tvm-int8": network_in_integers}
    if request.compiler not in ways or request.measured != "network":
        raise SpecError(
            f"over TVM's RPC whole networks are measured, compiled by {' or '.join(ways)}, not by {request.compiler}"
        )
    assert isinstance(request.subject, BackboneSubject)
    lacking: list[str] = []
    begin("building")
    jobs, materials = [], []
    for subject in (request.subject.model_copy(update={"operator": None}), request.subject):
        material = subject.make("cpu", request.settings.batch)
        check = check_of(material, request.settings, "cpu")
        jobs.append(job_of(request.model_copy(update={"subject": subject}), material, check, begin, lacking.append))
        materials.append(material)
    deviations, turns = turns_on(jobs, device, ways[request.compiler])
    return {
        **status_for(lacking),
        **times_of(turns),
        "flops": materials[1].flops,
        "parameters": materials[1].parameters,
        "checked": True,
        "reference": materials[1].reference_name,
        "share_of_allowed": max(one.of_allowed for one in deviations),
    }


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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
