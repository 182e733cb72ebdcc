"""Measurement of a subject's latency in this process, and functions that measuring a speedup shares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypeAlias

from syno.base.core_locks import alone
from syno.base.errors import DeviceError, MachineError, MisfitError, SpecError, WrongOutputError
from syno.measure.compilers import Compiler, compiler_named
from syno.measure.job import Job, Phase, TrialCount
from syno.measure.native.build import sentence_of_machine
from syno.measure.network_subject import BackboneSubject
from syno.measure.protocol import Findings, Request, Tell
from syno.measure.subjects import Subject
from syno.measure.tuning_record import CompiledCode, CompilerChoice, Status

if TYPE_CHECKING:
    from syno.measure.latency import Latency
    from syno.measure.machine import Peak
    from syno.measure.output_check import Deviation, Inputs, OutputCheck
    from syno.measure.reference import Material
    from syno.measure.timing import LatencySettings

Begin: TypeAlias = Callable[[Phase], None]

REASON_CHARACTERS = 500


def findings(
    request: Request,
    tell: Tell = lambda _: None,
    measure: Callable[[Request, Findings, Callable[[], None]], None] | None = None,
) -> Findings:
    """Return the final findings, which have a status.

    Args:
        request: what to measure.
        tell: gets the findings so far at each change, so that something is known even if the process crashes.
        measure: fills the findings, and calls its last argument after each change. None: measures a latency.

    If the machine is at fault, the status is "crashed", and the client retries in a new process. If a speedup is measured,
    raises DeviceError for failures that no operator causes.
    """
    found = Findings()
    try:
        (measure or _measure)(request, found, lambda: tell(found))
        found.status, found.reason = ("partial" if found.shortcoming else "ok"), found.shortcoming
    except Exception as error:
        if request.is_speedup and isinstance(error, DeviceError):
            raise
        found.status, found.reason = status_of(error, found.phase)
        if request.is_speedup and isinstance(error, MisfitError):
            found.status, found.reason = "misfit", str(error)
    return found


def _measure(request: Request, findings: Findings, keep: Callable[[], None]) -> None:
    """Measure the latency of the request's subject."""
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

        def lacks(sentence: str) -> None:
            findings.shortcoming = sentence

        job = job_of(request, material, check, begin, lacks)
        job = replace(job, began=began, note=findings.fields.update, count=count)
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
                *("flops_per_second", "bytes_per_second", "limit_ms", "suspicious"),
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

    compiled, seconds = compiled_and_called(compiler, job)
    job.note(compile_seconds=seconds)
    job.begin("waiting")
    with alone(job.device):
        job.begin("measuring")
        found = measure(
            compiled,
            material.make_inputs,
            job.settings,
            check=job.check,
            flops=material.flops,
            weight_bytes=_weight_bytes(material),
            inside=material.inside,
            peak=_peak(compiler, job.settings, job.device, material),
        )
        if found.suspicious:  # the peak may be too low, if the machine was busy when it was measured
            most = _peak(compiler, job.settings, job.device, material, again=True)
            assert most is not None
            found = found.against(most, material.inside)
        return found


def _peak(
    compiler: Compiler, settings: LatencySettings, device: str, material: Material, *, again: bool = False
) -> Peak | None:
    """Return the peak of the device in the module's dtype; None if the compiler may compute in lower precision."""
    from syno.measure.machine import peak
    from syno.measure.output_check import least_precise_type

    if compiler.tolerance is not None or settings.tolerance is not None:
        return None
    return peak(device, settings.threads, least_precise_type(material.module), again=again)


def _weight_bytes(material: Material) -> int:
    return sum(weight.numel() * weight.element_size() for weight in material.module.parameters())


def compiled_and_called(compiler: Compiler, job: Job) -> tuple[Callable[..., Any], float]:
    """Return the compiled function of a job after a first call, and the seconds of compiling and of this call.

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


def fault_of_machine(error: BaseException | None) -> str:
    """Return the error's message if it shows that the machine is at fault, such as a full disk; "" otherwise.

    The messages of the exceptions that caused the error are searched, too.
    """
    while error is not None:
        if isinstance(error, MachineError):
            return str(error)
        if sentence := sentence_of_machine(f"{type(error).__name__}: {error}"):
            return sentence
        error = error.__cause__ or error.__context__
    return ""


def status_of(error: Exception, phase: str) -> tuple[Status, str]:
    """Return the status of a record, and the reason, for an error that was raised in this phase of the measurement."""
    if fault := fault_of_machine(error):
        return "crashed", f"{phase}: the machine is at fault: {fault}"
    said = str(error).strip()
    reason = f"{phase}: {type(error).__name__}: {said[:REASON_CHARACTERS]}"
    if isinstance(error, WrongOutputError):
        return "wrong_output", said
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in said:
        return "out_of_memory", reason
    return ("compile_failed" if phase in ("compiling", "tuning") else "failed"), reason


@dataclass
class Prepared:
    """A compiled module whose output has been checked, with inputs to time it on.

    Attributes:
        material: the module, with its reference.
        check: the check of outputs.
        compiled: the compiled function.
        compile_seconds: seconds of compiling.
        deviation: the deviation of the output.
        inputs: an endless iterator of inputs.
        shortcoming: a sentence, such as about untuned parts; "" if there is none.
        last: the input and the output of the last call.
        limit_ms: the lower bound of a call, as in `syno.measure.latency.Latency`.
        code: the code that ran; None for compilers that do not report it.
        choice: the compiler that `fastest` chose; None for other compilers.
    """

    material: Material
    check: OutputCheck
    compiled: Callable[..., Any]
    compile_seconds: float
    deviation: Deviation
    inputs: Iterator[Inputs]
    shortcoming: str = ""
    last: tuple[Any, Any] = (None, None)
    limit_ms: float | None = None
    code: CompiledCode | None = None
    choice: CompilerChoice | None = None

    def __call__(self) -> None:
        """Call the compiled function on the next input."""
        given = next(self.inputs)
        self.last = given, self.compiled(*given)

    def find_limit(self, request: Request) -> None:
        """Set `limit_ms`, the lower bound of a call, from the FLOPs and the bytes of the last call."""
        self.limit_ms = limit_ms(request, self.material, self.call_bytes)

    @property
    def call_bytes(self) -> int:
        """The bytes of the input and the output of the last call."""
        from syno.measure.latency import bytes_of

        return bytes_of(self.last)

    def check_last(self) -> Deviation:
        """Return the deviation of the output of the last call. Raises WrongOutputError if it is too large."""
        given, output = self.last
        return self.check.require(self.check.of_output(output, given), "the output of a timed call")


def limit_ms(request: Request, material: Material, call_bytes: int) -> float | None:
    """Return the lower bound of a call's milliseconds by the device's peak, where `call_bytes` is the size of input and output.

    None if the compiler may compute in lower precision than the module's, or a GPU has no memory for measuring its peak.
    """
    import torch

    try:
        most = _peak(compiler_named(request.compiler), request.settings, request.device, material)
    except torch.OutOfMemoryError:
        return None
    if most is None:
        return None
    return 1e3 * most.limit_seconds(round(material.inside * material.flops), _weight_bytes(material) + call_bytes)


def prepared(request: Request, subject: Subject, begin: Begin) -> Prepared:
    """Return a subject compiled on this machine as the request says, after a check of its outputs.

    Raises the compiler's exceptions, and WrongOutputError as `syno.measure.output_check.OutputCheck.require`.
    """
    from syno.measure.latency import pool_of
    from syno.measure.output_check import check_of

    begin("building")
    compiler = compiler_named(request.compiler)
    compiler.check_kind(request.device)
    material = subject.make(request.device, request.settings.batch)
    check = check_of(material, request.settings, request.device)
    lacking, found = list[str](), dict[str, Any]()
    job = job_of(request.model_copy(update={"subject": subject}), material, check, begin, lacking.append)
    job = replace(job, note=found.update)
    begin("compiling")
    compiled, seconds = compiled_and_called(compiler, job)
    deviation = check.require(check.of(compiled))
    is_layer = isinstance(subject, BackboneSubject) and subject.layer is not None
    # A layer has one input only: in the network, it was just written, and is in the cache.
    inputs = cycle([material.make_inputs()] if is_layer else pool_of(material.make_inputs)[0])
    made = Prepared(material, check, compiled, seconds, deviation, inputs, " ".join(lacking))
    made.code, made.choice = found.get("code"), found.get("choice")
    return made


def job_of(request: Request, material: Material, check: OutputCheck, begin: Begin, lacks: Callable[[str], None]) -> Job:
    """Return a compiler's job for a request's subject. `lacks` is called with a sentence if the result has a shortcoming."""
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
        note=lambda **_: None,
        count=lambda _: None,
        lacks=lacks,
    )
