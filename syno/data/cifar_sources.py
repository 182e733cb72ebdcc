"""CIFAR-100 from where it is: Parquet files as on the Hub, the Hub, or the pickles of its authors. The result is one."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syno.base.errors import DataError
from syno.data.image_folder import FORMATS
from syno.data.parquet import one_line, parquet_files, rows_of_files, rows_of_hub
from syno.data.safe_pickle import read_pickle
from syno.data.settings import Cifar100Settings

CLASSES, SIDE = 100, 32
MOST_PICTURES = 200_000
SPLITS = ("train", "test")
COLUMNS = ("img", "fine_label")
PICKLES = ("cifar-100-python/{split}", "{split}")

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pictures [n, 3, 32, 32], labels [n]


def source_files(folder: Path) -> list[Path]:
    """The files that the data would be read from; none if there are none."""
    return [file for split in SPLITS for file in parquet_files(folder, split) or _pickles(folder, split)]


def read_parts(settings: Cifar100Settings) -> list[Part]:
    """The pictures and labels for training, and those for testing. DataError if there are none, or they are damaged."""
    return [_read(settings, split) for split in SPLITS]


def _read(settings: Cifar100Settings, split: str) -> Part:
    files = parquet_files(settings.folder, split)
    if files:
        return _decoded(rows_of_files(files, COLUMNS), f"{settings.folder}, {split}")
    for file in _pickles(settings.folder, split):
        return _unpickled(file)
    if settings.download:
        return _decoded(rows_of_hub(settings.repository, split, COLUMNS, settings.folder), settings.repository)
    raise DataError(
        f"there is no CIFAR-100 ({split}) in the folder {settings.folder}: neither cifar100/{split}-*.parquet nor "
        f"cifar-100-python/{split}; get it with `hf download {settings.repository} --repo-type dataset --local-dir "
        f"{settings.folder}`, or with data_settings: {{download: true}}, or name its folder with data_settings: {{folder: ...}}"
    )


def _pickles(folder: Path, split: str) -> list[Path]:
    return [file for pattern in PICKLES if (file := folder / pattern.format(split=split)).is_file()][:1]


def _unpickled(file: Path) -> Part:
    content = read_pickle(file)
    if not isinstance(content, dict):
        raise DataError(f"{file} holds no dictionary, but {type(content).__name__}; it is none of CIFAR-100's pickles")
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
    return checked(pictures.reshape(-1, 3, SIDE, SIDE), labels, str(file))


def _decoded(tables: Iterator[tuple[str, Any]], place: str) -> Part:
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
    return checked(stacked, labels, place)


def _picture(png: bytes | None, place: str) -> NDArray[np.uint8]:
    """[3, 32, 32]."""
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


def checked(pictures: NDArray[np.uint8], labels: Any, place: str) -> Part:
    """Return both, if they can be CIFAR-100's. DataError, with the place, if not."""
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
