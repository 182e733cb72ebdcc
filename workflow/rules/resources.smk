# The resources of jobs: memory in MiB, runtime in minutes, cores, GPUs. Schedulers of clusters use them; settings of a site are in a
# profile. Each new attempt of a failed job gets more memory and time.
import math

ELSEWHERE = workflow.resource_settings.cores is None  # on the nodes of a cluster, each of which has cores of its own
ALL_CORES = workflow.resource_settings.cores or 1
CONVERTING_THREADS = 16 if ELSEWHERE else min(ALL_CORES, 16)  # ImageNet takes hours on 16
AROUND_TUNING = 30  # minutes for loading the network, and another one after a failure
# Attempts after a failure. None within a job of a cluster: the workflow that submitted the job starts it again, with more memory.
RETRIES = int(workflow.is_main_process)


def growing(first):
    """Return a resource: `first` in the first attempt, twice as much in each new one, at most eight times as much."""
    return lambda wildcards, attempt: first * 2 ** min(attempt - 1, 3)


def needs_of(stage, **others):
    """Return memory and runtime of a stage, and other resources."""
    memory, minutes = STAGES[stage].memory_mib, STAGES[stage].minutes
    return {"mem_mb": growing(memory), "runtime": minutes if minutes >= A_DAY else growing(minutes), **others}


def training_threads(wildcards):
    """Return the threads of a training."""
    workload = EXPERIMENTS[wildcards.folder].workload
    return 1 if workload is None else workload.training.threads


def training_gpus(wildcards):
    """Return the GPUs of a training: with `--resources gpu=1`, only one that needs a GPU runs at a time."""
    workload = EXPERIMENTS[wildcards.folder].workload
    return int(workload is not None and workload.training.device.startswith("cuda"))


def tuning_threads(wildcards):
    """Return the threads of a measurement: all cores of this machine; elsewhere those that the settings name."""
    settings = EXPERIMENTS[wildcards.folder].tune
    return max(settings.latency.threads, settings.tvm.builders) if ELSEWHERE else ALL_CORES


def tuning_gpus(wildcards):
    """Return the GPUs of a measurement. One on a remote device needs none here."""
    return int(is_here(tuned_device(wildcards)) and tuned_device(wildcards) != "cpu")


def tuning_minutes(wildcards):
    """Return the minutes of a measurement: its time limit, and some around it."""
    return math.ceil(EXPERIMENTS[wildcards.folder].tune.time_limit_seconds / 60) + AROUND_TUNING


def key_at_tracker(experiment, device):
    """Return the key of a remote device at its tracker; None for a device of this machine."""
    remote = None if is_here(device) else experiment.tune.remote_devices[device]
    return None if remote is None else remote.key or device


def share_of_devices(key):
    """Return a resource: how many devices with this key at a tracker a measurement takes."""
    return lambda wildcards: int(key_at_tracker(EXPERIMENTS[wildcards.folder], tuned_device(wildcards)) == key)


def share_of_trials(folder, device):
    """Return a resource: 1 for measurements that share trials of a tuner on a device, which run one after another."""
    return lambda wildcards: int(
        (wildcards.folder, tuned_device(wildcards)) == (folder, device) and compiler_named(tuned_compiler(wildcards)).tunes
    )


def resource_name(*parts):
    """Return a name that Snakemake accepts for a resource."""
    return "_".join(re.sub(r"[^0-9A-Za-z]", "_", part) for part in parts)


# Resources that measurements share, one at a time. `--resources device_KEY=3` says that there are three remote devices of a key.
MEASURED = [
    (folder, one, compiler, device)
    for folder, one in EXPERIMENTS.items()
    if one.workload is not None  # else nothing is measured
    for compiler, device in one.tune.pairs
]
SHARED = {
    **{
        resource_name("device", key): share_of_devices(key)
        for key in sorted({key_at_tracker(one, device) or "" for _, one, _, device in MEASURED} - {""})
    },
    **{
        resource_name("trials", folder, device): share_of_trials(folder, device)
        for folder, _, compiler, device in MEASURED
        if compiler_named(compiler).tunes
    },
}
for shared in SHARED:
    workflow.global_resources.setdefault(shared, 1)

# Where a profile groups the figures of an experiment into one job, they are drawn one after another.
if ELSEWHERE:
    workflow.global_resources.setdefault("drawing", 1)


resource_scopes:
    drawing="local",
