"""The process that measures: `python -m syno.measure.measuring FOLDER`.

It reads FOLDER/request.json and writes FOLDER/findings.json: fields of a tuning record. It writes them again whenever it knows
more, so that something is known of a process that crashed, too.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from syno.base.core_locks import alone
from syno.base.errors import SpecError, WrongOutputError
from syno.base.files import write_whole
from syno.measure.compilers import Compiler, compiler_named
from syno.measure.job import Job, Phase, TrialCount
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Status
from syno.measure.tvm.targets import DeviceSettings

if TYPE_CHECKING:
    from syno.measure.latency import Latency
    from syno.measure.reference import Material

REQUEST, FINDINGS = "request.json", "findings.json"
REASON_CHARACTERS = 500
# What compilers say where the system has killed one of their processes, as it does where memory is short, or the disk is full.
OF_MACHINE = re.compile(
    r"Killed signal|SIGKILL|exit status -9\b|BrokenProcessPool|terminated abruptly|No space left on device|Disk quota exceeded"
)


class Request(BaseModel):
    """A request to measure a subject.

    Attributes:
        options: the compiler's own settings, as JSON.
        time_limit_s: seconds after which the process is stopped.
        folder: for files that later runs can use.
        remote: the settings of `device`, if it is not one of this machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    subject: AnySubject
    compiler: str
    device: str
    settings: LatencySettings
    memory_limit_mib: float | None = None
    time_limit_s: float = 600
    options: dict[str, Any] = {}
    folder: Path
    remote: DeviceSettings | None = None

    @property
    def name(self) -> str:
        """A name for files of what is compiled: the subject's, and a hash of it and of the batch."""
        text = f"{self.subject.model_dump_json()} {self.settings.batch}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return f"{re.sub(r'[^0-9A-Za-z]+', '-', self.subject.title)}-{digest}"


class SpeedupRequest(Request):
    """A request to measure how many times as fast as the original the subject, a network with an operator, is.

    Attributes:
        measured: "network": both networks are timed in turns; "layers": each distinct size of the replaced layers is.
    """

    measured: Literal["network", "layers"] = "network"


class Findings(BaseModel):
    """The state of a measurement: fields of the record, the current phase, how far tuning is, and how it ended.

    Where there is a `shortcoming`, the measured code is not quite what was asked for.
    """

    model_config = ConfigDict(extra="forbid")
    phase: Phase = "starting"
    shortcoming: str = ""
    device_name: str = ""
    fields: dict[str, Any] = {}
    count: TrialCount | None = None
    status: Status | None = None
    reason: str = ""


def main(folder: Path) -> None:
    """Measure what the folder's request says."""
    request = Request.model_validate_json((folder / REQUEST).read_bytes())
    findings = Findings()

    def keep() -> None:
        write_whole(folder / FINDINGS, findings.model_dump_json(), durable=False)

    try:
        _measure(request, findings, keep)
        findings.status, findings.reason = ("partial" if findings.shortcoming else "ok"), findings.shortcoming
    except Exception as error:
        if is_of_machine(error):
            raise  # this process dies of it, too, and is tried again
        findings.status, findings.reason = status_of(error, findings.phase)
    keep()


def _measure(request: Request, findings: Findings, keep: Callable[[], None]) -> None:
    settings, began = request.settings, time.monotonic()

    def begin(phase: Phase) -> None:
        findings.phase = phase
        keep()

    def count(trials: TrialCount) -> None:
        findings.count = trials
        keep()

    begin("building")
    import torch  # imported here, so that the phase is known while it loads

    from syno.measure.latency import pinned
    from syno.measure.machine import device_name
    from syno.measure.output_check import check_of

    compiler, own = compiler_named(request.compiler), request.remote is None
    here = request.device if own else "cpu"
    findings.device_name = device_name(here) if own else request.device
    if here.startswith("cuda"):
        take_gpu(here, request.memory_limit_mib)
    with torch.no_grad(), pinned(settings):  # from here on: code that was compiled under other settings is compiled again
        material = request.subject.make(here, settings.batch)
        findings.fields |= {"flops": material.flops, "parameters": material.parameters}
        check = check_of(material, settings, here)
        begin("compiling")
        job = Job(
            module=material.module,
            example=material.make_inputs(),
            make_inputs=material.make_inputs,
            device=request.device,
            settings=settings,
            check=check,
            name=request.name,
            folder=request.folder,
            options=None if compiler.settings is None else compiler.settings.model_validate(request.options),
            began=began,
            time_limit_s=request.time_limit_s,
            begin=begin,
            found=findings.fields.update,
            count=count,
            lacks=lambda sentence: setattr(findings, "shortcoming", sentence),
        )
        if request.remote is not None and compiler.remote is not None:
            latency = compiler.remote(job, request.remote, material.flops)
        else:
            latency = _on_this_machine(job, compiler, material)
    findings.fields |= {
        "latency_ms": latency.median_ms,
        "latency_low_ms": latency.low_ms,
        "latency_high_ms": latency.high_ms,
        "latency_minimum_ms": latency.minimum_ms,
        "inputs_exceed_cache": latency.exceeds_cache,
        "reference": material.reference_name if latency.checked else "",
        **latency.model_dump(
            include={
                *("repeats", "calls_per_repeat", "checked", "largest_relative_error", "share_of_allowed", "rounding_error"),
                *("flops_per_second", "bytes_per_second", "suspicious"),
            }
        ),
    }


def take_gpu(device: str, memory_limit_mib: float | None) -> None:
    """Make a GPU the current device, whose events are timed, and limit the memory that this process allocates on it."""
    import torch

    number = torch.device(device).index or 0
    torch.cuda.set_device(number)  # a device without a number, such as "cuda", is refused
    if memory_limit_mib is not None:
        total = torch.cuda.get_device_properties(number).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory_limit_mib * 2**20 / total), number)


def _on_this_machine(job: Job, compiler: Compiler, material: Material) -> Latency:
    from syno.measure.latency import measure
    from syno.measure.machine import peak
    from syno.measure.output_check import coarsest_type

    compiled, seconds = compiled_and_called(compiler, job)
    job.found(compile_seconds=seconds)
    job.begin("waiting")
    with alone(job.device):
        job.begin("measuring")
        numbers = (job.device, job.settings.threads, coarsest_type(material.module))
        is_exact = compiler.tolerance is None and job.settings.tolerance is None  # else it may compute in coarser numbers
        found = measure(
            compiled,
            material.make_inputs,
            job.settings,
            check=job.check,
            flops=material.flops,
            weight_bytes=sum(weight.numel() * weight.element_size() for weight in material.module.parameters()),
            peak=peak(*numbers) if is_exact else None,
        )
        if found.suspicious:  # the peak may have been measured while the machine was busy
            most = peak(*numbers, again=True)
            is_above = most.is_below(found.flops_per_second or 0.0, found.bytes_per_second or 0.0)
            found = found.model_copy(update={"suspicious": is_above})
        return found


def compiled_and_called(compiler: Compiler, job: Job) -> tuple[Callable[..., Any], float]:
    """Return the compiled function of a job on this machine, after a first call, and the seconds of both.

    Raises SpecError if the compiler does not take the device, or returned no function.
    """
    import torch

    start = time.perf_counter()
    compiler.check_kind(job.device)
    compiled = compiler(job)
    if not callable(compiled):
        raise SpecError(f"the compiler {compiler.name} returned {type(compiled).__name__}, not a function of tensors")
    compiled(*job.example)
    if job.device.startswith("cuda"):
        torch.cuda.synchronize()
    return compiled, time.perf_counter() - start


def is_of_machine(error: BaseException | None) -> bool:
    """Return whether the machine caused an error: a message in its chain says that a process was killed or a disk is full."""
    while error is not None:
        if OF_MACHINE.search(f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False


def status_of(error: Exception, phase: str) -> tuple[Status, str]:
    """Return the status of a record, and the reason, for an error in a phase."""
    said = str(error).strip()
    reason = f"{phase}: {type(error).__name__}: {said[:REASON_CHARACTERS]}"
    if isinstance(error, WrongOutputError):
        return "wrong_output", said
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in said:
        return "out_of_memory", reason
    return ("compile_failed" if phase in ("compiling", "tuning") else "failed"), reason


def end_group(folder: Path) -> None:
    """Remove a folder of temporary files, and end this process with its group, in which its compilers run."""
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)  # it leads its group


def _end_with_parent(folder: Path) -> None:
    """End this process when its parent has been killed: nobody would stop it at its limits, or remove the folder."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        end_group(folder)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent(Path(sys.argv[1]))
    main(Path(sys.argv[1]))
