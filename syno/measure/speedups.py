"""Speedups of a network by operators, each measured in turns with the original, and never twice.

with Speedups(network, "inductor", "cpu", LatencySettings(batch=64), store=Path("results/latencies")) as speedups:
    record = speedups.of(operator)
    print(record.speedup, record.speedup_low, record.speedup_high)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel

from syno.base import core_locks
from syno.base.devices import require_device
from syno.base.errors import SpecError
from syno.base.sources import sources_checksum
from syno.measure.compilers import CPP, as_reached, compiler_named
from syno.measure.devices import RemoteDevice, SshSettings
from syno.measure.machine import device_name, machine_id
from syno.measure.measuring_process import MeasuringProcess
from syno.measure.network_subject import AnyNetwork
from syno.measure.protocol import Request, Tell
from syno.measure.speedup_record import Conditions, Measured, OtherCompiler, SpeedupRecord
from syno.measure.ssh import RemoteProcess, about
from syno.measure.timing import LatencySettings
from syno.measure.tuning import own_options, tolerant
from syno.measure.tuning_record import Device
from syno.measure.tvm.targets import DeviceSettings
from syno.model.replacements import AnyOperator, code_in

# The store of speedups: a folder with one file for each measurement, which several studies and workers share.
#
# A file's name is a hash of everything that the measurement depends on, the machine included. So what was measured elsewhere,
# or with other versions, is never found, and a file that was renamed is not believed.
#
# That a process died is not kept: it depends on what else the machine did.


LOCKS = "locks"
BY_LIMIT = ("timeout", "out_of_memory")  # how a measurement ends that might succeed with more time or memory


class SpeedupStore:
    """The store of speedup records, one file per measurement in a folder.

    Args:
        folder: the folder, which is made when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, conditions: Conditions) -> Path:
        """Return the file of the measurement under these conditions."""
        return self.folder / f"{conditions.key}.json"

    def read(
        self, conditions: Conditions, time_limit_s: float | None = None, memory_limit_mib: float | None = None
    ) -> SpeedupRecord | None:
        """Return the record of the measurement under these conditions; None if there is no valid record.

        A record is invalid if it is damaged, if it has other conditions than its file's name says, or if it ended by a time or
        memory limit that was smaller than the present one.
        """
        try:
            record = SpeedupRecord.read(self.file(conditions))
        except SpecError:
            return None
        limits = ((record.time_limit_s, time_limit_s), (record.memory_limit_mib, memory_limit_mib))
        if record.conditions != conditions or (record.status in BY_LIMIT and any(_is_less(*each) for each in limits)):
            return None
        return record

    def write(self, record: SpeedupRecord) -> None:
        """Write a record, unless its process died; readers see the whole record or nothing.

        Raises SpecError if it cannot be written.
        """
        if is_kept(record):
            record.write(self.file(record.conditions))

    def records(self) -> Iterator[SpeedupRecord]:
        """Yield all valid records, of any conditions, in the order of their files' names."""
        for file in sorted(self.folder.glob("*.json")):
            with suppress(SpecError):
                record = SpeedupRecord.read(file)
                if self.file(record.conditions) == file:
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
    """Return whether a record is stored: not if other work on the machine may have killed the process or used its memory."""
    without_limit = record.status == "out_of_memory" and record.memory_limit_mib is None
    return record.status != "crashed" and not without_limit


def _is_less(before: float | None, now: float | None) -> bool:
    """Return whether an earlier limit was smaller than the present one; None is no limit."""
    return before is not None and (now is None or before < now)


STORE = Path("results/latencies")
SLOWER = 1.25  # an original this many times as slow as in earlier records was disturbed, or badly compiled in this process
LOWERING = ("syno.lower", "syno.model")  # the code that makes networks: with other code, they are measured again
Choice: TypeAlias = Literal["auto", "network", "layers"]


class Speedups:
    """Speedups of one network with operators in its layers, by one compiler on one device.

    Args:
        network: the network; an operator in it is ignored.
        compiler: a name in `COMPILERS`, or the user's own as `package.module:name`.
        device: "cpu", "cuda", "cuda:1", or the name of a remote device.
        settings: how to measure. A compiler that computes in lower precision has a least tolerance.
        measured: "network": the whole network is timed in turns with the original. "layers": each distinct size of the replaced
            layers is timed in turns with the original layer, and latencies are summed. "auto": as "network", since sums over
            layers have proved too inexact.
        store: a folder of records, which other studies may use at the same time; None: nothing is kept.
        time_limit_s: seconds for each operator.
        memory_limit_mib: the memory limit of the process that measures.
        folder: the folder for TVM's trials.
        remote: the settings of `device`, if it is not one of this machine.
        original_compiler: the compiler of the original network, such as `fastest`, so that a speedup is over the best that a
            user has; None: `compiler`. Not for layers.
        own: settings of compilers by the names of their groups, such as `tvm=TvmSettings()`.

    Raises:
        UnknownNameError: there is no such compiler.
        SpecError: a limit or a device is invalid, or the machine does not have the GPU.
        MissingPackageError: the compiler needs a package that is not installed.
    """

    def __init__(
        self,
        network: AnyNetwork,
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
        original_compiler: str | None = None,
        **own: BaseModel | None,
    ) -> None:
        self._compiler, self.remote = compiler_named(compiler), as_reached(compiler, remote)
        self._compiler.require()
        if not time_limit_s > 0:
            raise SpecError(f"time_limit_s is {time_limit_s}; it must be above 0 seconds")
        options = own_options(self._compiler, own)
        self._original: OtherCompiler | None = None
        if original_compiler not in (None, compiler):
            if measured == "layers" or isinstance(self.remote, DeviceSettings):
                raise SpecError(f"layers, and networks over TVM's RPC, are compared with the original by {compiler} only")
            other = compiler_named(original_compiler)
            other.require()
            its = own_options(other, own)
            self._original = OtherCompiler(name=other.name, options={} if its is None else its.model_dump(mode="json"))
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
        self._process = RemoteProcess(device, self.remote) if isinstance(self.remote, SshSettings) else MeasuringProcess()
        self._slow_ms = 0.0  # the original's latency on a machine that has become slower, as two processes found it
        self._deaths: dict[str, SpeedupRecord] = {}  # by the operator's id: these are not stored, but not tried again either

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the measuring process, if there is one. The next measurement starts a new process."""
        self._process.close()

    def of(self, operator: AnyOperator, progress: Tell = lambda _: None, repeat: int = 0) -> SpeedupRecord:
        """Return the speedup of the network with this operator: from the store, or measured and stored.

        If the operator cannot be compiled, has wrong outputs or exceeds a limit, the record has the reason. If the measuring
        process dies repeatedly with this operator, though it measures the original, the record with the reason is not stored.

        Args:
            operator: an operator that fits the layers, or a baseline that is a module.
            progress: gets the phase of the measurement, several times a second.
            repeat: the number of the measurement, from 0: repeated measurements of one network are stored separately.

        Raises:
            DeviceError: a remote device does not answer, or was lost, or the original itself cannot be measured, or processes
                die, whatever they measure. What was measured before is kept.
            SpecError: the store cannot be written.
        """
        if (record := self.known(operator, repeat)) is not None:
            return record
        conditions = self.conditions(operator, repeat)
        if self.store is None:
            return self._measured(operator, conditions, progress)
        with self.store.locked(conditions):
            if (record := self.known(operator, repeat)) is not None:  # another process has measured it meanwhile
                return record
            record = self._measured(operator, conditions, progress)
            self.store.write(record)
        if not is_kept(record):
            self._deaths[operator.id] = record
        return record

    def begin(self, operators: Iterable[AnyOperator]) -> None:
        """Start to measure operators that are not in the store, in their order, and return at once; `of` waits for the result.

        Does nothing without locks of cores, which keep other work of this process from disturbing a measurement, and for GPUs
        and other machines.
        """
        if isinstance(self._process, MeasuringProcess) and core_locks.are_used():
            for operator in operators:
                if self.known(operator) is None:
                    self._process.ask(self._request(operator))

    def known(self, operator: AnyOperator, repeat: int = 0) -> SpeedupRecord | None:
        """Return the record of this operator in the store; None if it is not there. Nothing is measured.

        If the process died with the operator, the record of that is known to this object only, and is not stored.
        """
        if self.store is None:
            return None
        record = self._deaths.get(operator.id) or self.store.read(
            self.conditions(operator, repeat), self.time_limit_s, self.memory_limit_mib
        )
        named = {"name": operator.name, "operator": str(operator)}  # it may have been measured under another name
        return None if record is None else record.model_copy(update=named)

    def records(self) -> Iterator[SpeedupRecord]:
        """Yield the records of all operators in the store that were measured under the same conditions."""
        for record in self.store.records() if self.store is not None else ():
            if record.conditions.model_copy(update={"operator_id": ""}) == self._same:
                yield record

    @property
    def _least_original_ms(self) -> float | None:
        """The least latency of the original in the store, under the same conditions; None if there is none."""
        return min((one.original_ms.value for one in self.records() if one.original_ms is not None), default=None)

    def conditions(self, operator: AnyOperator, repeat: int = 0) -> Conditions:
        """Return everything that the measurement of an operator depends on."""
        changes: dict[str, Any] = {"operator_id": operator.id, "repeat": repeat}
        if code_in(operator):
            subject = self.network.model_copy(update={"operator": str(operator)})
            changes["versions"] = self._same.versions | subject.version_of_code(self.compiler)
        return self._same.model_copy(update=changes)

    @cached_property
    def _same(self) -> Conditions:
        """The part of a measurement's conditions that does not depend on the operator."""
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
            original_compiler=self._original,
            versions={
                **({} if self._original is None else compiler_named(self._original.name).versions()),
                **self._compiler.versions(),
                **{name: text for name, text in place.versions.items() if name != CPP or name in self._compiler.recorded},
                "lowering": sources_checksum(*LOWERING),
                **self.network.version_of_code(self.compiler),
            },
        )

    def _request(self, operator: AnyOperator) -> Request:
        return Request(
            subject=self.network.model_copy(update={"operator": str(operator)}),
            compiler=self.compiler,
            device=self.device,
            settings=self.settings,
            memory_limit_mib=self.memory_limit_mib,
            time_limit_s=self.time_limit_s,
            options=self.options,
            folder=Path() if self.folder is None else self.folder.absolute(),
            measured=self.measured,
            original_compiler=self._original,
            remote=None if isinstance(self.remote, SshSettings) else self.remote,
        )

    def _measured(self, operator: AnyOperator, conditions: Conditions, progress: Tell) -> SpeedupRecord:
        request = self._request(operator)

        def measured() -> SpeedupRecord:
            with core_locks.given_up():
                found = self._process.findings(request, progress)
            return SpeedupRecord(
                name=operator.name,
                operator=str(operator),
                conditions=conditions,
                time_limit_s=self.time_limit_s,
                memory_limit_mib=self.memory_limit_mib,
                date=datetime.now(UTC),
                **found.model_dump(include={"status", "reason"}),
                **found.fields,
            )

        def is_fair() -> bool:  # a ratio to a slow original would flatter
            return record.original_ms is None or record.original_ms.value <= SLOWER * before

        record, before = measured(), max(self._least_original_ms or math.inf, self._slow_ms)
        if not is_fair():
            record = measured()
        if not is_fair():
            self._process.close()
            record = measured()
            if record.original_ms is not None and not is_fair():
                self._slow_ms = record.original_ms.value
        return record


@dataclass(frozen=True)
class Place:
    """The place of a measurement: kind and name of the device, an identifier of its machine, and versions of its packages."""

    kind: str
    name: str
    machine: str
    versions: dict[str, str]


def place_of_measurement(device: str, remote: RemoteDevice | None) -> Place:
    """Return the place of a measurement; a machine reached by ssh is queried. Raises DeviceError if it does not answer."""
    if remote is None:
        return Place(device.partition(":")[0], device_name(device), machine_id(), {})
    if isinstance(remote, SshSettings):
        found = about(device, remote)
        packages = {"python": found.python, "torch": found.torch, "apache-tvm": found.tvm, CPP: found.cpp}
        kind = remote.device.partition(":")[0]
        return Place(kind, found.device, f"ssh {remote.host} {remote.device}", {k: v for k, v in packages.items() if v})
    text = remote.model_dump_json(include={"target", "kind", "key", "tracker"})
    return Place(remote.kind, device, f"rpc {device} {text}", {})
