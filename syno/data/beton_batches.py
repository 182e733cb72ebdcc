"""Batches of pictures out of a beton file, decoded by FFCV's threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from syno.data.beton import ffcv
from syno.data.contract import Pair
from syno.data.folder_batches import normalized
from syno.data.settings import ImagenetSettings

LARGEST_SEED = 2**31


@dataclass(frozen=True)
class BetonBatches:
    """Random batches, or for testing (with `seed` None), all pictures in their order. Float32, normalized, on the device.

    The order of an epoch depends on the seed and its number; FFCV draws what is cut out and flipped without a seed.
    """

    file: Path
    settings: ImagenetSettings
    batch: int
    seed: int | None
    device: Any
    layout: torch.memory_format

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Pair]:
        return self.epoch(1)

    def epoch(self, number: int, first: int = 0) -> Iterator[Pair]:
        """See `Batches`. Those before `first` are decoded, too."""
        self._loader.next_epoch = number - 1
        for images, labels in islice(self._loader, first, None):
            # FFCV uses its memory again for batches to come, so both are copied
            yield normalized(images, self.layout), labels.reshape(-1).to(torch.int64, copy=True)

    @cached_property
    def _loader(self) -> Any:
        """FFCV's. Making it compiles for some seconds; it reads only the beginning and the end of the file."""
        decoders, transforms, loader = ffcv("fields.decoders"), ffcv("transforms"), ffcv("loader")
        device, size = torch.device(self.device), self.settings.size
        training = self.seed is not None
        if training:
            decoder = decoders.RandomResizedCropRGBImageDecoder((size, size), scale=(self.settings.least_area, 1.0))
        else:
            decoder = decoders.CenterCropRGBImageDecoder((size, size), ratio=self.settings.test_ratio)
        moved = [transforms.ToTensor(), transforms.ToDevice(device, non_blocking=device.type == "cuda")]
        flip = [transforms.RandomHorizontalFlip()] if training else []
        order = loader.OrderOption.RANDOM if training else loader.OrderOption.SEQUENTIAL
        return loader.Loader(
            str(self.file),
            batch_size=self.batch,
            num_workers=max(1, self.settings.workers),
            order=order,
            os_cache=True,
            seed=(self.seed or 0) % LARGEST_SEED,
            drop_last=training,
            pipelines={
                "image": [decoder, *flip, *moved, transforms.ToTorchImage()],
                "label": [decoders.IntDecoder(), *moved],
            },
        )
