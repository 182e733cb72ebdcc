"""Tuning: compiling and measuring an operator or a network, each in a process of its own.

>>> from syno.ir.library import OPERATORS
>>> conv2d = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 16, "C_out": 16, "H": 14})
>>> tune(conv2d, "eager", settings=LatencySettings(batch=8)).status
'ok'
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from syno.base.core_locks import Wait
from syno.base.devices import require_device
from syno.base.errors import DeviceError, SpecError
from syno.base.files import write_whole
from syno.measure.compilers import Compiler, as_reached, compiler_named, groups_of_settings
from syno.measure.devices import RemoteDevice, SshSettings
from syno.measure.isolation import MOST_DEATHS, PAUSE_SECONDS, Ending, deaths_in_words, run_limited
from syno.measure.measuring import FINDINGS, REQUEST, Findings, Request
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.ssh.client import measured_there
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Device, TuningRecord
from syno.measure.tvm.targets import TvmSettings

__all__ = [
    "LanguageModelSubject", "LatencySettings", "ModelSubject", "NetworkSubject", "OperatorSubject", "TuningRecord",
    "TvmSettings", "tune",
]  # fmt: skip

AnyRequest = TypeVar("AnyRequest", bound=Request)
KNOWN_EARLY = ("flops", "parameters", "tuning", "compile_seconds")  # before measuring


def tune(
    subject: AnySubject,
    compiler: str = "eager",
    device: str = "cpu",
    settings: LatencySettings | None = None,
    *,
    time_limit_s: float = 600,
    memory_limit_mib: float | None = None,
    folder: Path | None = None,
    remote: RemoteDevice | None = None,
    progress: Callable[[Findings], None] | None = None,
    **own: BaseModel | None,
) -> TuningRecord:
    """Compile `subject` and measure it, in a process of its own that sees none of this one's state or caches.

    A compiler that fails, a wrong output, and an exceeded limit are records with a reason. If the process dies, a new one tries
    again; if that dies again and again, that is a record, too.

    Args:
        subject: an operator at given sizes, a backbone with one, or a user's own model. Modules are imported from where this
            process imports them.
        compiler: a name in `COMPILERS`, or the user's own as `package.module:name`.
        device: "cpu", "cuda" or "cuda:1".
        settings: how to measure. A compiler that computes in coarser numbers has a least tolerance.
        time_limit_s: seconds for everything, from the start of the process.
        memory_limit_mib: of the process and its descendants, and of what it allocates on a GPU.
        folder: for TVM's trials, so that the next run need not measure them again; None: they are lost.
        remote: the settings of `device`, if it is not one of this machine. On a machine reached by ssh are the
            compiler, TVM's trials and the limits, too; if the connection is lost, it is measured again.
        progress: gets what is known so far, several times a second.
        own: settings of compilers by the names of their groups, such as `tvm=TvmSettings()`; those of others are not used.

    Raises:
        UnknownNameError: there is no such compiler, or no such target.
        SpecError: a limit, a device or a target is invalid, or the machine does not have the GPU.
        MissingPackageError: the compiler needs a package that is not installed.
        DeviceError: a remote device cannot be reached, or cannot do this; or the process cannot start.
    """
    chosen, remote = compiler_named(compiler), as_reached(compiler, remote)
    if not time_limit_s > 0:
        raise SpecError(f"time_limit_s is {time_limit_s}; it must be above 0 seconds")
    if memory_limit_mib is not None and not memory_limit_mib > 0:
        raise SpecError(f"memory_limit_mib is {memory_limit_mib}; it must be above 0, or None for no limit")
    settings, options = tolerant(settings or LatencySettings(), chosen), own_options(chosen, own)
    request = Request(
        subject=subject,
        compiler=compiler,
        device=device,
        settings=settings,
        memory_limit_mib=memory_limit_mib,
        time_limit_s=time_limit_s,
        options={} if options is None else options.model_dump(mode="json"),
        folder=Path() if folder is None else folder.absolute(),
    )
    if isinstance(remote, SshSettings):
        return measured_there(device, remote, as_ordered(request, remote), progress)
    chosen.require()  # before a process is started for it
    if remote is None:
        require_device(device)
        chosen.check_gpu(device)
    elif chosen.remote is None:
        raise SpecError(f'what the compiler "{compiler}" makes runs on this machine only, and "{device}" is another')
    if chosen.check is not None:
        chosen.check(device, settings.threads, options, remote)
    request = request.model_copy(update={"remote": remote})
    for deaths in range(1, MOST_DEATHS + 1):
        ending, findings = _run(request, progress)
        was_short = findings.status == "out_of_memory" and memory_limit_mib is None  # the machine had no more
        if not (was_short or _has_died(ending, findings)):
            break
        if deaths < MOST_DEATHS:
            time.sleep(PAUSE_SECONDS)
    else:
        if findings.phase == "starting":  # before the process knew what to measure
            last = ending.tail.strip().splitlines()[-1:]
            raise DeviceError(
                f"the process that measures cannot start ({ending.reason}{deaths_in_words(deaths)}; its last words: "
                f"{last[0][:300] if last else 'none'}): see whether memory and the disk of temporary files are free"
            )
    return _record(request, chosen, ending, findings, deaths)


def _run(request: Request, progress: Callable[[Findings], None] | None) -> tuple[Ending, Findings]:
    """Measure in a new process."""
    with tempfile.TemporaryDirectory(prefix="syno-tuning-", dir=place_of_caches(), ignore_cleanup_errors=True) as name:
        working = Path(name)
        if request.folder == Path():
            request = request.model_copy(update={"folder": working})
        write_whole(working / REQUEST, request.model_dump_json(), durable=False)
        ending = run_limited(
            [sys.executable, "-m", "syno.measure.measuring", name],
            working / "log",
            time_limit_s=request.time_limit_s,
            memory_limit_mib=request.memory_limit_mib,
            environment=environment(working, request.settings.threads),
            look=None if progress is None else _News(working / FINDINGS, progress).tell,
        )
        return ending, _findings(working / FINDINGS)


def _has_died(ending: Ending, findings: Findings) -> bool:
    """Return whether the process has ended by itself without an answer."""
    return ending.end == "crashed" or (ending.end == "done" and findings.status is None)


def as_ordered(request: AnyRequest, there: SshSettings) -> AnyRequest:
    """Return the request as another machine gets it: for its own device and target; the folder is a name for trials there."""
    trials = hashlib.blake2b(str(request.folder).encode(), digest_size=8).hexdigest() if request.folder != Path() else "."
    changes: dict[str, Any] = {"device": there.device, "folder": Path(trials)}
    if compiler_named(request.compiler).settings is TvmSettings:
        changes["options"] = {**request.options, "target": there.target}
    return request.model_copy(update=changes)


def own_options(compiler: Compiler, given: dict[str, BaseModel | None]) -> BaseModel | None:
    """Return the compiler's own settings among the given ones, or the default ones; None if it has none."""
    groups = {*groups_of_settings(), compiler.group} - {""}
    if unknown := sorted(given.keys() - groups):
        raise TypeError(f"tune() got {unknown[0]}=...; there are settings of compilers: {', '.join(sorted(groups))}")
    if compiler.settings is None:
        return None
    return given.get(compiler.group) or compiler.settings()


def tolerant(settings: LatencySettings, compiler: Compiler) -> LatencySettings:
    """Return the settings, with the least tolerance of a compiler that has one."""
    if compiler.tolerance is None or (settings.tolerance or 0.0) >= compiler.tolerance:
        return settings
    return settings.model_copy(update={"tolerance": compiler.tolerance})


def environment(folder: Path, threads: int) -> dict[str, str]:
    """Return the environment of the process: the import path of this one, and a folder for its caches and temporary files."""
    return {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TVM_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TMPDIR": str(folder),  # compilers that are killed leave files there
    }


def place_of_caches() -> str | None:
    """Return where folders of compiled code are made: TORCHINDUCTOR_CACHE_DIR; None if that is not set: where `tempfile` does.

    Compiled code is loaded from there, which fails if temporary files must not be executed; PyTorch then names the variable.
    """
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if not given:
        return None
    with suppress(OSError):  # `tempfile` says what is wrong
        Path(given).mkdir(parents=True, exist_ok=True)
    return given


class _News:
    """Tells again and again what the process has found so far; its file is read when it has changed."""

    def __init__(self, path: Path, progress: Callable[[Findings], None]) -> None:
        self._path, self._progress, self._seen = path, progress, 0
        self._findings = Findings()
        self._wait = Wait()

    def tell(self) -> None:
        """Tell what is known."""
        with suppress(OSError):  # nothing has been found yet
            written = self._path.stat().st_mtime_ns
            if written != self._seen:
                self._seen, self._findings = written, _findings(self._path)
        self._wait.look(self._findings.phase == "waiting")
        self._progress(self._findings)


def _findings(path: Path) -> Findings:
    try:
        return Findings.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return Findings()  # there is nothing yet; the process's ending says why


def _record(request: Request, compiler: Compiler, ending: Ending, findings: Findings, deaths: int) -> TuningRecord:
    fields: dict[str, Any] = dict(findings.fields)
    if ending.end == "done" and findings.status is not None:
        fields |= {"status": findings.status, "reason": findings.reason}
    else:
        fields = {name: fields[name] for name in KNOWN_EARLY if name in fields}
        last = ending.tail.strip().splitlines()[-1:]
        said = f"; its last words: {last[0][:300]}" if ending.end == "crashed" and last else ""
        often = deaths_in_words(deaths) if _has_died(ending, findings) else ""
        reason = f"{findings.phase}: {ending.reason or 'the process left no findings'}{said}{often}"
        fields |= {"status": "crashed" if ending.end == "done" else ending.end, "reason": reason}
    operator = request.subject.replacement
    return TuningRecord.model_validate(
        {
            "name": request.subject.title,
            "operator_id": operator.id if operator is not None else None,
            "subject": request.subject,
            "compiler": request.compiler,
            "device": Device(
                kind=request.device.partition(":")[0] if request.remote is None else request.remote.kind,
                name=findings.device_name,
                threads=request.settings.threads,
            ),
            "settings": request.settings,
            "versions": compiler.versions(),
            "date": datetime.now(UTC),
            **fields,
        }
    )
