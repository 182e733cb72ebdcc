"""CIFAR-100: decoded once into one file, which every training then loads in a fraction of a second."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
import torch

from syno.errors import DataError
from syno.evaluate.augmentation import Augmentation, check_fits, colours
from syno.evaluate.data_settings import Cifar100Settings
from syno.evaluate.datasets.cifar_sources import CLASSES, SIDE, read_parts, source_files
from syno.evaluate.datasets.contract import DATASETS, content_hash, described
from syno.evaluate.datasets.parquet import one_line
from syno.evaluate.datasets.pictures import DataSet
from syno.files import replaced

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
        with np.load(settings.prepared, allow_pickle=False) as opened:  # checks each array's CRC
            content = {name: opened[name] for name in opened.files}
        current = int(content["format"]) == FORMAT
        shapes = {name: (content[name].dtype.name, content[name].shape[1:]) for name in TENSORS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{settings.prepared} is damaged: {one_line(error)}; delete it, and it is made again") from error
    if current and set(shapes.values()) != {("uint8", (3, SIDE, SIDE)), ("int64", ())}:
        raise DataError(f"{settings.prepared} holds other arrays than it should; delete it, and it is made again")
    files = source_files(settings.folder)
    same = not files or described(files) == str(content["made_from"])
    return content if current and same else None
