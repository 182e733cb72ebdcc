"""What runs in the process that measures: `python -m syno.measure.measuring FOLDER`.

It reads FOLDER/request.json and leaves FOLDER/findings.json: fields of a tuning record. It writes them whenever it knows
more, so that something is known of a process that crashed, too.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from syno.base.errors import WrongOutputError
from syno.base.files import write_whole
from syno.measure.compilers import COMPILERS, LEAST_TOLERANCES, Job, Phase
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Status
from syno.measure.tvm.devices import DeviceSettings
from syno.measure.tvm.settings import TvmSettings
from syno.measure.tvm.summary import TrialCount

if TYPE_CHECKING:
    from syno.measure.latency import Latency
    from syno.measure.subjects import Material

REQUEST, FINDINGS = "request.json", "findings.json"
REASON_CHARACTERS = 500


class Request(BaseModel):
    """What to measure.

    Attributes:
        time_limit_s: after which the process is stopped.
        folder: for what later runs can use.
        remote: what `device` is, if it is none of this machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    subject: AnySubject
    compiler: str
    device: str
    settings: LatencySettings
    memory_limit_mib: float | None = None
    time_limit_s: float = 600
    tvm: TvmSettings = TvmSettings()
    folder: Path
    remote: DeviceSettings | None = None

    @property
    def name(self) -> str:
        """Of what is compiled, for files: the subject's, and a hash of it and of the batch."""
        text = f"{self.subject.model_dump_json()} {self.settings.batch}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return f"{re.sub(r'[^0-9A-Za-z]+', '-', self.subject.title)}-{digest}"


class Findings(BaseModel):
    """The state of a measurement: the record's `fields`, the phase that has begun, how far tuning is, and how it ended.

    Where there is a `shortcoming`, what is measured is not quite what was asked for.
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
        findings.status, findings.reason = _judge(error, findings.phase)
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
    import torch  # here, so that what the process begins with is known before

    from syno.measure.latency import pinned
    from syno.measure.machine import device_name
    from syno.measure.output_check import check_of

    here = "cpu" if request.remote is not None else request.device
    findings.device_name = request.device if request.remote is not None else device_name(here)
    if request.device.startswith("cuda"):
        torch.cuda.set_device(request.device)  # events are those of the current device
        if request.memory_limit_mib is not None:
            total = torch.cuda.get_device_properties(request.device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, request.memory_limit_mib * 2**20 / total))
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
            tvm=request.tvm,
            deadline=began + request.tvm.share * request.time_limit_s,
            begin=begin,
            found=findings.fields.update,
            count=count,
            lacks=lambda sentence: setattr(findings, "shortcoming", sentence),
        )
        if request.remote is None:
            latency = _on_this_machine(job, request.compiler, material)
        else:
            from syno.measure.tvm.on_device import measured_on

            latency = measured_on(job, request.remote, material.flops)
    findings.fields |= {
        "latency_ms": latency.median_ms,
        "latency_low_ms": latency.low_ms,
        "latency_high_ms": latency.high_ms,
        "latency_minimum_ms": latency.minimum_ms,
        "repeats": latency.repeats,
        "calls_per_repeat": latency.calls_per_repeat,
        "inputs_exceed_cache": latency.exceeds_cache,
        "checked": latency.checked,
        "reference": material.reference_name if latency.checked else "",
        "largest_relative_error": latency.largest_relative_error,
        "share_of_allowed": latency.share_of_allowed,
        "rounding_error": latency.rounding_error,
        "flops_per_second": latency.flops_per_second,
        "bytes_per_second": latency.bytes_per_second,
        "suspicious": latency.suspicious,
    }


def _on_this_machine(job: Job, compiler: str, material: Material) -> Latency:
    import torch

    from syno.measure.latency import measure
    from syno.measure.machine import peak

    start = time.perf_counter()
    compiled = COMPILERS[compiler](job)
    compiled(*job.example)
    if job.device.startswith("cuda"):
        torch.cuda.synchronize()
    job.found(compile_seconds=time.perf_counter() - start)
    job.begin("measuring")
    return measure(
        compiled,
        material.make_inputs,
        job.settings,
        check=job.check,
        flops=material.flops,
        weight_bytes=sum(weight.numel() * weight.element_size() for weight in material.module.parameters()),
        peak=None if compiler in LEAST_TOLERANCES else peak(job.device, job.settings.threads),  # peaks are those of float32
    )


def _judge(error: Exception, phase: str) -> tuple[Status, str]:
    said = str(error).strip()
    reason = f"{phase}: {type(error).__name__}: {said[:REASON_CHARACTERS]}"
    if isinstance(error, WrongOutputError):
        return "wrong_output", said
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in said:
        return "out_of_memory", reason
    return ("compile_failed" if phase in ("compiling", "tuning") else "failed"), reason


def _end_with_parent() -> None:
    """End this process when the one that started it has ended without telling: nobody would stop it at its limits."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.killpg(0, signal.SIGKILL)  # it leads its group, in which its compilers run

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    main(Path(sys.argv[1]))
