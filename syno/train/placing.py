"""The device that a training runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from syno.base.errors import MissingDeviceError, TrainingError


def check_device(name: str) -> torch.device:
    """Return the device of this name. MissingDeviceError if this machine has none."""
    device = torch.device(name)
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= count:
        there = f"it has {count} GPUs" if count else "PyTorch finds no GPU here"
        raise MissingDeviceError(f'training.device is "{name}", but {there}; give device: cpu, or run it where there is one')
    return device


@contextmanager
def on_device(name: str) -> Iterator[torch.device]:
    """The device of this name. What a training held there is returned at the end, however it ends.

    Raises MissingDeviceError if there is none, TrainingError if its memory does not suffice.
    """
    device = check_device(name)
    try:
        yield device
    except torch.OutOfMemoryError as error:
        first = str(error).split(". ", maxsplit=1)[0]
        raise TrainingError(f"out of memory on {name}: {first}; give a smaller batch") from None
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
