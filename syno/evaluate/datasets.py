"""Data sets by name. A loader is a function whose keyword arguments are its settings.

>>> data = DATASETS["glyphs"](preset="micro")
>>> data.train_images.shape, data.classes
(torch.Size([1024, 3, 16, 16]), 6)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch

from syno.evaluate.glyphs import GLYPH_PRESETS, make_glyphs
from syno.registry import Registry


@dataclass(frozen=True)
class DataSet:
    """Pictures with a class each. Two data sets are equal if they hold the same, whatever their names.

    Attributes:
        name: a label.
        train_images, test_images: float32 [n, channels, height, width], zero in the middle of their range.
        train_labels, test_labels: int64 [n], in range(classes).
        classes: how many there are.
        hash: of all the tensors' shapes and bytes.
    """

    name: str = field(compare=False)
    train_images: torch.Tensor = field(repr=False, compare=False)
    train_labels: torch.Tensor = field(repr=False, compare=False)
    test_images: torch.Tensor = field(repr=False, compare=False)
    test_labels: torch.Tensor = field(repr=False, compare=False)
    classes: int
    hash: str

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width


Loader = Callable[..., DataSet]
DATASETS: Registry[Loader] = Registry("data set")


@DATASETS.register("glyphs")
def glyphs(preset: str = "quick", **changes: Any) -> DataSet:
    """Procedural pictures, made when asked for; see `syno.evaluate.glyphs`.

    Args:
        preset: a name in GLYPH_PRESETS.
        changes: fields of GlyphSettings that differ from the preset's.

    Raises UnknownNameError or SpecError for settings that there are not.
    """
    settings = GLYPH_PRESETS[preset].with_(**changes)
    train, test = make_glyphs(settings)
    return DataSet(f"glyphs {preset}", *train, *test, settings.classes, content_hash(*train, *test))


def content_hash(*tensors: torch.Tensor) -> str:
    """128 bits over the shapes, types and bytes of tensors, as 32 hexadecimal digits."""
    state = blake2b(digest_size=16)
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        state.update(f"{array.dtype}{array.shape}".encode())
        state.update(memoryview(array).cast("B"))
    return state.hexdigest()
