"""The devices of this machine, by PyTorch's names: `cpu`, `cuda`, or one of several GPUs such as `cuda:1`."""

from __future__ import annotations

import re

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
