"""Tuning: compiling and measuring an operator or a model, each in a process of its own.

>>> from syno.ir.library import OPERATORS
>>> conv2d = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 16, "C_out": 16, "H": 14})
>>> tune(conv2d, "eager", settings=LatencySettings(batch=8)).status
'ok'
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.base.record import versions
from syno.lower.tvm.installed import VERSIONS
from syno.measure.compilers import LEAST_TOLERANCES, TVM, require
from syno.measure.isolation import Ending, run_limited
from syno.measure.measuring import FINDINGS, REQUEST, Findings, Request
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Device, TuningRecord
from syno.measure.tvm.devices import DeviceSettings, is_here
from syno.measure.tvm.settings import TvmSettings

__all__ = [
    "LanguageModelSubject", "LatencySettings", "ModelSubject", "NetworkSubject", "OperatorSubject", "TuningRecord",
    "TvmSettings", "tune",
]  # fmt: skip

KNOWN_EARLY = ("flops", "parameters", "tuning", "compile_seconds")  # before measuring
PACKAGES = ("torch", "torchao", "triton", "numpy")


def tune(
    subject: AnySubject,
    compiler: str = "eager",
    device: str = "cpu",
    settings: LatencySettings | None = None,
    *,
    time_limit_s: float = 600,
    memory_limit_mib: float | None = None,
    tvm: TvmSettings | None = None,
    folder: Path | None = None,
    remote: DeviceSettings | None = None,
    progress: Callable[[Findings], None] | None = None,
) -> TuningRecord:
    """Compile `subject` and measure it, in a process of its own that sees none of this one's state or caches.

    A compiler that fails or crashes, a wrong output, and a limit that is exceeded are records with a reason.

    Args:
        subject: an operator at given sizes, a backbone with one, or a user's own model. Modules are imported from where this
            process imports them.
        compiler: a name in `COMPILERS`.
        device: "cpu", "cuda" or "cuda:1".
        settings: how to measure. A compiler that rounds coarsely has a least tolerance.
        time_limit_s: seconds for everything, from the start of the process.
        memory_limit_mib: of the process and all that it starts, and of what it allocates on a GPU.
        tvm: how to tune, for the compiler "tvm".
        folder: where its trials are kept, so that the next run need not make them again; None: they are lost.
        remote: what `device` is, if it is none of this machine; the compiler is "tvm" then.
        progress: gets what is known so far, several times a second.

    Raises:
        UnknownNameError: no such compiler, or no such target.
        SpecError: a limit, a device or a target that means nothing, or a GPU that this machine does not have.
        MissingPackageError: the compiler needs a package that is not installed.
    """
    require(compiler)  # before a process is started for it
    if remote is None:
        require_device(device)
    _check(time_limit_s, memory_limit_mib)
    settings, tvm = _tolerant(settings or LatencySettings(), compiler), tvm or TvmSettings()
    if remote is not None:
        from syno.measure.tvm.on_device import target_on

        target_on(remote)
    elif compiler == TVM:
        from syno.measure.tvm.compiler import target_for  # here, because it needs TVM

        target_for(tvm, device, settings.threads)
    with tempfile.TemporaryDirectory(prefix="syno-tuning-", ignore_cleanup_errors=True) as name:
        working = Path(name)
        request = Request(
            subject=subject,
            compiler=compiler,
            device=device,
            settings=settings,
            memory_limit_mib=memory_limit_mib,
            time_limit_s=time_limit_s,
            tvm=tvm,
            folder=(working if folder is None else folder).absolute(),
            remote=remote,
        )
        write_whole(working / REQUEST, request.model_dump_json(), durable=False)
        ending = run_limited(
            [sys.executable, "-m", "syno.measure.measuring", name],
            working / "log",
            time_limit_s=time_limit_s,
            memory_limit_mib=memory_limit_mib,
            environment=_environment(working, settings.threads),
            look=None if progress is None else _News(working / FINDINGS, progress).tell,
        )
        findings = _findings(working / FINDINGS)
    return _record(request, ending, findings)


def require_device(device: str) -> None:
    """SpecError for a name that stands for no device of this machine, or for a GPU that it does not have."""
    if not is_here(device):
        raise SpecError(f'the device is "{device}"; it must be "cpu", "cuda", or one of several GPUs such as "cuda:1"')
    kind, _, number = device.partition(":")
    if kind == "cuda":
        import torch  # here, so that other devices need not wait for it

        count = torch.cuda.device_count()
        if int(number or 0) >= count:
            there = f"PyTorch finds {count} GPUs here, cuda:0 to cuda:{count - 1}" if count else "PyTorch finds no GPU here"
            raise SpecError(f'the device is "{device}", but {there}; take the device cpu, or measure on a machine that has one')


def _check(time_limit_s: float, memory_limit_mib: float | None) -> None:
    if not time_limit_s > 0:
        raise SpecError(f"time_limit_s is {time_limit_s}; it must be above 0 seconds")
    if memory_limit_mib is not None and not memory_limit_mib > 0:
        raise SpecError(f"memory_limit_mib is {memory_limit_mib}; it must be above 0, or None for no limit")


def _tolerant(settings: LatencySettings, compiler: str) -> LatencySettings:
    """The settings, with the least tolerance of a compiler that has one."""
    least = LEAST_TOLERANCES.get(compiler)
    if least is None or (settings.tolerance or 0.0) >= least:
        return settings
    return settings.model_copy(update={"tolerance": least})


def _environment(folder: Path, threads: int) -> dict[str, str]:
    """Of the process: its imports are those of this one, its caches are empty and go with the folder."""
    return {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TVM_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


class _News:
    """Tells what the process has found so far, again and again; its file is read where it is new."""

    def __init__(self, path: Path, progress: Callable[[Findings], None]) -> None:
        self._path, self._progress, self._seen = path, progress, 0
        self._findings = Findings()

    def tell(self) -> None:
        """Tell what is known."""
        with suppress(OSError):  # nothing has been found yet
            written = self._path.stat().st_mtime_ns
            if written != self._seen:
                self._seen, self._findings = written, _findings(self._path)
        self._progress(self._findings)


def _findings(path: Path) -> Findings:
    try:
        return Findings.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return Findings()  # it got nowhere; how it ended says why


def _record(request: Request, ending: Ending, findings: Findings) -> TuningRecord:
    fields: dict[str, Any] = dict(findings.fields)
    if ending.end == "done" and findings.status is not None:
        fields |= {"status": findings.status, "reason": findings.reason}
    else:
        fields = {name: fields[name] for name in KNOWN_EARLY if name in fields}
        last = ending.tail.strip().splitlines()[-1:]
        said = f"; its last words: {last[0][:300]}" if ending.end == "crashed" and last else ""
        reason = f"{findings.phase}: {ending.reason or 'the process left no findings'}{said}"
        fields |= {"status": "crashed" if ending.end == "done" else ending.end, "reason": reason}
    graph = request.subject.graph
    return TuningRecord.model_validate(
        {
            "name": request.subject.title,
            "operator_id": graph.id if graph is not None else None,
            "subject": request.subject,
            "compiler": request.compiler,
            "device": Device(
                kind=request.device.partition(":")[0] if request.remote is None else request.remote.kind,
                name=findings.device_name,
                threads=request.settings.threads,
            ),
            "settings": request.settings,
            "versions": versions((*PACKAGES, *VERSIONS) if request.compiler == TVM else PACKAGES),
            "date": datetime.now(UTC),
            **fields,
        }
    )
