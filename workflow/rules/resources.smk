# The resources of jobs: memory in MiB, runtime in minutes, cores, GPUs. Schedulers of clusters use them. A profile has the settings of a
# site. Each new attempt of a failed job gets more memory and time.
import math

ELSEWHERE = workflow.resource_settings.cores is None  # jobs run on nodes of a cluster, each with its own cores
ALL_CORES = workflow.resource_settings.cores or 1
CONVERTING_THREADS = 16 if ELSEWHERE else min(ALL_CORES, 16)  # with 16, ImageNet takes hours
AROUND_TUNING = 30  # minutes for loading the network, and for loading it again after a failure
# Attempts after a failure. Within a job of a cluster there are none: the workflow that submitted the job starts it again, with more memory.
RETRIES = int(workflow.is_main_process)


def growing(first):
    """Return a resource that is `first` in the first attempt and doubles in each new attempt, up to eight times `first`."""
    return lambda wildcards, attempt: first * 2 ** min(attempt - 1, 3)


def needs_of(stage, **others):
    """Return the memory and the runtime of a stage, together with other resources."""
    memory, minutes = STAGES[stage].memory_mib, STAGES[stage].minutes
    return {"mem_mb": growing(memory), "runtime": minutes if minutes >= A_DAY else growing(minutes), **others}


def training_threads(wildcards):
    """Return the number of threads of a training."""
    workload = EXPERIMENTS[wildcards.folder].workload
    return 1 if workload is None else workload.training.threads


def training_gpus(wildcards):
    """Return the number of GPUs of a training. With `--resources gpu=1`, only one job that needs a GPU runs at a time."""
    workload = EXPERIMENTS[wildcards.folder].workload
    return int(workload is not None and workload.training.device.startswith("cuda"))


def tuning_threads(wildcards):
    """Return the number of threads of a measurement: all cores of this machine, or the threads in the settings on a cluster."""
    settings = EXPERIMENTS[wildcards.folder].tune
    return max(settings.latency.threads, settings.tvm.builders) if ELSEWHERE else ALL_CORES


def speed_threads(wildcards):
    """Return the number of threads for measuring the speed of training: all cores of this machine, or those of a training on a cluster."""
    return training_threads(wildcards) if ELSEWHERE else ALL_CORES


def tuning_gpus(wildcards):
    """Return the number of GPUs of a measurement. A measurement on a remote device needs no local GPU."""
    return int(is_here(tuned_device(wildcards)) and tuned_device(wildcards) != "cpu")


def tuning_minutes(wildcards):
    """Return the minutes of a measurement: its time limit plus `AROUND_TUNING`."""
    return math.ceil(EXPERIMENTS[wildcards.folder].tune.time_limit_seconds / 60) + AROUND_TUNING


def key_at_tracker(experiment, device):
    """Return the key of a remote device at its tracker; None for a device of this machine."""
    remote = None if is_here(device) else experiment.tune.remote_devices[device]
    return None if remote is None else remote.key or device


def share_of_devices(key):
    """Return the number of devices with this key at a tracker that a measurement uses, as a resource."""
    return lambda wildcards: int(key_at_tracker(EXPERIMENTS[wildcards.folder], tuned_device(wildcards)) == key)


def share_of_trials(folder, device):
    """Return a resource that is 1 for measurements that share trials of a tuner on a device, so that they run one after another."""
    return lambda wildcards: int(
        (wildcards.folder, tuned_device(wildcards)) == (folder, device) and compiler_named(tuned_compiler(wildcards)).tunes
    )


def resource_name(*parts):
    """Return a name that Snakemake accepts for a resource."""
    return "_".join(re.sub(r"[^0-9A-Za-z]", "_", part) for part in parts)


# Resources that only one measurement uses at a time. `--resources device_KEY=3` states that a key has three remote devices.
MEASURED = [
    (folder, one, compiler, device)
    for folder, one in EXPERIMENTS.items()
    if one.workload is not None  # otherwise nothing is measured
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

# If a profile groups the figures of an experiment into one job, they are drawn one after another.
if ELSEWHERE:
    workflow.global_resources.setdefault("drawing", 1)


resource_scopes:
    drawing="local",
