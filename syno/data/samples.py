"""The shapes of samples, in words: importing this module does not load torch."""

from __future__ import annotations

from collections.abc import Sequence

PICTURE_AXES = 3  # channels, height, width


def is_picture(shape: Sequence[int]) -> bool:
    """Return whether samples of this shape, without the batch, have a height and a width besides their channels."""
    return len(shape) == PICTURE_AXES


def samples_in_words(shape: Sequence[int]) -> str:
    """Return what samples of this shape are called: "pictures", or "samples" if they have no height and width."""
    return "pictures" if is_picture(shape) else "samples"
