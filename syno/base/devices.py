"""The devices of this machine, by PyTorch's names: `cpu`, `cuda`, or one of several GPUs such as `cuda:1`."""

from __future__ import annotations

import re

from syno.base.errors import MissingDeviceError

DEVICE_PATTERN = r"^(cpu|cuda(:\d+)?)$"


def require_device(name: str, setting: str = "the device") -> None:
    """Check that this machine has a device, before work that takes long. PyTorch is loaded only to count GPUs.

    Args:
        name: the device.
        setting: what names it, as messages call it, such as "training.device".

    Raises MissingDeviceError, which is a SpecError: no device is called so, or this machine doesn't have it.
    """
    if not re.fullmatch(DEVICE_PATTERN, name):
        raise MissingDeviceError(f'{setting} is "{name}"; it must be "cpu", "cuda", or one of several GPUs such as "cuda:1"')
    kind, _, number = name.partition(":")
    if kind == "cuda":
        import torch

        count = torch.cuda.device_count()
        if int(number or 0) >= count:
            found = f"PyTorch finds {count} GPUs here, cuda:0 to cuda:{count - 1}" if count else "PyTorch finds no GPU here"
            raise MissingDeviceError(f'{setting} is "{name}", but {found}; take the device cpu, or a machine that has this one')
