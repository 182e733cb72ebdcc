"""Changing pictures at random, a whole batch at once on the device where it is.

What is drawn is apart from what is done with it: `draw` says where each picture is cut out, whether it is flipped, where
the hole is; `train` does that. So what is done can be compared with a slow reference, and repeated.

The published code draws crops from 4 of the 5 offsets only; here it is all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch.nn import functional

from syno.base.errors import ShapeError
from syno.data.settings import AugmentationSettings

DOWN, RIGHT, FLIP, TOP, LEFT = range(5)  # columns of what is drawn


@dataclass(frozen=True)
class Augmentation:
    """A recipe, and the colours of the pictures it is for.

    Attributes:
        settings: the recipe.
        mean, deviation: of each channel over all pictures to train on, in steps of 1 of 255.
    """

    settings: AugmentationSettings
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, settings: AugmentationSettings, images: torch.Tensor) -> Self:
        """For these pictures, uint8 [n, channels, height, width]. ShapeError if the recipe does not fit them."""
        check_fits(settings, images.shape[-2:])
        return cls(settings, *colours(images))

    def draw(self, count: int, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        """What happens to each of `count` pictures of this height and width: int64 [count, 5], on the CPU.

        The columns: how far the part that is cut out lies down and right of the padded picture's corner (0 to 2 * pad, all
        equally likely), whether it is flipped (0 or 1), and the corner of the hole, which lies inside of the picture.
        """
        height, width = shape
        shifts, hole = 2 * self.settings.pad + 1, self.settings.cutout
        ends = (shifts, shifts, 2 if self.settings.flip else 1, height - hole + 1, width - hole + 1)
        return torch.stack([torch.randint(end, (count,), generator=generator) for end in ends], 1)

    def train(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Pictures as they are trained on.

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
        """Pictures as they are tested on: normalized and resized, no more. uint8 [n, c, h, w] -> float32 [n, c, size, size]."""
        return self._resized(self._normalized(images))

    def _in_hole(self, corner: torch.Tensor, size: int) -> torch.Tensor:
        """Whether each place of an axis is between the hole's edges: [n] -> [n, size]."""
        place = torch.arange(size, device=corner.device) - corner[:, None]
        return (place >= 0) & (place < self.settings.cutout)

    def _normalized(self, images: torch.Tensor) -> torch.Tensor:
        mean, deviation = (
            torch.tensor(values, device=images.device).reshape(-1, 1, 1) for values in (self.mean, self.deviation)
        )
        return images.float().sub_(mean).div_(deviation)

    def _resized(self, images: torch.Tensor) -> torch.Tensor:
        size = self.settings.size
        if size is None or images.shape[-2:] == (size, size):
            return images
        return functional.interpolate(images, (size, size), mode="bilinear", align_corners=False)


def check_fits(settings: AugmentationSettings, shape: Sequence[int]) -> None:
    """ShapeError if pictures of this height and width are too small for the recipe."""
    least = min(shape)
    if settings.pad >= least or settings.cutout > least:
        raise ShapeError(
            f"augmentation: pad is {settings.pad} and cutout is {settings.cutout}, but the pictures are "
            f"{' x '.join(map(str, shape))}; pad must be less than a side, and cutout no more"
        )


def colours(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 [n, channels, height, width], exact up to the last rounding."""
    means, deviations = [], []
    value = torch.arange(256, dtype=torch.float64)
    for channel in images.unbind(1):
        share = torch.bincount(channel.reshape(-1), minlength=256).double() / channel.numel()
        mean = (share * value).sum()
        means.append(float(mean))
        deviations.append(float((share * (value - mean).square()).sum().sqrt()) or 1.0)  # of one colour: nothing to divide
    return tuple(means), tuple(deviations)


def _mirrored(offset: torch.Tensor, pad: int, size: int) -> torch.Tensor:
    """Which pixel stands at each place of an axis that is cut out at these offsets: [n] -> [n, size].

    Outside of the picture is its mirror image, the outermost pixel being the mirror.
    """
    place = torch.arange(size, device=offset.device) + offset[:, None] - pad
    return size - 1 - (size - 1 - place.abs()).abs()
