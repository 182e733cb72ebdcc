"""Leases of GPUs: a process that computes on a GPU of this machine has one that no other process computes on.

>>> with leased("cpu") as gpu:  # for "cuda", it is a GPU, and CUDA_VISIBLE_DEVICES names it
...     print(gpu)
None

A lease is a lock on a file. Children that inherit its descriptor compute in the same lease: if their parent is killed, the GPU
is free again when they have ended, too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from syno.base.devices import check_number, gpu_number
from syno.base.files import name_from
from syno.base.gpu_locks import holder, leases_folder, lock
from syno.base.gpus import VISIBLE, Gpu, counted_by_pytorch, visible_gpus
from syno.base.progress import Display, Progress, display

POLL_SECONDS = 1.0  # between two looks for a free GPU


@dataclass(frozen=True)
class Lease:
    """A lease: the GPU, and the descriptor of the locked file."""

    gpu: Gpu
    descriptor: int


_held: Lease | None = None  # the lease of this process
_last: Gpu | None = None  # the GPU of its last lease


@contextmanager
def leased(device: str, setting: str = "the device", *, sleep: Callable[[float], None] = time.sleep) -> Iterator[Gpu | None]:
    """Hold a GPU for this process in the block, if the device is one; wait, with a message, while others hold them all.

    For "cuda", it is the first free GPU of those that this process sees, and CUDA_VISIBLE_DEVICES names only it. For "cuda:1",
    it is this one. A block within another one uses the same lease. Yields None for "cpu", and where leases are turned off.

    Args:
        device: a device of this machine.
        setting: what names it, as messages call it, such as "training.device".
        sleep: waits for a number of seconds, before the next look for a free GPU.

    Raises:
        MissingDeviceError: this machine has no such GPU.
        DeviceError: the folder of leases can't be used.
    """
    global _held, _last
    number, folder = gpu_number(device, setting), leases_folder()
    if number is None or folder is None or _held is not None:
        yield None if number is None or _held is None else _held.gpu
        return
    gpus = visible_gpus() or counted_by_pytorch()
    check_number(device, len(gpus), setting)
    _held = _take(folder, _candidates(device, number, gpus), sleep)
    _last, before = _held.gpu, os.environ.get(VISIBLE)
    os.environ[VISIBLE] = _last.name if device == "cuda" else ",".join(gpu.name for gpu in gpus)
    try:
        yield _last
    finally:
        os.close(_held.descriptor)  # without unlocking: children that go on keep the lease
        _held = None
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


def lease_descriptors() -> tuple[int, ...]:
    """Return the descriptors that a child must inherit to compute in this process's lease, as `pass_fds` of subprocess."""
    return () if _held is None else (_held.descriptor,)


def usage() -> list[tuple[Gpu, str]]:
    """Return the GPUs that this process sees, each with who holds it in words; "" if nobody does."""
    folder = leases_folder()
    return [(gpu, "" if folder is None else holder(_file(folder, gpu))) for gpu in visible_gpus()]


def _candidates(device: str, number: int, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return the GPUs that a lease of the device may be of."""
    if device != "cuda":
        return (gpus[number],)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return gpus
    return (_last or gpus[torch.cuda.current_device()],)  # CUDA has started: the process stays with its GPU


def _file(folder: Path, gpu: Gpu) -> Path:
    return folder / f"{name_from(gpu.name)}.lease"


def _take(folder: Path, candidates: Sequence[Gpu], sleep: Callable[[float], None]) -> Lease:
    """Lock the first free GPU and return the lease. Waits while there is none."""
    with ExitStack() as stack:
        shown: Display | None = None
        while True:
            for gpu in candidates:
                if (descriptor := lock(_file(folder, gpu))) is not None:
                    if shown is not None:
                        shown.show(Waiting.over(gpu))
                    return Lease(gpu, descriptor)
            shown = shown or stack.enter_context(display())
            shown.show(Waiting.of([holder(_file(folder, gpu)) for gpu in candidates]))
            sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Waiting(Progress):
    """The progress of a process that waits for a GPU. `said` is what it waits for, in words."""

    said: str = ""

    @classmethod
    def of(cls, holders: Sequence[str]) -> Waiting:
        """Return the progress while the GPUs have these holders, in words; "" stands for one that has ended meanwhile."""
        used = [one for one in holders if one]
        return cls("waiting for a GPU", 0, 1, 0, said=f"{len(used)} of {len(holders)} are in use, by {'; '.join(used)}")

    @classmethod
    def over(cls, gpu: Gpu) -> Waiting:
        """Return the progress when a GPU has been free."""
        return cls("waiting for a GPU", 1, 1, 0, said=f"{gpu.name} is free now")

    def __str__(self) -> str:
        return f"{self.title}: {self.said}"
