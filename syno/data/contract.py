"""What all data sets have in common: their names, batches that can be gone on with anywhere, and hashes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from syno.base.registry import Registry

Pair = tuple[torch.Tensor, torch.Tensor]  # float32 pictures [n, channels, height, width], int64 labels [n]


class Batches(Protocol):
    """The batches of a training.

    What a batch is depends on the seed, its epoch and its place there, on nothing that came before: a training that was
    interrupted goes on with the same batches. (FFCV draws crops and flips as it likes; only its order is so.)
    """

    def __len__(self) -> int:
        """How many there are in an epoch; the last one is left out if it is smaller."""
        ...

    def epoch(self, number: int, first: int = 0) -> Iterator[Any]:
        """Those of an epoch, which count from 1, from batch `first` on, which count from 0."""
        ...


class PictureData(Protocol):
    """Pictures with a class each, in memory or not. `hash` is of what they are, before they are changed for training."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def classes(self) -> int: ...  # noqa: D102
    @property
    def hash(self) -> str: ...  # noqa: D102
    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width, as the network gets them."""
        ...

    @property
    def train_count(self) -> int: ...  # noqa: D102
    @property
    def test_count(self) -> int: ...  # noqa: D102

    def train_batches(
        self, batch: int, *, seed: int, device: Any = "cpu", layout: torch.memory_format = torch.contiguous_format
    ) -> Batches:
        """Pairs of `batch` pictures and labels on the device, in a random order, changed at random."""
        ...

    def test_batches(
        self, batch: int, *, device: Any = "cpu", layout: torch.memory_format = torch.contiguous_format
    ) -> Iterable[Pair]:
        """All of those for testing, in their order, as often as it is iterated over; the last batch may be smaller."""
        ...


DATASETS: Registry[Callable[..., Any]] = Registry("data set")  # of functions that make PictureData or a TokenSet


class Orders:
    """A random order of `count` things for each epoch: the permutations that one generator draws one after another."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._rewind()

    def _rewind(self) -> None:
        self._drawn, self._generator = 0, torch.Generator().manual_seed(self.seed)

    def of(self, epoch: int) -> torch.Tensor:
        """The order of an epoch, which count from 1: int64 [count]."""
        if epoch <= self._drawn:
            self._rewind()
        for _ in range(self._drawn, epoch):
            order = torch.randperm(self.count, generator=self._generator)
        self._drawn = epoch
        return order


def generator_of(seed: int, *place: int) -> torch.Generator:
    """Random numbers that depend on the seed and a place, such as an epoch, and on nothing else."""
    state = np.random.SeedSequence([seed % 2**63, *place]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


def content_hash(*tensors: torch.Tensor) -> str:
    """128 bits over the shapes, types and bytes of tensors, as 32 hexadecimal digits."""
    state = blake2b(digest_size=16)
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        state.update(f"{array.dtype}{array.shape}".encode())
        state.update(memoryview(array).cast("B"))
    return state.hexdigest()


def described(files: Sequence[Path]) -> str:
    """Which files these are, as a text that differs when one of them has changed."""
    stats = [(file.name, file.stat()) for file in files]
    return json.dumps([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
