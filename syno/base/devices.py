"""The devices of this machine, by PyTorch's names: `cpu`, `cuda`, or one of several GPUs such as `cuda:1`."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

from syno.base.errors import MissingDeviceError

# Finds the GPUs that a process may use, without PyTorch.
#
# CUDA reads the environment variable CUDA_VISIBLE_DEVICES once, when it is first used in a process. Therefore GPUs are listed
# by NVIDIA's `nvidia-smi`, or by the driver's files in /proc. If both are missing, as with AMD's GPUs, PyTorch must be asked.


VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
DRIVER_FILES = Path("/proc/driver/nvidia/gpus")  # a folder for each GPU, named by its place on the PCI bus
PATIENCE_SECONDS = 60  # for a driver that first has to wake up eight GPUs
GPU_LINE = re.compile(r"GPU (\d+): (.*) \(UUID: ([^)]+)\)")
PART_LINE = re.compile(r" +MIG .*\(UUID: ([^)]+)\)")
ASK_PYTORCH = "import torch; print(*(torch.cuda.get_device_properties(i).uuid for i in range(torch.cuda.device_count())))"


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG instance (a part into which a GPU is divided).

    Attributes:
        name: the GPU's name in CUDA_VISIBLE_DEVICES: its UUID, or its number if the driver doesn't tell the UUID.
        model: the GPU's model, such as "NVIDIA A100-SXM4-80GB"; "" if it is unknown.
        parts: names of the MIG instances, if the GPU is divided.
    """

    name: str
    model: str = ""
    parts: tuple[str, ...] = ()


def visible_gpus(visible: str | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs that a process may use, in CUDA's order: number 1 is PyTorch's `cuda:1`. Empty if the driver lists none.

    Args:
        visible: the value of CUDA_VISIBLE_DEVICES, by default this process's: numbers, UUIDs, or beginnings of UUIDs. As in
            CUDA, the list ends at the first unknown name.
    """
    names = os.environ.get(VISIBLE) if visible is None else visible
    installed = _installed(os.environ.get("PATH", ""))
    if len({gpu.model for gpu in installed}) > 1 and os.environ.get(ORDER) != "PCI_BUS_ID":
        installed = _fastest_first(installed)
    whole = [part for gpu in installed for part in _parts(gpu)]
    if names is None:
        return tuple(whole)
    selected: list[Gpu] = []
    for name in (text.strip() for text in names.split(",")):
        gpu = _gpu_of_name(name, installed, whole)
        if gpu is None:
            break
        selected.append(gpu)
    return tuple(selected) if len(set(selected)) == len(selected) else ()  # CUDA sees no GPU if a name occurs twice


def _parts(gpu: Gpu) -> list[Gpu]:
    """Return the MIG instances of a GPU, or the GPU itself if it has none."""
    return [Gpu(part, gpu.model) for part in gpu.parts] or [gpu]


def _gpu_of_name(name: str, installed: Sequence[Gpu], whole: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU that a name in CUDA_VISIBLE_DEVICES means; for a divided GPU, its first MIG instance. None if unknown."""
    if name.isdecimal():
        return _parts(installed[int(name)])[0] if int(name) < len(installed) else None
    if name.startswith("MIG-GPU-"):  # "UUID of GPU/instance/instance", the form of older drivers, which don't list it
        return Gpu(name)
    beginning = [gpu for gpu in (*whole, *installed) if name and gpu.name.startswith(name)]
    return _parts(beginning[0])[0] if len(set(beginning)) == 1 else None


@cache
def _installed(path: str) -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's driver lists, in the order of the PCI bus. `path` (PATH) is the key of the cache."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
        return parse_list(done.stdout)
    except (OSError, subprocess.SubprocessError):
        return _gpus_in_driver_files(DRIVER_FILES)


def parse_list(printed: str) -> tuple[Gpu, ...]:
    """Parse the output of `nvidia-smi -L` into GPUs with their MIG instances."""
    gpus: list[Gpu] = []
    for line in printed.splitlines():
        if gpu := GPU_LINE.match(line):
            gpus.append(Gpu(gpu[3], gpu[2]))
        elif gpus and (part := PART_LINE.match(line)):
            gpus[-1] = Gpu(gpus[-1].name, gpus[-1].model, (*gpus[-1].parts, part[1]))
    return tuple(gpus)


def _gpus_in_driver_files(folder: Path) -> tuple[Gpu, ...]:
    """Return the GPUs that the driver's files in `folder` describe; empty without such files, or if a UUID is unknown."""
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(folder.glob("*/information"))]
    fields = [dict(re.findall(r"^(.+?):\s*(.*)$", text, re.MULTILINE)) for text in texts]
    gpus = tuple(Gpu(information.get("GPU UUID", ""), information.get("Model", "")) for information in fields)
    known = all(
        re.fullmatch(r"GPU-[0-9a-f-]+", information.name) for information in gpus
    )  # the UUID has "?" while a GPU sleeps
    return gpus if known else ()


@cache
def _fastest_first(installed: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Sort GPUs of different models as CUDA does, the fastest first. PyTorch, in another process, tells the order."""
    unset = {name: value for name, value in os.environ.items() if name != VISIBLE}
    try:
        command = [sys.executable, "-c", ASK_PYTORCH]
        done = subprocess.run(command, env=unset, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return installed
    order = [f"GPU-{uuid.removeprefix('GPU-')}" for uuid in done.stdout.split()]
    if {gpu.name for gpu in installed} != set(order):
        return installed
    return tuple(sorted(installed, key=lambda gpu: order.index(gpu.name)))


def counted_by_pytorch() -> tuple[Gpu, ...]:
    """Return the GPUs that PyTorch counts, by their names in CUDA_VISIBLE_DEVICES or else by their numbers."""
    import torch

    count, visible = torch.cuda.device_count(), os.environ.get(VISIBLE)
    names = [str(number) for number in range(count)] if visible is None else [text.strip() for text in visible.split(",")]
    return tuple(Gpu(name) for name in names[:count])


DEVICE_PATTERN = r"^(cpu|cuda(:\d+)?)$"


def require_device(name: str, setting: str = "the device") -> None:
    """Check that this machine has a device, before long work begins. PyTorch is loaded only to count GPUs.

    Args:
        name: the device.
        setting: the setting that names the device, for messages, such as "training.device".

    Raises MissingDeviceError (a SpecError) if the name is no device's name, or this machine lacks the device.
    """
    if gpu_number(name, setting) is None:
        return
    if "torch" not in sys.modules and not _is_for_gpus():
        check_number(name, 0, setting)
    import torch

    # The driver is asked first: PyTorch may have to start CUDA to count GPUs, and then it is too late to choose one of them.
    usable = torch.version.cuda is not None or torch.version.hip is not None
    check_number(name, (len(visible_gpus()) if usable else 0) or torch.cuda.device_count(), setting)


def _is_for_gpus() -> bool:
    """Return whether PyTorch was built for GPUs. Reads only its version file, since loading PyTorch takes seconds."""
    spec = find_spec("torch")
    file = None if spec is None or spec.origin is None else Path(spec.origin).with_name("version.py")
    versions = {"cuda": ""} if file is None or not file.is_file() else run_path(str(file))
    return versions.get("cuda") is not None or versions.get("hip") is not None


def gpu_number(name: str, setting: str = "the device") -> int | None:
    """Return the number of the GPU that a device names: 0 for "cuda", None for "cpu". Raises MissingDeviceError for other
    names.
    """
    if not re.fullmatch(DEVICE_PATTERN, name):
        raise MissingDeviceError(f'{setting} is "{name}"; it must be "cpu", "cuda", or one of several GPUs such as "cuda:1"')
    kind, _, number = name.partition(":")
    return int(number or 0) if kind == "cuda" else None


def check_number(name: str, count: int, setting: str = "the device") -> None:
    """Raise MissingDeviceError if a device is a GPU whose number is not below `count`, the number of visible GPUs."""
    if (gpu_number(name, setting) or 0) >= count:
        problem = f"PyTorch finds {count} GPUs here, cuda:0 to cuda:{count - 1}" if count else "PyTorch finds no GPU here"
        raise MissingDeviceError(f'{setting} is "{name}", but {problem}; take the device cpu, or a machine that has this one')


def usable_cores() -> int:
    """Return the number of processor cores that this process may use.

    It is the least of three limits: its CPU affinity, the quota of its control groups (containers), and `SLURM_CPUS_PER_TASK`.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [math.ceil(quota) for quota in _quotas(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]
    of_slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return max(1, min([affinity, *limits, *([int(of_slurm)] if of_slurm.isdecimal() else [])]))


def _quotas(of_process: Path, root: Path) -> Iterator[float]:
    """Yield the CPU quotas, in cores, of this process's control group and of all groups above it (cgroups of version 1 or 2).

    In a container, the process's own group is often the root of the visible tree.
    """
    groups = {"": ""}  # paths by controllers; cgroups of version 2 have one path, without controllers
    with suppress(OSError):
        for line in of_process.read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, place = line.split(":", 2)
            groups[controllers] = place.lstrip("/")
    for controllers, place in groups.items():
        tops = [root] if not controllers else [root / controllers, root / "cpu"] if "cpu" in controllers.split(",") else []
        for folder in dict.fromkeys(top / part for top in tops for part in (place, *map(str, Path(place).parents))):
            with suppress(OSError, ValueError):
                if controllers:
                    quota, period = (
                        (folder / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period")
                    )
                else:
                    quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
                if quota.strip().isdecimal() and int(quota) > 0:  # "max" and -1: there is no limit
                    yield int(quota) / int(period)
