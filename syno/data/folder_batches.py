"""Batches of pictures that are read from their files, by processes beside the training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from syno.base.errors import DataError
from syno.data.contract import Orders, Pair
from syno.data.image_folder import ImageFolder, central_box, cut_out, random_box, read_picture
from syno.data.settings import ImagenetSettings

Place = tuple[int, int]  # epoch (0 for testing) and index of a picture
Sample = tuple[Any, int] | DataError  # pixels [3, size, size] and label, or what is wrong with the file


@dataclass(frozen=True)
class FolderBatches:
    """Random batches, or for testing (with `seed` None), all pictures in their order. Float32, normalized, on the device."""

    pictures: ImageFolder
    settings: ImagenetSettings
    batch: int
    seed: int | None
    device: Any
    layout: torch.memory_format

    def __len__(self) -> int:
        count = len(self.pictures.entries)
        return count // self.batch if self.seed is not None else -(-count // self.batch)

    def __iter__(self) -> Iterator[Pair]:
        return self.epoch(0)

    def epoch(self, number: int, first: int = 0) -> Iterator[Pair]:
        """See `Batches`. DataError, with the file's name, when a damaged picture is reached."""
        count = len(self.pictures.entries)
        order = list(range(count)) if self.seed is None else Orders(count, self.seed).of(number).tolist()
        places = [
            [(number, index) for index in order[start : start + self.batch]]
            for start in range(first * self.batch, len(self) * self.batch, self.batch)
        ]
        cuda = torch.device(self.device).type == "cuda"
        loader = DataLoader(
            _Samples(self.pictures, self.settings, self.seed),
            batch_sampler=places,
            num_workers=self.settings.workers,
            collate_fn=_together,
            pin_memory=cuda,
            generator=torch.Generator().manual_seed(0),  # else it would draw from everybody's
        )
        for made in loader:
            if isinstance(made, DataError):
                raise made
            images, labels = (part.to(self.device, non_blocking=cuda) for part in made)
            yield normalized(images, self.layout), labels


class _Samples(Dataset):  # type: ignore[misc]  # mypy does not look into torch
    """Pictures by epoch and index: what is cut out depends on these and the seed, not on the process that does it."""

    def __init__(self, pictures: ImageFolder, settings: ImagenetSettings, seed: int | None) -> None:
        self.pictures, self.settings, self.seed = pictures, settings, seed

    def __getitem__(self, place: Place) -> Sample:
        epoch, index = place
        entry, settings = self.pictures.entries[index], self.settings
        try:
            picture = read_picture(entry.file)
        except DataError as error:  # raised where it is read; DataLoader would put its own text around it
            return error
        width, height = picture.size
        if self.seed is None:
            return cut_out(picture, central_box(width, height, settings.test_ratio), settings.size), entry.label
        random = np.random.default_rng([self.seed % 2**63, epoch, index])
        pixels = cut_out(picture, random_box(width, height, settings.least_area, random), settings.size)
        return (pixels[:, :, ::-1] if random.integers(2) else pixels), entry.label


def _together(samples: Sequence[Sample]) -> Pair | DataError:
    made = []
    for sample in samples:
        if isinstance(sample, DataError):
            return sample
        made.append(sample)
    return torch.from_numpy(np.stack([pixels for pixels, _ in made])), torch.tensor([label for _, label in made])


MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of ImageNet's colours, as everybody has them


def normalized(images: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    """Uint8 pictures as float32 with mean 0 and deviation 1, a copy."""
    mean, deviation = (torch.tensor(values, device=images.device).reshape(-1, 1, 1) for values in (MEAN, DEVIATION))
    return images.contiguous(memory_format=layout).float().sub_(mean).div_(deviation)
