"""Factories of modules, and of what goes wrong with them, for the process that measures."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from syno.measure.compilers import COMPILERS
from syno.measure.job import Job


def small(channels: int = 4) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))


def linear(features: int = 4) -> nn.Module:
    return nn.Linear(features, features, bias=False)


def embedding(symbols: int) -> nn.Module:
    return nn.Embedding(symbols, 4)


def crash() -> nn.Module:
    print("about to leave")
    os._exit(3)


def killed_once(starts: str) -> nn.Module:
    """Kills its process, as the system does where memory is short, the first time; leaves a temporary file, as compilers do."""
    with Path(starts).open("a", encoding="utf-8") as file:
        file.write(f"{tempfile.mkdtemp(prefix='left-behind-')}\n")
    if len(Path(starts).read_text(encoding="utf-8").split()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return linear()


def sleep(process: str | None = None) -> nn.Module:
    """Writes down its process, and sleeps."""
    if process is not None:
        Path(process).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(1000)
    raise AssertionError("it was to be killed")


def broken() -> nn.Module:
    raise RuntimeError("no such weights")


def not_a_module() -> int:
    return 1


class _Changing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x)


def changing() -> nn.Module:
    return _Changing()


class _Decomposition(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x)


def decomposition() -> nn.Module:
    """What TVM has no counterpart of. [N, M] -> [min(N, M)]."""
    return _Decomposition()


COMPILERS.register("test-doubles")(lambda job: lambda x: job.module(x) * 2)


@COMPILERS.register("test-refuses")
def refuses(job: Job) -> nn.Module:
    raise RuntimeError("an operation that is not supported")


def gated(starts: str, gate: str) -> nn.Module:
    """Writes a line into a file, and waits for another file."""
    with Path(starts).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(gate).exists():
        time.sleep(0.02)
    return linear()
