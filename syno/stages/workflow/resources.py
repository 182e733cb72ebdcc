"""The resources of jobs: memory in MiB, runtime in minutes, cores, GPUs. Schedulers of clusters use them.

Each new attempt of a failed job gets more memory and time. A job on a GPU leases one of this machine (`syno.base.gpu_leases`).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from syno.base.devices import visible_gpus
from syno.config import Experiment
from syno.measure.compilers import compiler_facts
from syno.measure.devices import SshSettings, place_of
from syno.measure.tvm.targets import is_here
from syno.stages.data import loading_processes
from syno.stages.places import compiler_in_files, device_named
from syno.stages.train import settings_of_training
from syno.stages.workflow.process import asks_for_other_machines
from syno.stages.workflow_stages import A_DAY, MOST_MIB, STAGES, grown, has_operators
from syno.train.settings import WorkloadSettings

CONVERTING_THREADS = 16  # ImageNet takes hours with them
LAYERS = 10  # of different sizes in a network, as ResNet-34 has; a job that needs more time goes on in its next attempt
AROUND_TUNING = 30  # minutes for loading the network, and for loading it again after a failure


class JobResources:
    """The resources of the jobs of experiments.

    Args:
        workflow: Snakemake's workflow; resources that jobs share are added to it.
        experiments: all experiments, by folder.

    Attributes:
        elsewhere: whether jobs run on nodes of a cluster, each with its own cores.
        retries: attempts after a failure. A job of a cluster has none: the workflow that submitted it starts it again, with
            more memory.
        converting_threads: cores of a conversion of ImageNet.
    """

    def __init__(self, workflow: Any, experiments: Mapping[str, Experiment]) -> None:
        self._experiments = experiments
        self.elsewhere = asks_for_other_machines(workflow)
        self.retries = int(workflow.is_main_process)
        self._cores = workflow.resource_settings.cores or 1
        self.converting_threads = CONVERTING_THREADS if self.elsewhere else min(self._cores, CONVERTING_THREADS)
        devices = {
            device for experiment in filter(has_operators, experiments.values()) for device in _local_devices(experiment)
        } - {"cpu"}
        shared = workflow.global_resources
        # GPUs are counted, unless `--resources gpu=N` is given. A job of a cluster has those that its scheduler gives it.
        if not self.elsewhere and workflow.is_main_process and devices and visible_gpus():
            shared.setdefault("gpu", len(visible_gpus()))
        self._gpus = 1 if self.elsewhere or "gpu" not in shared else shared["gpu"].value
        self._cores_of_a_gpu = max(1, self._cores // max(1, self._gpus))  # a job on a GPU leaves the others to other GPUs
        if self._gpus > 1:
            os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(self._cores_of_a_gpu))  # otherwise it takes all cores
        # GPUs that settings name by number are resources, too, so that jobs for the same one run one after another.
        self._numbered = [] if self.elsewhere else sorted(devices - {"cuda"})
        self._measured_alone = dict(self._shared_by_measurements())
        # `--resources device_KEY=3` states that a key has three remote devices. For ssh it is device_HOST.
        for name in [*self._measured_alone, *map(resource_name, self._numbered)]:
            shared.setdefault(name, 1)
        if self.elsewhere:  # if a profile groups an experiment's figures into one job, they are drawn one after another
            shared.setdefault("drawing", 1)

    def of(self, stage: str, **others: Any) -> dict[str, Any]:
        """Return the memory and the runtime of a stage's jobs, together with other resources."""
        minutes = STAGES[stage].minutes

        def memory(wildcards: Any, attempt: int) -> int:
            shared = STAGES[stage].is_shared
            first = STAGES[stage].memory_mib if shared else STAGES[stage].memory(self._experiments[wildcards.folder])
            return grown(first, attempt, MOST_MIB)

        def runtime(wildcards: Any, attempt: int) -> int:
            return grown(minutes, attempt)

        return {"mem_mb": memory, "runtime": minutes if minutes >= A_DAY else runtime, **others}

    # Trainings

    def of_first_step(self, stage: str) -> dict[str, Any]:
        """Return the resources of the job `data`, which runs one step of the search's training."""
        return self.of(stage, **self._gpu(self._training_device("worker")))

    def of_training(self, stage: str) -> dict[str, Any]:
        """Return the resources of a training: memory, and a GPU on one node, for each of its processes.

        If this machine has fewer GPUs, the training itself says so.
        """
        needs, most = self.of(stage), math.inf if self.elsewhere else self._gpus

        def processes(wildcards: Any) -> int:
            workload = self._workload(wildcards, stage)
            return 1 if workload is None else workload.training.processes

        return {
            **needs,
            "mem_mb": lambda wildcards, attempt: processes(wildcards) * needs["mem_mb"](wildcards, attempt),
            "nodes": 1,
            **self._gpu(self._training_device(stage), lambda wildcards: min(processes(wildcards), most)),
        }

    def training_threads(self, stage: str) -> Callable[[Any], int]:
        """Return a function for the number of cores of a training.

        They are the threads of each training process, and one for each process that loads its data, up to the cores per GPU.
        """

        def threads(wildcards: Any) -> int:
            workload = self._workload(wildcards, stage)
            if workload is None:
                return 1
            computing, loading = workload.training.threads, loading_processes(workload)
            of_each = computing + loading if self._gpus == 1 else max(computing, min(computing + loading, self._cores_of_a_gpu))
            return workload.training.processes * of_each

        return threads

    def _workload(self, wildcards: Any, stage: str) -> WorkloadSettings | None:
        """Return the workload of a training: with the settings of the stage `train`, or of the search."""
        experiment = self._experiments[wildcards.folder]
        is_trained = experiment.workload is not None and stage in ("train", "rival")
        return settings_of_training(experiment) if is_trained else experiment.workload

    def _training_device(self, stage: str) -> Callable[[Any], str]:
        def device(wildcards: Any) -> str:
            workload = self._workload(wildcards, stage)
            return "cpu" if workload is None else workload.training.device

        return device

    # Measurements

    def of_measurement(self, stage: str) -> dict[str, Any]:
        """Return the resources of a measurement of a network with a compiler: its time limit, and exclusive devices."""
        return self._measured(stage, 1)

    def of_layers(self, stage: str) -> dict[str, Any]:
        """Return the resources of a measurement of each size of the layers of a network, or of several networks."""
        return self._measured(stage, LAYERS)

    def of_speed(self, stage: str) -> dict[str, Any]:
        """Return the resources of a measurement of the speed of training."""
        return self.of(stage, **self._gpu(self._local_device))

    def _measured(self, stage: str, times: int) -> dict[str, Any]:
        def runtime(wildcards: Any) -> int:
            return math.ceil(times * self._experiments[wildcards.folder].tune.time_limit_seconds / 60) + AROUND_TUNING

        return self.of(stage, runtime=runtime, **self._gpu(self._local_device), **self._measured_alone)

    def measuring_threads(self, wildcards: Any) -> int:
        """Return the number of threads of a measurement: all cores of this machine, so that it runs alone.

        On one of several GPUs, it gets the cores per GPU, and on a cluster the threads in the settings. While a
        machine that is reached by ssh measures, this one only waits.
        """
        settings = self._experiments[wildcards.folder].tune
        if isinstance(settings.device(self.device(wildcards), self.compiler(wildcards)), SshSettings):
            return 1
        least = max(settings.latency.threads, settings.tvm.builders)
        if self.elsewhere:
            return least
        return self._cores if self._local_device(wildcards) == "cpu" else max(least, self._cores_of_a_gpu)

    def speed_threads(self, wildcards: Any) -> int:
        """Return the number of threads for measuring the speed of training; on a cluster, the threads of a training."""
        if self.elsewhere:
            return self.training_threads("train")(wildcards)
        least = self._experiments[wildcards.folder].tune.latency.threads
        return self._cores if self._local_device(wildcards) == "cpu" else max(least, self._cores_of_a_gpu)

    def device(self, wildcards: Any) -> str:
        """Return the device of a measurement job, from its wildcards."""
        return device_named(self._experiments[wildcards.folder], wildcards.device)

    def compiler(self, wildcards: Any) -> str:
        """Return the compiler of a measurement job, from its wildcards."""
        return compiler_in_files(self._experiments[wildcards.folder], wildcards.compiler)

    def _local_device(self, wildcards: Any) -> str:
        """Return the device of this machine on which a measurement runs; "cpu" if it is on a remote device."""
        device = self.device(wildcards)
        return device if is_here(device) else "cpu"

    def _gpu(self, device: Callable[[Any], str], count: Callable[[Any], float] = lambda wildcards: 1) -> dict[str, Any]:
        """Return the GPUs of a job as resources, by functions of the wildcards: its device, and the number of GPUs.

        The resources are the number of GPUs, and each GPU that the settings name by index.
        """
        numbered = {resource_name(gpu): lambda wildcards, gpu=gpu: int(device(wildcards) == gpu) for gpu in self._numbered}
        return {"gpu": lambda wildcards: count(wildcards) if device(wildcards).startswith("cuda") else 0, **numbered}

    def _shared_by_measurements(self) -> Iterator[tuple[str, Callable[[Any], int]]]:
        """Yield the resources that one measurement uses at a time: a remote device, and a tuner's trials on a device."""
        measured = [
            (folder, experiment, *pair)
            for folder, experiment in self._experiments.items()
            if has_operators(experiment) and experiment.workload is not None  # otherwise nothing is measured
            for pair in _measured_pairs(experiment)
        ]
        for place in sorted({_place(experiment, device) or "" for _, experiment, _, device in measured} - {""}):
            yield resource_name("device", place), self._uses_place(place)
        for folder, _, compiler, device in measured:
            if compiler_facts(compiler).tunes:
                yield resource_name("trials", folder, device), self._uses_trials(folder, device)

    def _uses_place(self, place: str) -> Callable[[Any], int]:
        return lambda wildcards: int(_place(self._experiments[wildcards.folder], self.device(wildcards)) == place)

    def _uses_trials(self, folder: str, device: str) -> Callable[[Any], int]:
        return lambda wildcards: int(
            (wildcards.folder, self.device(wildcards)) == (folder, device) and compiler_facts(self.compiler(wildcards)).tunes
        )


def resource_name(*parts: str) -> str:
    """Return the parts joined to a name that Snakemake accepts for a resource."""
    return "_".join(re.sub(r"[^0-9A-Za-z]", "_", part) for part in parts)


def _local_devices(experiment: Experiment) -> set[str]:
    """Return the devices of this machine on which an experiment trains and measures."""
    if experiment.workload is None:
        return set()
    trained = {experiment.workload.training.device, settings_of_training(experiment).training.device}
    return trained | {device for _, device in _measured_pairs(experiment) if is_here(device)}


def _measured_pairs(experiment: Experiment) -> dict[tuple[str, str], None]:
    """Return the pairs (compiler, device) with which an experiment measures latencies."""
    of_goal = () if experiment.goal_pair is None else (experiment.goal_pair,)
    return dict.fromkeys((*experiment.tune.pairs, *experiment.tune.original_pairs, *of_goal))


def _place(experiment: Experiment, device: str) -> str | None:
    """Return the key of a remote device at its tracker, or its host for ssh; None for a device of this machine."""
    return None if is_here(device) else place_of(device, experiment.tune.remote_devices[device])
