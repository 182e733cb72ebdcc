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

# The GPUs of this machine that a process may use, found without PyTorch.
#
# CUDA reads the environment variable CUDA_VISIBLE_DEVICES once, when it is first used in a process. Therefore GPUs are found by
# NVIDIA's `nvidia-smi`, or by the driver's files in /proc. Where both are missing, as with AMD's GPUs, PyTorch must be asked.


VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
DRIVER_FILES = Path("/proc/driver/nvidia/gpus")  # a folder for each GPU, named by its place on the PCI bus
PATIENCE_SECONDS = 60  # for a driver that first has to wake up eight GPUs
GPU_LINE = re.compile(r"GPU (\d+): (.*) \(UUID: ([^)]+)\)")
PART_LINE = re.compile(r" +MIG .*\(UUID: ([^)]+)\)")
ASK_PYTORCH = "import torch; print(*(torch.cuda.get_device_properties(i).uuid for i in range(torch.cuda.device_count())))"


@dataclass(frozen=True)
class Gpu:
    """A GPU, or one of the parts (MIG instances) into which a GPU is divided.

    Attributes:
        name: what CUDA_VISIBLE_DEVICES calls it: its UUID, or its number where the driver doesn't tell the UUID.
        model: such as "NVIDIA A100-SXM4-80GB"; "" if it is unknown.
        parts: names of the parts, if it is divided.
    """

    name: str
    model: str = ""
    parts: tuple[str, ...] = ()


def visible_gpus(visible: str | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs that a process may use, in CUDA's order: number 1 is PyTorch's `cuda:1`. None if the driver tells none.

    Args:
        visible: the value of CUDA_VISIBLE_DEVICES; by default the one of this process, if it is set. It has numbers, UUIDs, or
            beginnings of UUIDs. As for CUDA, the list ends at the first name that is unknown.
    """
    given = os.environ.get(VISIBLE) if visible is None else visible
    installed = _installed(os.environ.get("PATH", ""))
    if len({one.model for one in installed}) > 1 and os.environ.get(ORDER) != "PCI_BUS_ID":
        installed = _fastest_first(installed)
    whole = [part for one in installed for part in _parts(one)]
    if given is None:
        return tuple(whole)
    found: list[Gpu] = []
    for name in (text.strip() for text in given.split(",")):
        one = _gpu_of_name(name, installed, whole)
        if one is None:
            break
        found.append(one)
    return tuple(found) if len(set(found)) == len(found) else ()  # CUDA sees none if one is named twice


def _parts(gpu: Gpu) -> list[Gpu]:
    """Return the MIG instances of a GPU, or the GPU itself if it has none."""
    return [Gpu(part, gpu.model) for part in gpu.parts] or [gpu]


def _gpu_of_name(name: str, installed: Sequence[Gpu], whole: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU that a name in CUDA_VISIBLE_DEVICES means; None if there is none. The number of a divided GPU means its
    first part."""
    if name.isdecimal():
        return _parts(installed[int(name)])[0] if int(name) < len(installed) else None
    if name.startswith("MIG-GPU-"):  # GPU's UUID/instance/instance, as older drivers have it, which they don't list
        return Gpu(name)
    beginning = [one for one in (*whole, *installed) if name and one.name.startswith(name)]
    return _parts(beginning[0])[0] if len(set(beginning)) == 1 else None


@cache
def _installed(path: str) -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's driver lists, in the order of the PCI bus. `path` is where programs are looked for."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
        return parse_list(done.stdout)
    except (OSError, subprocess.SubprocessError):
        return _gpus_in_driver_files(DRIVER_FILES)


def parse_list(printed: str) -> tuple[Gpu, ...]:
    """Return the GPUs that `nvidia-smi -L` printed."""
    found: list[Gpu] = []
    for line in printed.splitlines():
        if gpu := GPU_LINE.match(line):
            found.append(Gpu(gpu[3], gpu[2]))
        elif found and (part := PART_LINE.match(line)):
            found[-1] = Gpu(found[-1].name, found[-1].model, (*found[-1].parts, part[1]))
    return tuple(found)


def _gpus_in_driver_files(folder: Path) -> tuple[Gpu, ...]:
    """Return the GPUs that the driver's files describe; none if there are no such files."""
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(folder.glob("*/information"))]
    fields = [dict(re.findall(r"^(.+?):\s*(.*)$", text, re.MULTILINE)) for text in texts]
    found = tuple(Gpu(one.get("GPU UUID", ""), one.get("Model", "")) for one in fields)
    known = all(re.fullmatch(r"GPU-[0-9a-f-]+", one.name) for one in found)  # it has "?" while a GPU sleeps
    return found if known else ()


@cache
def _fastest_first(installed: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return GPUs of different models in CUDA's order, which begins with the fastest. Another process asks PyTorch for it."""
    unset = {name: value for name, value in os.environ.items() if name != VISIBLE}
    try:
        command = [sys.executable, "-c", ASK_PYTORCH]
        done = subprocess.run(command, env=unset, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return installed
    order = [f"GPU-{uuid.removeprefix('GPU-')}" for uuid in done.stdout.split()]
    if {one.name for one in installed} != set(order):
        return installed
    return tuple(sorted(installed, key=lambda one: order.index(one.name)))


def counted_by_pytorch() -> tuple[Gpu, ...]:
    """Return the GPUs that PyTorch counts, by their names in CUDA_VISIBLE_DEVICES or else by their numbers."""
    import torch

    count, given = torch.cuda.device_count(), os.environ.get(VISIBLE)
    names = [str(number) for number in range(count)] if given is None else [text.strip() for text in given.split(",")]
    return tuple(Gpu(name) for name in names[:count])


DEVICE_PATTERN = r"^(cpu|cuda(:\d+)?)$"


def require_device(name: str, setting: str = "the device") -> None:
    """Check that this machine has a device, before work that takes long. PyTorch is loaded only to count GPUs.

    Args:
        name: the device.
        setting: what names it, as messages call it, such as "training.device".

    Raises MissingDeviceError, which is a SpecError: no device is called so, or this machine doesn't have it.
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
    """Return whether PyTorch was built for GPUs: by the file of its version, since loading PyTorch takes seconds."""
    spec = find_spec("torch")
    file = None if spec is None or spec.origin is None else Path(spec.origin).with_name("version.py")
    found = {"cuda": ""} if file is None or not file.is_file() else run_path(str(file))
    return found.get("cuda") is not None or found.get("hip") is not None


def gpu_number(name: str, setting: str = "the device") -> int | None:
    """Return the number of a GPU, 0 for "cuda"; None for "cpu". Raises MissingDeviceError for other names."""
    if not re.fullmatch(DEVICE_PATTERN, name):
        raise MissingDeviceError(f'{setting} is "{name}"; it must be "cpu", "cuda", or one of several GPUs such as "cuda:1"')
    kind, _, number = name.partition(":")
    return int(number or 0) if kind == "cuda" else None


def check_number(name: str, count: int, setting: str = "the device") -> None:
    """Raise MissingDeviceError if a device is a GPU, and not one of the `count` GPUs that this process sees."""
    if (gpu_number(name, setting) or 0) >= count:
        found = f"PyTorch finds {count} GPUs here, cuda:0 to cuda:{count - 1}" if count else "PyTorch finds no GPU here"
        raise MissingDeviceError(f'{setting} is "{name}", but {found}; take the device cpu, or a machine that has this one')


def usable_cores() -> int:
    """Return the number of processor cores that this process may use.

    The least of three limits: its CPU affinity, the quota of its control groups (containers), and `SLURM_CPUS_PER_TASK`.
    """
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [math.ceil(quota) for quota in _quotas(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return max(1, min([found, *limits, *([int(given)] if given.isdecimal() else [])]))


def _quotas(of_process: Path, root: Path) -> Iterator[float]:
    """Yield the limits in cores of the control groups of this process, of version 1 or 2: of its own group and all above it.

    In a container, its own group is often the root of what it sees.
    """
    groups = {"": ""}  # places by controllers; version 2 has one group, whose controllers are not named
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
