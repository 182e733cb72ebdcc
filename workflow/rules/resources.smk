# What jobs need: memory in MiB, runtime in minutes, cores, GPUs. Schedulers of clusters go by it; what differs from site to site
# is in a profile. A job that failed is given more of what it may have lacked.
import math

ELSEWHERE = workflow.resource_settings.cores is None  # on the nodes of a cluster, each of which has cores of its own
ALL_CORES = workflow.resource_settings.cores or 1
CONVERTING_THREADS = 16 if ELSEWHERE else min(ALL_CORES, 16)  # for ImageNet's pictures: hours on so many
A_DAY = 24 * 60
AROUND_TUNING = 30  # minutes: the network is loaded, and another one after a failure
# How often what failed goes on. Within a job of a cluster not at all: who sent it starts it again, with more memory.
RETRIES = int(workflow.is_main_process)


def growing(first):
    """A resource: so much in the first attempt, twice as much in each new one, eight times at most."""
    return lambda wildcards, attempt: first * 2 ** min(attempt - 1, 3)


def training_threads(wildcards):
    """Of a training."""
    workload = EXPERIMENTS[wildcards.folder].workload
    return 1 if workload is None else workload.training.threads


def training_gpus(wildcards):
    """Of a training: `--resources gpu=1` lets no two run at once that need one."""
    workload = EXPERIMENTS[wildcards.folder].workload
    return int(workload is not None and workload.training.device.startswith("cuda"))


def tuning_threads(wildcards):
    """Of a measurement. Here it has the machine to itself; elsewhere, as many as it says it uses."""
    settings = EXPERIMENTS[wildcards.folder].tune
    return max(settings.latency.threads, settings.tvm.builders) if ELSEWHERE else ALL_CORES


def tuning_gpus(wildcards):
    """Of a measurement; one on a remote device needs none here."""
    return int(is_here(tuned_device(wildcards)) and tuned_device(wildcards) != "cpu")


def tuning_minutes(wildcards):
    """Of a measurement: its limit of time, and what is around it."""
    return math.ceil(EXPERIMENTS[wildcards.folder].tune.time_limit_seconds / 60) + AROUND_TUNING


def key_at_tracker(experiment, device):
    """The key by which a tracker knows a remote device; None for one of this machine."""
    remote = None if is_here(device) else experiment.tune.remote_devices[device]
    return None if remote is None else remote.key or device


def share_of_devices(key):
    """A resource: how many of the devices with this key at a tracker a measurement takes."""
    return lambda wildcards: int(key_at_tracker(EXPERIMENTS[wildcards.folder], tuned_device(wildcards)) == key)


def share_of_trials(folder, device):
    """A resource: whether a measurement is one of those that share trials on a device, and so come one after another."""
    return lambda wildcards: int(
        (wildcards.folder, tuned_device(wildcards)) == (folder, device) and compiler_named(tuned_compiler(wildcards)).tunes
    )


def resource_name(*parts):
    """What Snakemake takes for a name."""
    return "_".join(re.sub(r"[^0-9A-Za-z]", "_", part) for part in parts)


# What measurements share, one at a time. `--resources device_KEY=3` says that there are three remote devices of this key.
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

# Figures of an experiment are one job where a profile puts them into a group. Then they are drawn one after another.
if ELSEWHERE:
    workflow.global_resources.setdefault("drawing", 1)


resource_scopes:
    drawing="local",
