"""CIFAR-100, from Parquet files as on the Hub, from the Hub itself, or from the pickles of its authors.

It is decoded once into one file, which every training then loads in a fraction of a second.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from syno.base.errors import DataError, one_line
from syno.base.files import replaced
from syno.data.augmentation import Augmentation, check_fits, colours
from syno.data.contract import DATASETS, content_hash, described
from syno.data.image_folder import FORMATS
from syno.data.parquet import parquet_files, rows_of_files, rows_of_hub
from syno.data.pictures import DataSet
from syno.data.safe_pickle import read_pickle
from syno.data.settings import Cifar100Settings

FORMAT = 1
TENSORS = ("train_images", "train_labels", "test_images", "test_labels")
CLASSES, SIDE = 100, 32
MOST_PICTURES = 200_000
SPLITS = ("train", "test")
COLUMNS = ("img", "fine_label")
PICKLES = ("cifar-100-python/{split}", "{split}")

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pictures [n, 3, 32, 32], labels [n]


@DATASETS.register("cifar100")
def cifar100(**settings: Any) -> DataSet:
    """Return CIFAR-100. It is decoded into the file `prepared` the first time, and again when its source files have changed.

    Args:
        settings: fields of Cifar100Settings.

    Raises:
        SpecError, UnknownNameError: an unknown setting or recipe.
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


# ---- the decoded file -------------------------------------------------------------------------------------------------


def prepare(settings: Cifar100Settings) -> dict[str, Any]:
    """Decode the data, write the file `prepared`, and return its content. DataError if the data is missing or damaged."""
    made_from = described(_source_files(settings.folder))
    parts = [array for split in SPLITS for array in _read(settings, split)]
    tensors = [torch.from_numpy(array) for array in parts]
    mean, deviation = colours(tensors[0])
    content: dict[str, Any] = dict(zip(TENSORS, parts, strict=True))
    content |= {"mean": np.array(mean), "deviation": np.array(deviation), "hash": np.array(content_hash(*tensors))}
    content |= {"format": np.array(FORMAT), "made_from": np.array(made_from)}
    with replaced(settings.prepared) as temporary, temporary.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **content)
    return content


def _load(settings: Cifar100Settings) -> dict[str, Any] | None:
    """Return the content of the file `prepared`; None if there is none, or if its source files have changed since."""
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
    files = _source_files(settings.folder)
    same = not files or described(files) == str(content["made_from"])
    return content if current and same else None


def _check_sizes(file: Path) -> None:
    """Raise ValueError if a part of the file is compressed: `prepare` compresses nothing, and such a part could be endless."""
    with zipfile.ZipFile(file) as opened:
        parts = opened.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size for part in parts):
        raise ValueError("it is compressed")
    if sum(part.file_size for part in parts) > file.stat().st_size:
        raise ValueError("its parts are larger than the file")


def _check_arrays(content: Mapping[str, Any]) -> None:
    """Raise ValueError or LookupError if these are not the arrays that `prepare` writes."""
    for name, labels_name in (TENSORS[:2], TENSORS[2:]):
        images, labels = content[name], content[labels_name]
        _checked(images, labels, name)
        if (images.dtype, images.shape[1:], labels.dtype) != (np.uint8, (3, SIDE, SIDE), np.int64):
            raise ValueError("its arrays have other shapes or types than CIFAR-100's")
    statistics = [content[name] for name in ("mean", "deviation")]
    if any(part.shape != (3,) or not np.isfinite(part).all() for part in statistics) or not (statistics[1] > 0).all():
        raise ValueError("its mean and deviation of colours are not three finite numbers each")


# ---- where it is read from --------------------------------------------------------------------------------------------


def _source_files(folder: Path) -> list[Path]:
    """Return the files that the data would be read from; an empty list if there are none."""
    return [file for split in SPLITS for file in parquet_files(folder, split) or _pickles(folder, split)]


def _pickles(folder: Path, split: str) -> list[Path]:
    return [file for pattern in PICKLES if (file := folder / pattern.format(split=split)).is_file()][:1]


def _read(settings: Cifar100Settings, split: str) -> Part:
    """Return the pictures and labels of a split. DataError if they are missing or damaged."""
    files = parquet_files(settings.folder, split)
    if files:
        return _decoded(rows_of_files(files, COLUMNS), f"{settings.folder}, {split}")
    for file in _pickles(settings.folder, split):
        return _unpickled(file)
    absent = (
        f"there is no CIFAR-100 ({split}) in the folder {settings.folder}: neither cifar100/{split}-*.parquet nor "
        f"cifar-100-python/{split}"
    )
    return _decoded(rows_of_hub(settings, split, COLUMNS, absent), settings.repository)


def _unpickled(file: Path) -> Part:
    """Return the pictures and labels in a pickle of the authors."""
    content = read_pickle(file)
    if not isinstance(content, dict):
        raise DataError(f"{file} holds a {type(content).__name__}; a pickle of CIFAR-100 holds a dictionary")
    try:
        pictures, labels = (content[name] if name in content else content[name.decode()] for name in (b"data", b"fine_labels"))
    except KeyError as error:
        known = ", ".join(str(name.decode() if isinstance(name, bytes) else name) for name in content)
        raise DataError(f"{file} has no {error.args[0]}; it has: {known}") from None
    if not isinstance(pictures, np.ndarray) or pictures.dtype != np.uint8 or pictures.shape[1:] != (3 * SIDE**2,):
        given = f"{pictures.dtype} {list(pictures.shape)}" if isinstance(pictures, np.ndarray) else type(pictures).__name__
        raise DataError(f"{file}: data is {given}; it must be uint8 [n, {3 * SIDE**2}]")
    if not isinstance(labels, np.ndarray) and not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise DataError(f"{file}: labels are no whole numbers")  # nested lists, a few bytes in a pickle, can be endless
    return _checked(pictures.reshape(-1, 3, SIDE, SIDE), labels, str(file))


def _decoded(tables: Iterator[tuple[str, Any]], place: str) -> Part:
    """Return the pictures and labels in tables, each of which comes with the name of its file."""
    pictures: list[NDArray[np.uint8]] = []
    labels: list[Any] = []
    row, before = 0, ""
    for file, table in tables:
        row, before = (row if file == before else 0), file
        encoded = table.column("img").combine_chunks()
        if not hasattr(encoded, "field") or encoded.type.get_field_index("bytes") < 0:
            raise DataError(f'{file}: the column "img" is {encoded.type}; it must be a struct with the bytes of pictures')
        for png in encoded.field("bytes").to_pylist():
            pictures.append(_picture(png, f"{file}, row {row}"))
            row += 1
        if len(pictures) > MOST_PICTURES:
            raise DataError(f"{file}: there are more than {MOST_PICTURES:,} pictures; CIFAR-100 has 60,000")
        labels += table.column("fine_label").to_pylist()
    stacked = np.stack(pictures) if pictures else np.empty((0, 3, SIDE, SIDE), np.uint8)
    return _checked(stacked, labels, place)


def _picture(png: bytes | None, place: str) -> NDArray[np.uint8]:
    """Return a decoded picture [3, 32, 32]. DataError, which begins with `place`, if it is damaged or of another size."""
    from PIL import Image

    try:
        opened = Image.open(BytesIO(png or b""), formats=FORMATS)
        size = opened.size
        pixels = np.asarray(opened.convert("RGB")) if size == (SIDE, SIDE) else None  # else not decoded: it may be huge
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{place}: the picture is damaged: {one_line(error)}; copy the file again") from error
    if pixels is None:
        raise DataError(f"{place}: the picture is {size[0]} x {size[1]}; it must be {SIDE} x {SIDE}")
    return pixels.transpose(2, 0, 1)


def _checked(pictures: NDArray[np.uint8], labels: Any, place: str) -> Part:
    """Return pictures and labels as arrays. DataError, which begins with `place`, if they can't be CIFAR-100's."""
    if not len(pictures):
        raise DataError(f"{place}: there are no pictures")
    try:
        numbers = np.asarray(labels)
    except ValueError as error:  # lists of several lengths
        raise DataError(f"{place}: labels are no whole numbers: {one_line(error)}") from None
    if numbers.dtype.kind not in "iu":
        raise DataError(f"{place}: labels are no whole numbers, but {numbers.dtype}")
    if numbers.shape != (len(pictures),):
        raise DataError(
            f"{place}: there are {len(pictures)} pictures and labels of shape {list(numbers.shape)}; each needs one"
        )
    if numbers.min() < 0 or numbers.max() >= CLASSES:
        raise DataError(
            f"{place}: labels go from {numbers.min()} to {numbers.max()}; those of CIFAR-100 go from 0 to {CLASSES - 1}"
        )
    return np.ascontiguousarray(pictures), numbers.astype(np.int64)
