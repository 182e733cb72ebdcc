"""`tune`: compile and measure an operator or a network in a process of its own.

>>> from syno.ir.library import OPERATORS
>>> conv2d = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 16, "C_out": 16, "H": 14})
>>> tune(conv2d, "eager", settings=LatencySettings(batch=8)).status
'ok'
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from syno.base.devices import require_device
from syno.base.errors import MissingPackageError, SpecError
from syno.measure.compilers import Compiler, as_reached, compiler_named, groups_of_settings
from syno.measure.devices import RemoteDevice, SshSettings
from syno.measure.measuring_process import MeasuringProcess
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.protocol import Findings, Request, Tell
from syno.measure.ssh import measured_there
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Device, TuningRecord
from syno.measure.tvm.targets import TvmSettings

__all__ = [
    "LanguageModelSubject", "LatencySettings", "ModelSubject", "NetworkSubject", "OperatorSubject", "TuningRecord",
    "TvmSettings", "tune",
]  # fmt: skip


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
    progress: Tell = lambda _: None,
    **own: BaseModel | None,
) -> TuningRecord:
    """Compile and measure `subject` in a process of its own, which has none of this process's state and caches.

    If the compiler fails, the output is wrong, or a limit is exceeded, the result is a record with the reason. If the process
    dies, a new one retries; if it dies again and again, the result is a record, too.

    Args:
        subject: an operator at given sizes, a backbone with one, or a user's own model. Modules are imported from where this
            process imports them.
        compiler: a name in `COMPILERS`, or the user's own as `package.module:name`.
        device: "cpu", "cuda" or "cuda:1".
        settings: how to measure. A compiler that computes in lower precision has a least tolerance.
        time_limit_s: seconds for everything, from the start of the process.
        memory_limit_mib: limit on the memory of the process and its descendants, and on the memory that it allocates on a GPU,
            in MiB; None: no limit.
        folder: folder for TVM's trials, so that the next run need not measure them again; None: they are not kept.
        remote: the settings of a remote `device`; None for a device of this machine. For ssh, the compiler runs on the other
            machine, which keeps TVM's trials; if the connection is lost, the measurement starts anew.
        progress: callback with the findings so far, several times a second.
        own: settings of compilers by the names of their groups, such as `tvm=TvmSettings()`; those of other compilers are
            ignored.

    Raises:
        UnknownNameError: there is no such compiler, or no such target.
        SpecError: a limit, a device or a target is invalid, or the machine does not have the GPU.
        MissingPackageError: the compiler needs a package that is not installed, and not `Compiler.may_be_missing`.
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
        return measured_there(device, remote, request, progress)
    try:
        chosen.require()  # before a process is started for it
    except MissingPackageError as error:
        if not chosen.may_be_missing:
            raise
        return _record(request, chosen, Findings(status="failed", reason=str(error)))
    if remote is None:
        require_device(device)
        chosen.check_gpu(device)
    elif chosen.remote is None:
        raise SpecError(f'the code of the compiler "{compiler}" runs on this machine only, but "{device}" is a remote device')
    if chosen.check is not None:
        chosen.check(device, settings.threads, options, remote)
    request = request.model_copy(update={"remote": remote})
    with MeasuringProcess() as process:
        return _record(request, chosen, process.findings(request, progress))


def own_options(compiler: Compiler, options: dict[str, BaseModel | None]) -> BaseModel | None:
    """Return the compiler's own settings from `options` (by the compiler's group), else their defaults; None if it has none."""
    groups = {*groups_of_settings(), compiler.group} - {""}
    if unknown := sorted(options.keys() - groups):
        raise TypeError(f"tune() got {unknown[0]}=...; there are settings of compilers: {', '.join(sorted(groups))}")
    if compiler.settings is None:
        return None
    return options.get(compiler.group) or compiler.settings()


def tolerant(settings: LatencySettings, compiler: Compiler) -> LatencySettings:
    """Return the settings with at least the compiler's least tolerance, if it has one."""
    if compiler.tolerance is None or (settings.tolerance or 0.0) >= compiler.tolerance:
        return settings
    return settings.model_copy(update={"tolerance": compiler.tolerance})


def _record(request: Request, compiler: Compiler, findings: Findings) -> TuningRecord:
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
            "versions": compiler.versions() | request.subject.version_of_code(request.compiler),
            "date": datetime.now(UTC),
            **findings.fields,
            "status": findings.status,
            "reason": findings.reason,
        }
    )
