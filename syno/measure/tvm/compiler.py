"""The compiler "tvm", on this machine or a remote device: import, tuning of untuned tasks, build, output check, measurement."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from syno.base.errors import DeviceError, SpecError
from syno.lower.tvm.installed import VERSIONS
from syno.measure.job import Job
from syno.measure.latency import Latency
from syno.measure.machine import device_name
from syno.measure.output_check import Deviation
from syno.measure.timing import LatencySettings, stopwatch_of
from syno.measure.tuning_record import TuningSummary
from syno.measure.turns import Turns, take_turns
from syno.measure.tvm.compilation import TvmModule, built, fused, saved, scheduled
from syno.measure.tvm.network import import_network
from syno.measure.tvm.search import TrialDatabase, folder_for, only_writer, tune_network
from syno.measure.tvm.sessions import Lease, Uploaded, Workers, borrow, last_words, measure_remote, rpc_runner
from syno.measure.tvm.targets import DeviceSettings, TvmSettings, of_device, target
from syno.measure.tvm.tracker import Reached, reached

if TYPE_CHECKING:
    from syno.measure.output_check import Deviation, Expected


def measure_in_turns(
    lease: Lease, libraries: Sequence[Path], expected: Sequence[Sequence[Expected]], settings: LatencySettings, kind: str
) -> tuple[list[Deviation], Turns]:
    """Upload networks, check their outputs, time them in turns, and check the outputs of the last timed calls.

    Args:
        lease: lease of the device.
        libraries: the networks, as for `syno.measure.tvm.sessions.measure_remote`; the original is the first.
        expected: for each network, inputs and their expected outputs.
        settings: how to measure.
        kind: "cpu" or "cuda".

    Raises:
        WrongOutputError, DeviceError: as `measure_remote`.
    """
    from syno.measure.output_check import wrong_output

    processes = Workers(lease)
    try:
        names = [str(library) for library in libraries]
        found, turns = processes.call(run_turns, lease, names, [list(one) for one in expected], settings, kind)
    except Exception as failure:  # of any kind: TVM's, the worker's, the network's
        said = last_words(str(failure)) or f"no answer within {lease.limit_seconds:g} s"
        raise DeviceError(f"{lease.device.describe()} failed while it measured {libraries[-1].name}: {said}") from None
    finally:
        processes.close()
    if turns is None:
        worst = max(found, key=lambda deviation: deviation.of_allowed)
        raise wrong_output(worst, settings.tolerance, f"on {lease.device.describe()} the output")
    return found, turns


def run_turns(
    lease: Lease, libraries: Sequence[str], expected: Sequence[Sequence[Expected]], settings: LatencySettings, kind: str
) -> tuple[list[Deviation], Turns | None]:
    """Return the largest deviation of each network's outputs, and the times if all outputs are right; in a worker process."""
    session = borrow(lease)
    networks = [Uploaded(session, library, kind) for library in libraries]
    found = [network.check(one) for network, one in zip(networks, expected, strict=True)]
    if not all(deviation.of_allowed <= 1 for deviation in found):
        return found, None
    turns = take_turns([network.evaluate for network in networks], settings)
    last = [network.deviation(one[-1]) for network, one in zip(networks, expected, strict=True)]
    found = [one.worse(other) for one, other in zip(found, last, strict=True)]
    return found, turns if all(deviation.of_allowed <= 1 for deviation in found) else None


KINDS = {"cpu": "llvm", "cuda": "cuda"}  # kind of TVM target, by kind of device
PROGRESS, MODULES = "progress.log", "modules"


def target_for(settings: TvmSettings, device: str, threads: int) -> Any:
    """Return the target of the settings; if they have none, the target of a device of this machine.

    Raises:
        SpecError: the target is for another device.
        UnknownNameError, MissingPackageError: as `targets.target`.
    """
    made = target(of_device(device, threads) if settings.target is None else settings.target)
    wanted = KINDS["cuda" if device.startswith("cuda") else "cpu"]
    if made.kind.name != wanted:
        raise SpecError(
            f'the target {settings.target} is of kind "{made.kind.name}"; on the device "{device}" it has to be "{wanted}"'
        )
    cpu = made if made.host is None else made.host
    machine, here = str(cpu.attrs.get("mtriple", "")).partition("-")[0], platform.machine()
    if machine not in ("", here):
        raise SpecError(
            f"the target {settings.target} is of a machine with {machine}, and this one has {here}: only the machine's own "
            "code can be measured here"
        )
    return made


def target_on(device: DeviceSettings) -> Any:
    """Return the target of a remote device. Raises SpecError if it is for another kind of device."""
    made = target(device.target)
    if made.kind.name != KINDS[device.kind]:
        raise SpecError(f'the target {device.target} is of kind "{made.kind.name}", and the device of kind "{device.kind}"')
    return made


def compiled(job: Job) -> Callable[..., Any]:
    """Return the tuned module as a function of PyTorch tensors.

    Raises:
        LoweringError: TVM cannot express the module.
        WrongOutputError: the compiled module's output is wrong.
        SpecError: the target is invalid, or another process tunes with the same folder for too long.
    """
    to = target_for(job.options, job.device, job.settings.threads)
    network = fused(import_network(job.module, *job.example), to)
    folder = folder_for(job.folder, to, device_name(job.device), VERSIONS["apache-tvm"])
    with only_writer(folder, _deadline(job)):
        untuned_ms = _first_look(job, network, to) if job.options.trials_per_task else None
        executable, _ = _tuned(job, network, to, folder, untuned_ms=untuned_ms)
    call = TvmModule(executable, job.device)
    _check(job, call, "tuned by TVM")
    return call


def measured_on(job: Job, device: DeviceSettings, flops: int | None) -> Latency:
    """Tune, build and measure a module on a remote device.

    Args:
        job: its device is the name of the remote device; its module, example and reference are on this machine.
        device: the settings of the device.
        flops: multiply-adds of one call.

    Raises:
        DeviceError: the device does not answer, or was lost; trials so far are kept.
        WrongOutputError: the output there differs from the reference.
    """
    with reached(job.device, device) as found, only_writer(_trials(job, device), _deadline(job)):
        library = library_for(job, device, found)
        job.begin("measuring")
        with torch.no_grad():
            expected = job.check.expected
        return measure_remote(
            library,
            expected,
            found,
            job.settings,
            kind=device.kind,
            seconds=device.session_timeout_seconds,
            wait_seconds=device.session_timeout_seconds + device.wait_seconds,
            flops=flops,
        )


def turns_on(jobs: Sequence[Job], device: DeviceSettings) -> tuple[list[Deviation], Turns]:
    """Tune and build modules, and time them in turns on a remote device. The original is the first.

    Returns the largest deviation of the outputs of each, and the times. Arguments and exceptions are those of `measured_on`.
    """
    first = jobs[0]
    with reached(first.device, device) as found, only_writer(_trials(first, device), _deadline(jobs[-1])):
        libraries = [library_for(job, device, found) for job in jobs]
        first.begin("measuring")
        with torch.no_grad():
            expected = [job.check.expected for job in jobs]
        seconds = len(jobs) * device.session_timeout_seconds
        lease = Lease(found, seconds, seconds + device.wait_seconds, first.settings.threads)
        return measure_in_turns(lease, libraries, expected, first.settings, device.kind)


def library_for(job: Job, device: DeviceSettings, reached: Reached) -> Path:
    """Tune and build a module for a connected remote device, and return the file. The caller holds the folder's lock."""
    began, to = time.perf_counter(), target_on(device)
    network = fused(import_network(job.module, *job.example), to)
    each_ms = job.options.least_ms // 2
    with rpc_runner(reached, device, evaluator=(1, 2, each_ms), threads=job.settings.threads) as runner:
        _, library = _tuned(job, network, to, _trials(job, device), runner=runner)
    job.note(compile_seconds=time.perf_counter() - began)
    return library


def _trials(job: Job, device: DeviceSettings) -> Path:
    """Return the folder of the tuning trials on a remote device."""
    return folder_for(job.folder, target_on(device), job.device, VERSIONS["apache-tvm"])


def _deadline(job: Job) -> float:
    """Return the time (of `time.monotonic`) after which no further trials begin."""
    share: float = job.options.share
    return job.began + share * job.time_limit_s


def _first_look(job: Job, network: Any, to: Any) -> float:
    """Check the output of the network before tuning, so that no wrong network is tuned, and return its latency in ms."""
    call = TvmModule(built(scheduled(network, to), to), job.device)
    _check(job, call, "compiled by TVM")
    stopwatch = stopwatch_of(job.device)
    return min(stopwatch(lambda: call(*job.example)) for _ in range(2))


def _check(job: Job, call: TvmModule, how: str) -> None:
    with torch.no_grad():
        job.check.require(job.check.of(call), f"the output of the network {how}")


def _tuned(
    job: Job, network: Any, to: Any, folder: Path, *, runner: Any = None, untuned_ms: float | None = None
) -> tuple[Any, Path]:
    """Tune untuned tasks, build the network with the best schedules, and return it and its file.

    Args:
        job: its callbacks get the phases, the summary, and the shortcoming.
        network: the fused network (`compilation.fused`).
        to: the target.
        folder: the folder of the target and device; the caller holds its lock.
        runner: measures on the device; None: on this machine.
        untuned_ms: latency before tuning, for the summary.
    """
    job.begin("tuning")
    start = time.perf_counter()
    tasks = tune_network(
        network,
        to,
        folder,
        job.options,
        runner=runner,
        deadline=_deadline(job),
        progress=_log(folder, job.name),
        count=job.count,
    )
    seconds, trials = time.perf_counter() - start, job.options.trials_per_task
    summary = TuningSummary.of(tasks, json.loads(str(to)), trials, seconds, untuned_ms)
    job.note(tuning=summary.model_dump())
    if trials and summary.shortcoming:
        job.lacks(summary.shortcoming)
    job.begin("compiling")
    executable = built(scheduled(network, to, TrialDatabase(folder).trials), to)
    library = folder / MODULES / f"{job.name}.tar"
    saved(executable, library)
    return executable, library


def _log(folder: Path, name: str) -> Callable[[str], None]:
    """Return a function that writes lines of progress to this process's output, and to a file in the folder."""

    def tell(line: str) -> None:
        print(line, flush=True)
        with (folder / PROGRESS).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%F %T')} {name}: {line}\n")

    return tell
