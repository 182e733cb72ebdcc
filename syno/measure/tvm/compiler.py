"""The compiler "tvm": import, tune what is not tuned yet, build, and check before anything is timed."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import torch

from syno.base.errors import SpecError
from syno.lower.tvm.installed import VERSIONS
from syno.measure.compilers import Job
from syno.measure.machine import device_name
from syno.measure.timing import stopwatch_of
from syno.measure.tvm.compilation import built, fused, scheduled
from syno.measure.tvm.database import folder_for, only_writer
from syno.measure.tvm.network import import_network
from syno.measure.tvm.running import TvmModule
from syno.measure.tvm.settings import TvmSettings
from syno.measure.tvm.targets import of_device, target
from syno.measure.tvm.tuned import tuned


def target_for(settings: TvmSettings, device: str, threads: int) -> Any:
    """The target that the settings name, or that of the device.

    Raises:
        SpecError: it is no target for that device, or the device cannot be tuned on.
        UnknownNameError, MissingPackageError: as `targets.target`.
    """
    if ":" in device:
        raise SpecError(
            f'the device is "{device}"; TVM tunes on the first GPU that it sees: take the device "cuda", and choose the GPU '
            "with the environment variable CUDA_VISIBLE_DEVICES"
        )
    made = target(of_device(device, threads) if settings.target is None else settings.target)
    wanted = "cuda" if device.startswith("cuda") else "llvm"
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


def compiled(job: Job) -> Callable[..., Any]:
    """The module, tuned, as a function of PyTorch tensors.

    Raises:
        LoweringError: TVM cannot express the module.
        WrongOutputError: what TVM made of it computes something else.
        SpecError: a target that means nothing here, or another process tunes with the same folder for too long.
    """
    to = target_for(job.tvm, job.device, job.settings.threads)
    network = fused(import_network(job.module, *job.example), to)
    folder = folder_for(job.folder, to, device_name(job.device), VERSIONS["apache-tvm"])
    with only_writer(folder, job.deadline):
        untuned_ms = _first_look(job, network, to) if job.tvm.trials_per_task else None
        executable, _ = tuned(job, network, to, folder, untuned_ms=untuned_ms)
    call = TvmModule(executable, job.device)
    _check(job, call, "tuned by TVM")
    return call


def _first_look(job: Job, network: Any, to: Any) -> float:
    """The untuned network's latency in ms, once it is known to compute what it has to: tuning another is in vain."""
    call = TvmModule(built(scheduled(network, to), to), job.device)
    _check(job, call, "compiled by TVM")
    stopwatch = stopwatch_of(job.device)
    return min(stopwatch(lambda: call(*job.example)) for _ in range(2))


def _check(job: Job, call: TvmModule, how: str) -> None:
    with torch.no_grad():
        job.check.require(job.check.of(call), f"the output of the network {how}")
