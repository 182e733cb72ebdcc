"""Checks of pictures and labels: what a training would only fail on later, or not at all, is one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from syno.base.errors import DataError

if TYPE_CHECKING:
    from syno.data.pictures import DataSet

IMAGE_AXES = 4  # [n, channels, height, width]


def check_pictures(data: DataSet) -> None:
    """Raise DataError if the tensors of a data set are not pictures and labels as `DataSet` describes them."""
    allowed = (torch.uint8, torch.float32) if data.augmentation is not None else (torch.float32,)
    for part in ("train", "test"):
        images, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        for title, tensor in ((f"{part}_images", images), (f"{part}_labels", labels)):
            if not isinstance(tensor, torch.Tensor):
                raise DataError(f"{data.name}: {title} is a {type(tensor).__name__}; give a torch.Tensor")
        check_images(f"{data.name}: {part}_images", images, tuple(data.train_images.shape[1:]), allowed)
        check_labels(f"{data.name}: {part}_labels", labels, len(images), data.classes)


def check_images(what: str, images: Any, shape: tuple[int, ...], types: tuple[torch.dtype, ...] = (torch.float32,)) -> None:
    """Raise DataError, which begins with `what`, if these are not finite pictures [n, *shape] of one of the types."""
    if images.dim() != IMAGE_AXES or tuple(images.shape[1:]) != shape or not len(images):
        expected = ", ".join(map(str, shape)) if len(shape) == IMAGE_AXES - 1 else "channels, height, width"
        raise DataError(f"{what} has the shape {list(images.shape)}; it must be [n, {expected}]")
    if images.dtype not in types:
        names = " or ".join(_name(one) for one in types)
        raise DataError(f"{what} is {_name(images.dtype)}; it must be {names}: convert it, as with images.float()")
    if images.is_floating_point() and not bool(torch.isfinite(images).all()):
        raise DataError(f"{what} has values that are not finite (NaN or infinity); take out or repair these pictures")


def check_labels(what: str, labels: Any, count: int, classes: int) -> None:
    """Raise DataError, which begins with `what`, if these are not int64 labels [count], each from 0 to classes - 1."""
    if tuple(labels.shape) != (count,):
        raise DataError(f"{what} has the shape {list(labels.shape)}; it must be [{count}]: one label for each picture")
    if labels.dtype is not torch.int64:
        raise DataError(f"{what} is {_name(labels.dtype)}; it must be int64: convert it, as with labels.long()")
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise DataError(f"{what} is from {least} to {most}; with {classes} classes, labels must be from 0 to {classes - 1}")


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
