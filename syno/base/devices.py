"""The devices of this machine, by PyTorch's names: `cpu`, `cuda`, or one of several GPUs such as `cuda:1`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from syno.base.errors import MissingDeviceError
from syno.base.gpus import visible_gpus

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
    import torch

    # The driver is asked first: PyTorch may have to start CUDA to count GPUs, and then it is too late to choose one of them.
    usable = torch.version.cuda is not None or torch.version.hip is not None
    check_number(name, (len(visible_gpus()) if usable else 0) or torch.cuda.device_count(), setting)


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
