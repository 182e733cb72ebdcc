"""CIFAR-100: decoded once into one file, which every training then loads in a fraction of a second."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syno.base.errors import DataError
from syno.base.files import replaced
from syno.data.augmentation import Augmentation, check_fits, colours
from syno.data.cifar_sources import CLASSES, SIDE, checked, read_parts, source_files
from syno.data.contract import DATASETS, content_hash, described
from syno.data.parquet import one_line
from syno.data.pictures import DataSet
from syno.data.settings import Cifar100Settings

FORMAT = 1
TENSORS = ("train_images", "train_labels", "test_images", "test_labels")


@DATASETS.register("cifar100")
def cifar100(**settings: Any) -> DataSet:
    """CIFAR-100. The first time, and whenever its files have changed, it is decoded into the file `prepared`.

    Args:
        settings: fields of Cifar100Settings.

    Raises:
        SpecError, UnknownNameError: a setting, or a recipe, that there is not.
        DataError: the data is missing or damaged.
    """
    chosen = Cifar100Settings.of(**settings)
    recipe = chosen.augmented
    check_fits(recipe, (SIDE, SIDE))
    content = _load(chosen) or prepare(chosen)
    images, labels, test_images, test_labels = (torch.from_numpy(content[name]) for name in TENSORS)
    mean, deviation = (tuple(map(float, content[name])) for name in ("mean", "deviation"))
    augmentation = Augmentation(recipe, mean, deviation)
    return DataSet("cifar100", images, labels, test_images, test_labels, CLASSES, str(content["hash"]), augmentation)


def prepare(settings: Cifar100Settings) -> dict[str, Any]:
    """Decode the data, write the file, and return what is in it."""
    made_from = described(source_files(settings.folder))
    parts = [array for part in read_parts(settings) for array in part]
    content: dict[str, Any] = dict(zip(TENSORS, parts, strict=True))
    tensors = [torch.from_numpy(array) for array in parts]
    mean, deviation = colours(tensors[0])
    content |= {"mean": np.array(mean), "deviation": np.array(deviation), "hash": np.array(content_hash(*tensors))}
    content |= {"format": np.array(FORMAT), "made_from": np.array(made_from)}
    with replaced(settings.prepared) as temporary, temporary.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **content)
    return content


def _load(settings: Cifar100Settings) -> dict[str, Any] | None:
    """What is in the file; None if there is none, or it was made from other files than there are now."""
    if not settings.prepared.is_file():
        return None
    try:
        _check_sizes(settings.prepared)
        with np.load(settings.prepared, allow_pickle=False) as opened:  # checks each array's CRC
            content = {name: opened[name] for name in opened.files}
        current = int(content["format"]) == FORMAT
        if current:
            _check_arrays(content)
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{settings.prepared} is damaged: {one_line(error)}; delete it, and it is made again") from error
    files = source_files(settings.folder)
    same = not files or described(files) == str(content["made_from"])
    return content if current and same else None


def _check_sizes(file: Path) -> None:
    """Raise ValueError if a part of the file is compressed: `prepare` compresses nothing, and such a part could be endless."""
    with zipfile.ZipFile(file) as opened:
        parts = opened.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size for part in parts):
        raise ValueError("it is compressed")
    if sum(part.file_size for part in parts) > file.stat().st_size:
        raise ValueError("its parts are larger than it is")


def _check_arrays(content: Mapping[str, Any]) -> None:
    """Raise ValueError or LookupError if these are not the arrays that `prepare` writes."""
    for images, labels in (TENSORS[:2], TENSORS[2:]):
        checked(content[images], content[labels], images)
        if (
            content[images].dtype != np.uint8
            or content[images].shape[1:] != (3, SIDE, SIDE)
            or content[labels].dtype != np.int64
        ):
            raise ValueError("it holds other arrays than it should")
    colours_there = [content[name] for name in ("mean", "deviation")]
    if any(part.shape != (3,) or not np.isfinite(part).all() for part in colours_there) or not (content["deviation"] > 0).all():
        raise ValueError("its colours' mean and deviation are none")
