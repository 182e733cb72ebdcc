"""Speedups of a network by operators, each measured in turns with the original, and never twice.

with Speedups(network, "inductor", "cpu", LatencySettings(batch=64), store=Path("results/latencies")) as speedups:
    record = speedups.of(operator)
    print(record.speedup, record.speedup_low, record.speedup_high)
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel

from syno.base.core_locks import Wait, given_up
from syno.base.devices import require_device
from syno.base.errors import DeviceError, SpecError
from syno.base.gpu_leases import leased
from syno.base.sources import sources_checksum
from syno.measure.compilers import CPP, as_reached, compiler_named
from syno.measure.devices import RemoteDevice, SshSettings
from syno.measure.isolation import (
    LOOK_SECONDS,
    MOST_DEATHS,
    PAUSE_SECONDS,
    TAIL_CHARACTERS,
    crash_in_words,
    deaths_in_words,
    kill,
    used_mib,
)
from syno.measure.job import Phase
from syno.measure.machine import device_name, machine_id
from syno.measure.measuring import Findings, SpeedupRequest
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.speedup_record import Conditions, Measured, SpeedupRecord
from syno.measure.ssh.client import about
from syno.measure.ssh.connection import ConnectionLostError, Session
from syno.measure.ssh.protocol import Code, difference, parsed, send
from syno.measure.timing import LatencySettings
from syno.measure.tuning import as_ordered, environment, own_options, place_of_caches, tolerant
from syno.measure.tuning_record import Device
from syno.measure.tvm.targets import DeviceSettings
from syno.model.baselines import Replacement

# The client of the process that measures speedups: it starts it, sends requests, watches its limits, and restarts it.
#
# Starting the process and importing PyTorch are paid once for many operators. A process that dies is the fault of the machine
# first, such as of memory that was short for a moment: the request is sent to a new one. Only if that dies again and again,
# while the original network is measured, the operator is the cause.


COMMAND = (sys.executable, "-m", "syno.measure.speedup_measuring")
SPEEDUPS = "speedups"  # the argument of the command on a machine that is reached by ssh
START_SECONDS = 300.0  # of a new process, which do not count as time of the first operator


class FaultError(DeviceError):
    """A failure of the device, or of the original network, which the process reports: no operator is the cause."""


class ProcessDiedError(DeviceError):
    """The end of the process before it answered.

    Args:
        phase: in which it was.
        reason: how it ended, in words.
    """

    def __init__(self, phase: Phase, reason: str) -> None:
        super().__init__(f"{phase}: {reason}")
        self.phase, self.reason = phase, reason


class LocalProcess:
    """The process on this machine, in a session of its own, with empty caches of compilers."""

    def __init__(self, threads: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="syno-speedups-", dir=place_of_caches(), ignore_cleanup_errors=True)
        working = Path(self._folder.name)
        self._log, self._family = working / "log", set[Any]()
        with self._log.open("wb") as errors:
            self.process = subprocess.Popen(
                (*COMMAND, self._folder.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, **environment(working, threads)},
                start_new_session=True,  # an interrupt from the keyboard is for this process, which then ends that one
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, and everything that it started."""
        kill(self.process, self._family)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._folder.cleanup()

    def send(self, text: str) -> None:
        """Send a line. One that does not arrive is noticed by reading."""
        assert self.process.stdin is not None
        send(self.process.stdin, text)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the messages, and ("", None) several times a second while there is none, until the process has ended."""
        assert self.process.stdout is not None
        output, rest = self.process.stdout.fileno(), b""
        while True:
            if not select.select([output], [], [], LOOK_SECONDS)[0]:
                yield "", None
                continue
            read = os.read(output, 2**16)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            for text in lines:
                if (message := parsed(text.decode(errors="replace"))) is not None:
                    yield message

    @property
    def used_mib(self) -> float:
        """MiB that the process and its descendants hold."""
        return used_mib(self.process, self._family)

    @property
    def death(self) -> str:
        """The reason why the process has ended, with its last words."""
        code = self.process.wait()
        words = self._log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:].strip().splitlines()[-1:]
        said = f"; its last words: {words[0][:300]}" if words else ""
        return f"{crash_in_words(code) if code else 'the process ended'}{said}"


class MeasuringProcess:
    """Sends requests to a process that is started for the first of them.

    Args:
        threads: CPU threads.
        name, there: the name and the settings of a machine that is reached by ssh; None for this machine.

    Attributes:
        progress: gets the phase of a measurement, several times a second.
    """

    def __init__(self, threads: int, name: str = "", there: SshSettings | None = None) -> None:
        self._threads, self._name, self._there = threads, name, there
        self._connection: LocalProcess | Session | None = None
        self._is_used = False
        self.progress: Callable[[Findings], None] = lambda _: None

    def close(self) -> None:
        """End the process. The next request starts another one."""
        if self._connection is not None:
            self._connection.__exit__(None, None, None)
        self._connection, self._is_used = None, False

    def fields(self, request: SpeedupRequest) -> dict[str, Any]:
        """Return the fields of the record of a request.

        A process that dies, or whose memory does not suffice without a limit, is tried again as a new one, and so is one that
        passes its limit of memory after it has measured others: what these left behind may be the reason.

        Raises DeviceError if a remote device does not answer, or was lost, or processes die for which the operator is not the
        cause.
        """
        if self._there is not None:
            request = as_ordered(request, self._there)
        lost_since, deaths = None, list[ProcessDiedError]()
        while True:
            was_used = self._is_used
            try:
                found = self._answer(request)
            except ConnectionLostError:
                now = time.monotonic()
                lost_since = lost_since or now
                self.close()
                if not was_used or self._there is None or now - lost_since > self._there.wait_seconds:
                    raise
                time.sleep(PAUSE_SECONDS)
                self._is_used = True  # it has answered before: it is worth waiting for
                continue
            except ProcessDiedError as death:
                self.close()
                deaths.append(death)
                if len(deaths) >= MOST_DEATHS:
                    return self._after_deaths(request, deaths)
                time.sleep(PAUSE_SECONDS)
                continue
            except BaseException:  # what it would answer is of no use
                self.close()
                raise
            if not (was_used and found["status"] == "out_of_memory"):
                return found

    def _after_deaths(self, request: SpeedupRequest, deaths: list[ProcessDiedError]) -> dict[str, Any]:
        """Return the fields for an operator with which the process died again and again, while the original is measured.

        Raises DeviceError if the original is not measured either, or the processes died before they saw the operator.
        """
        said = f"{deaths[-1]}{deaths_in_words(len(deaths))}"
        if all(one.phase == "starting" for one in deaths):
            raise DeviceError(
                f"the process that measures cannot start ({said}): see whether memory and the disk of temporary files are free"
            )
        short = request.settings.model_copy(update={"warm_up_ms": 0.0, "least_ms": 0.0})
        original = request.subject.model_copy(update={"operator": None})
        try:
            found = self._answer(request.model_copy(update={"subject": original, "settings": short}))
            failed = "" if found["status"] in ("ok", "partial") else f"{found['status']}: {found['reason']}"
        except ProcessDiedError as death:
            failed = str(death)
        finally:
            self.close()
        if failed:
            raise DeviceError(
                f"the process that measures died ({said}), and with the original network alone it does not work either "
                f"({failed}): the machine is to blame, perhaps for want of memory"
            )
        return {"status": "crashed", "reason": f"{said}, while the original network was measured"}

    def _answer(self, request: SpeedupRequest) -> dict[str, Any]:
        """Send the request, and return what is answered; end a process that passes a limit.

        Raises ProcessDiedError if the process ends, or cannot do its work for want of memory.
        """
        if self._connection is None:
            there = self._there
            self._connection = LocalProcess(self._threads) if there is None else Session(self._name, there, SPEEDUPS)
        connection, left, before = self._connection, START_SECONDS, time.monotonic()
        phase: Phase = "starting"
        wait = Wait()
        connection.send(request.model_dump_json())
        try:
            for kind, content in connection.messages():
                now = time.monotonic()
                left, before = left - (0.0 if phase == "waiting" else now - before), now
                if kind == "phase":
                    left, phase = request.time_limit_s if phase == "starting" else left, content
                elif kind == "fields":
                    if content["status"] == "out_of_memory" and request.memory_limit_mib is None:
                        raise ProcessDiedError(phase, content["reason"])  # the machine had no more
                    self._is_used = True
                    return dict(content)
                elif kind == "fault":
                    raise FaultError(content)
                elif kind == "hello" and (different := difference(here=Code.of_this(), there=Code.model_validate(content))):
                    raise DeviceError(f'device "{self._name}": {different}')
                wait.look(phase == "waiting" and self._there is None)
                self.progress(Findings(phase=phase))
                if left < 0 and phase == "starting":
                    raise ProcessDiedError(phase, f"it did not start within {START_SECONDS:g} s")
                if (ending := self._passed_limit(request, left)) is not None:
                    self.close()
                    return {"status": ending[0], "reason": f"{phase}: {ending[1]}"}
            death = connection.death if isinstance(connection, LocalProcess) else "the process ended"
        except (ConnectionLostError, FaultError, ProcessDiedError):
            raise
        except DeviceError as error:
            if isinstance(connection, LocalProcess) or not connection.heard or phase == "starting":
                raise
            death = str(error)
        raise ProcessDiedError(phase, death)

    def _passed_limit(self, request: SpeedupRequest, left: float) -> tuple[str, str] | None:
        """Return the status and the reason if the process has passed a limit. The memory of another machine is not known."""
        if left < 0:
            return "timeout", f"it was stopped at its time limit of {request.time_limit_s:g} s"
        limit = request.memory_limit_mib
        if limit is not None and isinstance(self._connection, LocalProcess) and (used := self._connection.used_mib) > limit:
            return "out_of_memory", f"it held {used:.0f} MiB, more than its limit of {limit:g} MiB"
        return None


# The store of speedups: a folder with one file for each measurement, which several studies and workers share.
#
# A file's name is a hash of everything that the measurement depends on, the machine included. So what was measured elsewhere,
# or with other versions, is never found, and a file that was renamed is not believed.
#
# That a process died is not kept: it depends on what else the machine did.


LOCKS = "locks"
BY_LIMIT = ("timeout", "out_of_memory")  # how a measurement ends that might succeed with more time or memory


class SpeedupStore:
    """The records in a folder.

    Args:
        folder: is made when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, conditions: Conditions) -> Path:
        """Return the file of the measurement under these conditions."""
        return self.folder / f"{conditions.key}.json"

    def read(
        self, conditions: Conditions, time_limit_s: float | None = None, memory_limit_mib: float | None = None
    ) -> SpeedupRecord | None:
        """Return the record of the measurement under these conditions; None if there is none that is valid.

        A damaged record is not valid, nor is one of other conditions, whatever its name, nor one that ended by a limit which
        was smaller than the given one, nor one of a process that died, which earlier versions kept.
        """
        try:
            record = SpeedupRecord.read(self.file(conditions))
        except SpecError:
            return None
        limits = ((record.time_limit_s, time_limit_s), (record.memory_limit_mib, memory_limit_mib))
        if (
            record.conditions != conditions
            or not is_kept(record)
            or (record.status in BY_LIMIT and any(_is_less(*each) for each in limits))
        ):
            return None
        return record

    def write(self, record: SpeedupRecord) -> None:
        """Write a record, unless it is one of a process that died; readers see all of it or nothing.

        Raises SpecError if it cannot be written.
        """
        if is_kept(record):
            record.write(self.file(record.conditions))

    def records(self) -> Iterator[SpeedupRecord]:
        """Yield all valid records, of any conditions, in the order of their files' names."""
        for file in sorted(self.folder.glob("*.json")):
            with suppress(SpecError):
                record = SpeedupRecord.read(file)
                if self.file(record.conditions) == file and is_kept(record):
                    yield record

    @contextmanager
    def locked(self, conditions: Conditions) -> Iterator[None]:
        """Hold the lock of a measurement in the block; wait while another process has it.

        The system releases the lock of a process that ends, however it ends. Raises SpecError if the folder cannot be used.
        """
        from filelock import FileLock  # a machine on which only networks are timed lacks it

        file = self.folder / LOCKS / conditions.key
        lock = FileLock(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise SpecError(
                f"the store of latencies {self.folder} cannot be used: {error.strerror or error}; give another folder"
            ) from error
        try:
            yield
        finally:
            file.unlink(missing_ok=True)  # those who wait notice that it is another file
            lock.release()


def is_kept(record: SpeedupRecord) -> bool:
    """Return whether a record says something about the operator, rather than about what else the machine did."""
    without_limit = record.status == "out_of_memory" and record.memory_limit_mib is None
    return record.status != "crashed" and not without_limit


def _is_less(before: float | None, now: float | None) -> bool:
    """Return whether a limit was smaller than it is now; None is no limit."""
    return before is not None and (now is None or before < now)


STORE = Path("results/latencies")
LOWERING = ("syno.lower", "syno.model")  # the code that makes networks: with other code, they are measured again
Choice: TypeAlias = Literal["auto", "network", "layers"]


class Speedups:
    """Speedups of one network with operators in its layers, by one compiler on one device.

    Args:
        network: the network; an operator in it is ignored.
        compiler: a name in `COMPILERS`, or the user's own as `package.module:name`.
        device: "cpu", "cuda", "cuda:1", or the name of a remote device.
        settings: how to measure. A compiler that computes in coarser numbers has a least tolerance.
        measured: "network": the whole network is timed in turns with the original. "layers": each distinct size of the replaced
            layers is, and times are summed. "auto": the network, to which the sums of layers came not near enough.
        store: a folder, which other studies may use at the same time; None: nothing is kept.
        time_limit_s: seconds for each operator.
        memory_limit_mib: of the process that measures.
        folder: for TVM's trials.
        remote: the settings of `device`, if it is not one of this machine.
        own: settings of compilers by the names of their groups, such as `tvm=TvmSettings()`.

    Raises:
        UnknownNameError: there is no such compiler.
        SpecError: a limit or a device is invalid, or the machine does not have the GPU.
        MissingPackageError: the compiler needs a package that is not installed.
    """

    def __init__(
        self,
        network: NetworkSubject | LanguageModelSubject,
        compiler: str = "inductor",
        device: str = "cpu",
        settings: LatencySettings | None = None,
        *,
        measured: Choice = "auto",
        store: SpeedupStore | Path | None = STORE,
        time_limit_s: float = 600,
        memory_limit_mib: float | None = None,
        folder: Path | None = None,
        remote: RemoteDevice | None = None,
        **own: BaseModel | None,
    ) -> None:
        self._compiler, self.remote = compiler_named(compiler), as_reached(compiler, remote)
        self._compiler.require()
        if not time_limit_s > 0:
            raise SpecError(f"time_limit_s is {time_limit_s}; it must be above 0 seconds")
        options = own_options(self._compiler, own)
        if self.remote is None:
            require_device(device)
            self._compiler.check_gpu(device)
        elif isinstance(self.remote, DeviceSettings) and (self._compiler.remote is None or measured == "layers"):
            raise SpecError(
                f'over TVM\'s RPC whole networks are measured, with the compiler tvm, and not {measured} with "{compiler}" on '
                f'"{device}"; take the compiler tvm and measure the network, or kind: ssh with the host'
            )
        self.network = network.model_copy(update={"operator": None, "layer": None})
        self.compiler, self.device, self.settings = compiler, device, tolerant(settings or LatencySettings(), self._compiler)
        self.measured: Measured = "network" if measured == "auto" else measured
        self.store = SpeedupStore(store) if isinstance(store, Path) else store
        self.time_limit_s, self.memory_limit_mib, self.folder = time_limit_s, memory_limit_mib, folder
        if self._compiler.check is not None and not isinstance(self.remote, SshSettings):
            self._compiler.check(device, self.settings.threads, options, self.remote)
        self.options: dict[str, Any] = {} if options is None else options.model_dump(mode="json")
        there = self.remote if isinstance(self.remote, SshSettings) else None
        self._process, self._gpu = MeasuringProcess(self.settings.threads, device, there), ""
        self._deaths: dict[str, SpeedupRecord] = {}  # by the operator's id: these are not stored, but not tried again either

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process that measures, if one was started. The next measurement starts another one."""
        self._process.close()

    def of(self, operator: Replacement, progress: Callable[[Findings], None] | None = None) -> SpeedupRecord:
        """Return the speedup of the network with this operator: from the store, or measured and stored.

        An operator that cannot be compiled, computes something else or exceeds a limit has a record with the reason. One with
        which the process dies again and again, while the original is measured, has one, too, which is not stored.

        Args:
            operator: an operator that fits the layers, or a baseline that is a module.
            progress: gets the phase of the measurement, several times a second.

        Raises:
            DeviceError: a remote device does not answer, or was lost, or the original itself cannot be measured, or processes
                die, whatever they measure. What was measured before is kept.
            SpecError: the store cannot be written.
        """
        if (record := self.known(operator)) is not None:
            return record
        conditions, self._process.progress = self.conditions(operator), progress or (lambda _: None)
        if self.store is None:
            return self._record(operator, conditions, self._measure(operator))
        with self.store.locked(conditions):
            if (record := self.known(operator)) is not None:  # another process has measured it meanwhile
                return record
            record = self._record(operator, conditions, self._measure(operator))
            self.store.write(record)
        if not is_kept(record):
            self._deaths[operator.id] = record
        return record

    def known(self, operator: Replacement) -> SpeedupRecord | None:
        """Return the record of this operator in the store; None if it is not there. Nothing is measured.

        That the process died with the operator is known until these speedups are no longer used.
        """
        if self.store is None:
            return None
        record = self._deaths.get(operator.id) or self.store.read(
            self.conditions(operator), self.time_limit_s, self.memory_limit_mib
        )
        named = {"name": operator.name, "operator": str(operator)}  # it may have been measured under another name
        return None if record is None else record.model_copy(update=named)

    def records(self) -> Iterator[SpeedupRecord]:
        """Yield the records of all operators in the store that were measured under the same conditions."""
        for record in self.store.records() if self.store is not None else ():
            if record.conditions.model_copy(update={"operator_id": ""}) == self._same:
                yield record

    def conditions(self, operator: Replacement) -> Conditions:
        """Return everything that the measurement of an operator depends on."""
        return self._same.model_copy(update={"operator_id": operator.id})

    @cached_property
    def _same(self) -> Conditions:
        """The conditions that are equal for all operators."""
        place = place_of_measurement(self.device, self.remote)
        return Conditions(
            operator_id="",
            network=self.network,
            measured=self.measured,
            compiler=self.compiler,
            options=self.options,
            device=Device(kind=place.kind, name=place.name, threads=self.settings.threads),
            machine=place.machine,
            settings=self.settings,
            versions={
                **self._compiler.versions(),
                **{name: text for name, text in place.versions.items() if name != CPP or name in self._compiler.recorded},
                "lowering": sources_checksum(*LOWERING),
            },
        )

    def _measure(self, operator: Replacement) -> dict[str, Any]:
        request = SpeedupRequest(
            subject=self.network.model_copy(update={"operator": str(operator)}),
            compiler=self.compiler,
            device=self.device,
            settings=self.settings,
            memory_limit_mib=self.memory_limit_mib,
            time_limit_s=self.time_limit_s,
            options=self.options,
            folder=Path() if self.folder is None else self.folder.absolute(),
            measured=self.measured,
            remote=None if isinstance(self.remote, SshSettings) else self.remote,
        )
        with given_up(), leased(self.device if self.remote is None else "cpu") as gpu:
            if gpu is not None and gpu.name != self._gpu:  # a process stays with the GPU that it has begun with
                self._process.close()
                self._gpu = gpu.name
            return self._process.fields(request)

    def _record(self, operator: Replacement, conditions: Conditions, fields: dict[str, Any]) -> SpeedupRecord:
        return SpeedupRecord(
            name=operator.name,
            operator=str(operator),
            conditions=conditions,
            time_limit_s=self.time_limit_s,
            memory_limit_mib=self.memory_limit_mib,
            date=datetime.now(UTC),
            **fields,
        )


@dataclass(frozen=True)
class Place:
    """Where is measured: the kind and the name of the device, an identifier of the machine, and versions there."""

    kind: str
    name: str
    machine: str
    versions: dict[str, str]


def place_of_measurement(device: str, remote: RemoteDevice | None) -> Place:
    """Return where is measured. A machine that is reached by ssh is asked; raises DeviceError if it does not answer."""
    if remote is None:
        return Place(device.partition(":")[0], device_name(device), machine_id(), {})
    if isinstance(remote, SshSettings):
        found = about(device, remote)
        packages = {"python": found.python, "torch": found.torch, "apache-tvm": found.tvm, CPP: found.cpp}
        kind = remote.device.partition(":")[0]
        return Place(kind, found.device, f"ssh {remote.host} {remote.device}", {k: v for k, v in packages.items() if v})
    text = remote.model_dump_json(include={"target", "kind", "key", "tracker"})
    return Place(remote.kind, device, f"rpc {device} {text}", {})
