# The resources of jobs: memory in MiB, runtime in minutes, cores, GPUs. Schedulers of clusters use them. A profile has the settings of a
# site. Each new attempt of a failed job gets more memory and time.
import math

from syno.base.devices import visible_gpus
from syno.stages.data import loading_processes
from syno.stages.train import settings_of_training

ALL_CORES = workflow.resource_settings.cores or 1
CONVERTING_THREADS = 16 if ELSEWHERE else min(ALL_CORES, 16)  # with 16, ImageNet takes hours
LAYERS = 10  # of different sizes in a network, as ResNet-34 has; a job that needs more time goes on in its next attempt
AROUND_TUNING = 30  # minutes for loading the network, and for loading it again after a failure
# Attempts after a failure. Within a job of a cluster there are none: the workflow that submitted the job starts it again, with more memory.
RETRIES = int(workflow.is_main_process)


def growing(first):
    """Return a resource that is `first` in the first attempt and doubles in each new attempt, up to eight times `first`."""
    return lambda wildcards, attempt: grown(first, attempt)


def needs_of(stage, **others):
    """Return the memory and the runtime of a stage, together with other resources; trainings need what their workload needs."""
    minutes = STAGES[stage].minutes

    def memory(wildcards, attempt):
        shared = STAGES[stage].is_shared
        first = STAGES[stage].memory_mib if shared else STAGES[stage].memory(EXPERIMENTS[wildcards.folder])
        return grown(first, attempt, MOST_MIB)

    return {"mem_mb": memory, "runtime": minutes if minutes >= A_DAY else growing(minutes), **others}


def local_devices(experiment):
    """Return the devices of this machine on which an experiment trains and measures."""
    if experiment.workload is None:
        return set()
    trained = {experiment.workload.training.device, settings_of_training(experiment).training.device}
    return trained | {device for _, device in measured_pairs(experiment) if is_here(device)}


def measured_pairs(experiment):
    """Return the pairs (compiler, device) with which an experiment measures latencies."""
    of_goal = () if experiment.goal_pair is None else (experiment.goal_pair,)
    return dict.fromkeys((*experiment.tune.pairs, *experiment.tune.original_pairs, *of_goal))


DEVICES = set().union(*map(local_devices, filter(has_operators, EXPERIMENTS.values())))
# A job on a GPU leases one of those of this machine (syno/base/gpu_leases.py). They are counted here, unless `--resources gpu=N` is given.
# A job of a cluster has the GPUs that its scheduler gives it.
if not ELSEWHERE and workflow.is_main_process and DEVICES - {"cpu"} and visible_gpus():
    workflow.global_resources.setdefault("gpu", len(visible_gpus()))
GPUS = 1 if ELSEWHERE or "gpu" not in workflow.global_resources else workflow.global_resources["gpu"].value
CORES_OF_A_GPU = max(1, ALL_CORES // max(1, GPUS))  # a job on a GPU leaves the other cores to jobs on other GPUs
if GPUS > 1:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(CORES_OF_A_GPU))  # otherwise it takes all cores
# GPUs that settings name by number are resources, too, so that jobs for the same one run one after another.
NUMBERED = [] if ELSEWHERE else sorted(DEVICES - {"cpu", "cuda"})


def workload_of(wildcards, of_stage=None):
    """Return the workload of a training: of the stage `train`, or of the search."""
    experiment = EXPERIMENTS[wildcards.folder]
    return settings_of_training(experiment) if experiment.workload and of_stage in ("train", "rival") else experiment.workload


def training_threads(of_stage):
    """Return a function for the number of cores of a training: the threads of each of its processes, and one for each process that
    loads data for it, as far as they fit in the part of a GPU."""

    def threads(wildcards):
        workload = workload_of(wildcards, of_stage)
        if workload is None:
            return 1
        computing, loading = workload.training.threads, loading_processes(workload)
        of_each = computing + loading if GPUS == 1 else max(computing, min(computing + loading, CORES_OF_A_GPU))
        return workload.training.processes * of_each

    return threads


def training_needs(stage):
    """Return the resources of a training: memory, and a GPU on one node, for each of its processes. If this machine has fewer GPUs,
    the training itself says so."""
    needs, of_stage = needs_of(stage), training_processes(stage)
    most = math.inf if ELSEWHERE else GPUS
    return {
        **needs,
        "mem_mb": lambda wildcards, attempt: of_stage(wildcards) * needs["mem_mb"](wildcards, attempt),
        "nodes": 1,
        **gpus_of(training_device(stage), lambda wildcards: min(of_stage(wildcards), most)),
    }


def training_processes(of_stage):
    """Return a function for the number of processes that train one network together."""

    def processes(wildcards):
        workload = workload_of(wildcards, of_stage)
        return 1 if workload is None else workload.training.processes

    return processes


def training_device(of_stage):
    """Return a function for the device of a training."""

    def device(wildcards):
        workload = workload_of(wildcards, of_stage)
        return "cpu" if workload is None else workload.training.device

    return device


def tuning_threads(wildcards):
    """Return the number of threads of a measurement: all cores of this machine, so that it runs alone. On one of several GPUs, it has
    the GPU's part of the cores, and on a cluster the threads in the settings. While a machine that is reached by ssh measures, this
    one only waits."""
    settings = EXPERIMENTS[wildcards.folder].tune
    if isinstance(settings.device(tuned_device(wildcards), tuned_compiler(wildcards)), SshSettings):
        return 1
    least = max(settings.latency.threads, settings.tvm.builders)
    if ELSEWHERE:
        return least
    return ALL_CORES if local_device(wildcards) == "cpu" else max(least, CORES_OF_A_GPU)


def speed_threads(wildcards):
    """Return the number of threads for measuring the speed of training, as for latencies; on a cluster those of a training."""
    settings = EXPERIMENTS[wildcards.folder].tune
    if ELSEWHERE:
        return training_threads("train")(wildcards)
    return ALL_CORES if local_device(wildcards) == "cpu" else max(settings.latency.threads, CORES_OF_A_GPU)


def local_device(wildcards):
    """Return the device of this machine on which a measurement runs; "cpu" if it is on a remote device."""
    return tuned_device(wildcards) if is_here(tuned_device(wildcards)) else "cpu"


def gpus_of(device, count=lambda wildcards: 1):
    """Return the GPUs of a job as resources, by functions for its device and their number: this number, and each GPU that is named by
    its own."""
    numbered = {resource_name(one): lambda wildcards, one=one: int(device(wildcards) == one) for one in NUMBERED}
    return {"gpu": lambda wildcards: count(wildcards) if device(wildcards).startswith("cuda") else 0, **numbered}


def tuning_minutes(wildcards):
    """Return the minutes of a measurement: its time limit plus `AROUND_TUNING`."""
    return math.ceil(EXPERIMENTS[wildcards.folder].tune.time_limit_seconds / 60) + AROUND_TUNING


def layers_minutes(wildcards):
    """Return the minutes of a measurement of layers: `LAYERS` time limits plus `AROUND_TUNING`."""
    return math.ceil(LAYERS * EXPERIMENTS[wildcards.folder].tune.time_limit_seconds / 60) + AROUND_TUNING


def place_of_device(experiment, device):
    """Return the key of a remote device at its tracker, or its host for ssh; None for a device of this machine."""
    return None if is_here(device) else place_of(device, experiment.tune.remote_devices[device])


def share_of_devices(place):
    """Return the number of devices with this key at a tracker, or this host, that a measurement uses, as a resource."""
    return lambda wildcards: int(place_of_device(EXPERIMENTS[wildcards.folder], tuned_device(wildcards)) == place)


def share_of_trials(folder, device):
    """Return a resource that is 1 for measurements that share trials of a tuner on a device, so that they run one after another."""
    return lambda wildcards: int(
        (wildcards.folder, tuned_device(wildcards)) == (folder, device) and compiler_facts(tuned_compiler(wildcards)).tunes
    )


def resource_name(*parts):
    """Return a name that Snakemake accepts for a resource."""
    return "_".join(re.sub(r"[^0-9A-Za-z]", "_", part) for part in parts)


# Resources that only one measurement uses at a time. `--resources device_KEY=3` states that a key has three remote devices. For ssh it
# is device_HOST.
MEASURED_PAIRS = [
    (folder, one, compiler, device)
    for folder, one in EXPERIMENTS.items()
    if has_operators(one) and one.workload is not None  # otherwise nothing is measured
    for compiler, device in measured_pairs(one)
]
SHARED = {
    **{
        resource_name("device", place): share_of_devices(place)
        for place in sorted({place_of_device(one, device) or "" for _, one, _, device in MEASURED_PAIRS} - {""})
    },
    **{
        resource_name("trials", folder, device): share_of_trials(folder, device)
        for folder, _, compiler, device in MEASURED_PAIRS
        if compiler_facts(compiler).tunes
    },
}
for shared in [*SHARED, *map(resource_name, NUMBERED)]:
    workflow.global_resources.setdefault(shared, 1)


def resources_of(kind):
    """Return the resources of the jobs of a kind of measurements."""
    if not kind.has_compiler:
        return needs_of(kind.name, **gpus_of(local_device))
    minutes = layers_minutes if kind.is_by_layer else tuning_minutes
    return needs_of(kind.name, runtime=minutes, **gpus_of(local_device), **SHARED)


# If a profile groups the figures of an experiment into one job, they are drawn one after another.
if ELSEWHERE:
    workflow.global_resources.setdefault("drawing", 1)


resource_scopes:
    drawing="local",
