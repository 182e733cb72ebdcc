"""CIFAR-100, from Parquet files as on the Hub, from the Hub itself, or from the authors' pickles.

It is decoded once into a cache file, which every training then loads in a fraction of a second.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Mapping
from hashlib import md5
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from syno.base.errors import DataError, one_line
from syno.data.contract import DATASETS, content_hash, described
from syno.data.files import SPLITS, cifar100_files, no_cifar100, parquet_files, pickles
from syno.data.hub_rows import rows_of_files, rows_of_hub
from syno.data.image_folder import FORMATS
from syno.data.pictures import TENSORS, Augmentation, DataSet, check_fits, colours, read_arrays, write_arrays
from syno.data.settings import Cifar100Settings

# A pickle can run any code, so only the bytes that CIFAR-100's authors published are unpickled. MD5 is enough for that: an
# attacker can make two files with one MD5, but no file with the MD5 of another's.
PUBLISHED_MD5 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
FORMAT = 1
CLASSES, SIDE = 100, 32
COUNTS = 50_000, 10_000  # pictures to train and to test on
MOST_PICTURES = 200_000
COLUMNS = ("img", "fine_label")

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pictures [n, 3, 32, 32], labels [n]


@DATASETS.register("cifar100")
def cifar100(**settings: Any) -> DataSet:
    """Return CIFAR-100. It is decoded into the cache file `prepared` at first use, and again after its source files change.

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
    _check_counts(chosen.folder, len(labels), len(test_labels))
    mean, deviation = (tuple(map(float, content[name])) for name in ("mean", "deviation"))
    augmentation = Augmentation(recipe, mean, deviation)
    return DataSet("cifar100", images, labels, test_images, test_labels, CLASSES, str(content["hash"]), augmentation)


def prepare(settings: Cifar100Settings) -> dict[str, Any]:
    """Decode the data, write the cache file `prepared`, and return its content. DataError if the data is missing or damaged."""
    made_from = described(_source_files(settings.folder))
    parts = [array for split in SPLITS for array in _read_split(settings, split)]
    tensors = [torch.from_numpy(array) for array in parts]
    mean, deviation = colours(tensors[0])
    content: dict[str, Any] = dict(zip(TENSORS, parts, strict=True))
    content |= {"mean": np.array(mean), "deviation": np.array(deviation), "hash": np.array(content_hash(*tensors))}
    content |= {"format": np.array(FORMAT), "made_from": np.array(made_from)}
    write_arrays(settings.prepared, content)
    return content


def _check_counts(folder: Path, train: int, test: int) -> None:
    """Warn if the numbers of pictures differ from CIFAR-100's, as in a truncated copy, or with swapped files."""
    if (train, test) == COUNTS:
        return
    exchanged = ": its files to train and to test on are exchanged" if (test, train) == COUNTS else ""
    warnings.warn(
        f"{folder} has {train:,} pictures to train on and {test:,} to test on, and CIFAR-100 has {COUNTS[0]:,} and "
        f"{COUNTS[1]:,}{exchanged}; scores do not compare with others",
        stacklevel=2,
    )


def _load(settings: Cifar100Settings) -> dict[str, Any] | None:
    """Return the content of the cache file `prepared`; None if it is missing, or older than the source files."""
    if not settings.prepared.is_file():
        return None
    try:
        content = read_arrays(settings.prepared)
        current = int(content["format"]) == FORMAT
        if current:
            _check_arrays(content)
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{settings.prepared} is damaged: {one_line(error)}; delete it, and it is made again") from error
    files = _source_files(settings.folder)
    same = not files or described(files) == str(content["made_from"])
    return content if current and same else None


def _check_arrays(content: Mapping[str, Any]) -> None:
    """Raise ValueError or LookupError if the content differs in form from the arrays that `prepare` writes."""
    for name, labels_name in (TENSORS[:2], TENSORS[2:]):
        images, labels = content[name], content[labels_name]
        _as_arrays(images, labels, name)
        if (images.dtype, images.shape[1:], labels.dtype) != (np.uint8, (3, SIDE, SIDE), np.int64):
            raise ValueError("its arrays have other shapes or types than CIFAR-100's")
    statistics = [content[name] for name in ("mean", "deviation")]
    if any(part.shape != (3,) or not np.isfinite(part).all() for part in statistics) or not (statistics[1] > 0).all():
        raise ValueError("its mean and deviation of colours are not three finite numbers each")


def _source_files(folder: Path) -> list[Path]:
    """Return the source files of both splits; an empty list if there are none."""
    return [file for split in SPLITS for file in cifar100_files(folder, split)]


def _read_split(settings: Cifar100Settings, split: str) -> Part:
    """Return the pictures and labels of a split. DataError if they are missing or damaged."""
    files = parquet_files(settings.folder, split)
    if files:
        return _decode_rows(rows_of_files(files, COLUMNS), f"{settings.folder}, {split}")
    for file in pickles(settings.folder, split):
        return _read_authors_pickle(file, split)
    absent = no_cifar100(settings.folder, split)
    return _decode_rows(rows_of_hub(settings, split, COLUMNS, absent), settings.repository)


def _read_authors_pickle(file: Path, split: str) -> Part:
    """Return the pictures and labels of a split of cifar-100-python. DataError if the file is not the published one."""
    content = file.read_bytes()
    if (digest := md5(content, usedforsecurity=False).hexdigest()) != PUBLISHED_MD5[split]:
        raise DataError(
            f"{file} is not {split} of cifar-100-python as its authors published it: its MD5 is {digest} and not "
            f"{PUBLISHED_MD5[split]}; a pickle can run code, so it is not read; unpack cifar-100-python.tar.gz again, or write "
            f"pictures of your own to {split}-00000-of-00001.parquet, as https://huggingface.co/datasets/uoft-cs/cifar100 does"
        )
    arrays = pickle.loads(content, encoding="bytes")
    return _as_arrays(arrays[b"data"].reshape(-1, 3, SIDE, SIDE), arrays[b"fine_labels"], str(file))


def _decode_rows(tables: Iterator[tuple[str, Any]], place: str) -> Part:
    """Return the pictures and labels in tables, which come as (file name, table)."""
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
    return _as_arrays(stacked, labels, place)


def _picture(png: bytes | None, place: str) -> NDArray[np.uint8]:
    """Decode a picture to uint8 [3, 32, 32]. DataError, whose message begins with `place`, if it is damaged or of another
    size.
    """
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


def _as_arrays(pictures: NDArray[np.uint8], labels: Any, place: str) -> Part:
    """Return pictures and labels as arrays. DataError, whose message begins with `place`, unless they have CIFAR-100's form."""
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
