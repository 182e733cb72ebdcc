"""Random changes of pictures for training, on a whole batch at once and on the device where it is.

`Augmentation.draw` draws the random numbers, and `Augmentation.train` applies them, so that the changes can be repeated and
compared with a slow reference.

The published code draws crops from 4 of the 5 offsets only; here all 5 are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import torch
from torch.nn import functional

from syno.base.errors import ShapeError
from syno.data.settings import AugmentationSettings

DOWN, RIGHT, FLIP, TOP, LEFT = range(5)  # columns of the random numbers


@dataclass(frozen=True)
class Augmentation:
    """A recipe of changes, and the colours of the pictures that it is for.

    Attributes:
        settings: the recipe.
        mean, deviation: of each channel over all pictures to train on, where pixels are 0 to 255.
    """

    settings: AugmentationSettings
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, settings: AugmentationSettings, images: torch.Tensor) -> Self:
        """Return the augmentation of pictures, uint8 [n, channels, height, width]. ShapeError if the recipe doesn't fit."""
        check_fits(settings, images.shape[-2:])
        return cls(settings, *colours(images))

    def draw(self, count: int, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        """Return random numbers for `count` pictures of this height and width: int64 [count, 5], on the CPU.

        The columns: how far down and right of the padded picture's corner the crop begins (0 to 2 * pad, all equally likely),
        whether it is flipped (0 or 1), and the top left corner of the square that is cut out, which lies inside the picture.
        """
        height, width = shape
        shifts, hole = 2 * self.settings.pad + 1, self.settings.cutout
        ends = (shifts, shifts, 2 if self.settings.flip else 1, height - hole + 1, width - hole + 1)
        return torch.stack([torch.randint(end, (count,), generator=generator) for end in ends], 1)

    def train(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return pictures to train on.

        Args:
            images: uint8 [n, channels, height, width].
            draws: [n, 5], see `draw`, on the same device.

        Returns float32 [n, channels, size, size].
        """
        count, channels, height, width = images.shape
        rows = _mirrored(draws[:, DOWN], self.settings.pad, height)
        columns = _mirrored(draws[:, RIGHT], self.settings.pad, width)
        columns = torch.where(draws[:, FLIP, None] == 1, columns.flip(1), columns)
        each, channel = (torch.arange(size, device=images.device) for size in (count, channels))
        moved = images[each[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]
        made = self._normalized(moved)
        if self.settings.cutout:
            down = self._in_hole(draws[:, TOP], height)
            across = self._in_hole(draws[:, LEFT], width)
            made = made.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0.0)
        return self._resized(made)

    def test(self, images: torch.Tensor) -> torch.Tensor:
        """Return pictures to test on: normalized and resized only. uint8 [n, c, h, w] -> float32 [n, c, size, size]."""
        return self._resized(self._normalized(images))

    def _in_hole(self, corner: torch.Tensor, size: int) -> torch.Tensor:
        """Return which places of an axis lie in the square that is cut out: [n] -> bool [n, size]."""
        place = torch.arange(size, device=corner.device) - corner[:, None]
        return (place >= 0) & (place < self.settings.cutout)

    def _normalized(self, images: torch.Tensor) -> torch.Tensor:
        mean, deviation = (_by_channel(values, images.device) for values in (self.mean, self.deviation))
        return images.float().sub_(mean).div_(deviation)

    def _resized(self, images: torch.Tensor) -> torch.Tensor:
        size = self.settings.size
        if size is None or images.shape[-2:] == (size, size):
            return images
        return functional.interpolate(images, (size, size), mode="bilinear", align_corners=False)


def check_fits(settings: AugmentationSettings, shape: Sequence[int]) -> None:
    """Raise ShapeError if pictures of this height and width are too small for the recipe."""
    least = min(shape)
    if settings.pad >= least or settings.cutout > least:
        raise ShapeError(
            f"augmentation: pad is {settings.pad} and cutout is {settings.cutout}, but the pictures are "
            f"{' x '.join(map(str, shape))}; pad must be less than a side, and cutout no more"
        )


def colours(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of uint8 [n, channels, height, width], correctly rounded."""
    means, deviations = [], []
    value = torch.arange(256, dtype=torch.float64)
    for channel in images.unbind(1):
        share = torch.bincount(channel.reshape(-1), minlength=256).double() / channel.numel()
        mean = (share * value).sum()
        means.append(float(mean))
        deviations.append(float((share * (value - mean).square()).sum().sqrt()) or 1.0)  # 1 where all pixels are equal
    return tuple(means), tuple(deviations)


@lru_cache(maxsize=16)
def _by_channel(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """Return a number for each channel: float32 [channels, 1, 1]. Kept, as each copy to a GPU would wait for all its work."""
    return torch.tensor(values, device=device).reshape(-1, 1, 1)


def _mirrored(offset: torch.Tensor, pad: int, size: int) -> torch.Tensor:
    """Return the pixel at each place of an axis that is cropped at these offsets: [n] -> [n, size].

    Outside of the picture is its mirror image, whose axis is the outermost pixel.
    """
    place = torch.arange(size, device=offset.device) + offset[:, None] - pad
    return size - 1 - (size - 1 - place.abs()).abs()
