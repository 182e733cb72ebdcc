"""The compiler "tvm" for a remote device: tuned there, built here, checked and timed there."""

from __future__ import annotations

import time
from typing import Any

import torch

from syno.base.errors import SpecError
from syno.lower.tvm.installed import VERSIONS
from syno.measure.compilers import Job
from syno.measure.latency import Latency
from syno.measure.tvm.compilation import fused
from syno.measure.tvm.database import folder_for, only_writer
from syno.measure.tvm.devices import DeviceSettings
from syno.measure.tvm.network import import_network
from syno.measure.tvm.remote import measure_remote
from syno.measure.tvm.runner import rpc_runner
from syno.measure.tvm.targets import target
from syno.measure.tvm.tracker import reached
from syno.measure.tvm.tuned import tuned

KINDS = {"cpu": "llvm", "cuda": "cuda"}  # of targets, for kinds of devices


def target_on(device: DeviceSettings) -> Any:
    """The device's target. SpecError if it is of another kind than the device."""
    made = target(device.target)
    if made.kind.name != KINDS[device.kind]:
        raise SpecError(f'the target {device.target} is of kind "{made.kind.name}", and the device of kind "{device.kind}"')
    return made


def measured_on(job: Job, device: DeviceSettings, flops: int | None) -> Latency:
    """Tune, build and measure a module.

    Args:
        job: its device is the remote one's name, its module and example are here, and so is its check's reference.
        device: which.
        flops: of one call.

    Raises:
        DeviceError: it does not answer, or was lost; what was measured is kept.
        WrongOutputError: the output there differs from the reference.
    """
    began, to = time.perf_counter(), target_on(device)
    folder = folder_for(job.folder, to, job.device, VERSIONS["apache-tvm"])
    with reached(job.device, device) as found, only_writer(folder, job.deadline):
        network = fused(import_network(job.module, *job.example), to)
        each_ms = job.tvm.least_ms // 2
        with rpc_runner(found, device, evaluator=(1, 2, each_ms), threads=job.settings.threads) as runner:
            _, library = tuned(job, network, to, folder, runner=runner)
        job.found(compile_seconds=time.perf_counter() - began)
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
