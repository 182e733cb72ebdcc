"""FFCV's beton files: ImageNet converted once, for loaders that keep a GPU busy. FFCV is optional, and imported late.

What to know of ffcv 1.0.2: its writer waits for ever for a worker that raised; its `NormalizeImage` never ends on a CPU, so
pictures are normalized by torch; it declares no dependency on Pillow, without which it cannot be imported; crops and flips
are not seeded, only the order is.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import AwareDatetime

from syno.base.errors import DataError, MissingPackageError, SpecError
from syno.base.files import replaced, write_whole
from syno.base.record import Count, Record, versions
from syno.data.beton_check import check_content, check_entries, check_whole, digest_of
from syno.data.image_folder import ImageFolder, find_pictures, read_picture

VERSION = "1.0.2"
SYSTEM = "g++ python3-dev pkg-config libopencv-dev libturbojpeg0-dev"


class BetonRecord(Record):
    """What is in a beton file, beside which it stands.

    Attributes:
        names: of the classes, in the order of their labels.
        count: pictures.
        size: bytes of the file.
        hash: of these.
        source: hash of the folder that it was made from.
        max_resolution, compress_probability, quality: see `convert`.
        versions, date: where and when.
    """

    kind_of_record = "record of a beton file"
    again = "convert the pictures (`syno convert imagenet`)"
    passing = frozenset({"date"})
    names: tuple[str, ...]
    count: Count
    size: Count
    hash: str
    source: str
    max_resolution: int
    compress_probability: float
    quality: int
    versions: dict[str, str]
    date: AwareDatetime


def ffcv(module: str) -> Any:
    """A module of FFCV, such as "loader". MissingPackageError, with what to install, if FFCV is not there."""
    try:
        version("ffcv")
        return import_module(f"ffcv.{module}")
    except (PackageNotFoundError, ImportError) as error:
        raise MissingPackageError(
            f"FFCV cannot be imported ({' '.join(str(error).split())}): apt-get install -y --no-install-recommends {SYSTEM} "
            f'&& pip install "syno[imagenet]"; or read the folders themselves, with data_settings: {{reader: torch}}'
        ) from None


def record_file(file: Path) -> Path:
    """Where the record of a beton file is."""
    return file.with_name(f"{file.name}.json")


def convert(
    folder: Path,
    output: Path,
    *,
    max_resolution: int = 400,
    compress_probability: float = 0.10,
    quality: int = 90,
    workers: int = 1,
) -> BetonRecord:
    """Write the pictures of a folder into a beton file, and a record beside it. The file is there whole or not at all.

    Args:
        folder: with a folder of pictures for each class.
        output: the file, FILE.beton.
        max_resolution: pixels of the longer side; larger pictures are made smaller.
        compress_probability: the share of pictures that are kept as JPEG; the others are pixels, larger and faster to read.
        quality: of these JPEGs, of 100.
        workers: processes.

    Raises:
        MissingPackageError: FFCV is not installed.
        DataError: the folder is no such, or a picture is damaged.
    """
    from datetime import UTC, datetime

    if output.suffix != ".beton":
        raise SpecError(f"the output is {output}; it must end in .beton")
    fields, writer = ffcv("fields"), ffcv("writer")
    pictures = find_pictures(folder)
    with replaced(output) as temporary:
        image = fields.RGBImageField(
            write_mode="proportion",
            max_resolution=max_resolution,
            compress_probability=compress_probability,
            jpeg_quality=quality,
        )
        made = writer.DatasetWriter(str(temporary), {"image": image, "label": fields.IntField()}, num_workers=workers)
        samples = Samples(pictures, temporary.with_name(f"{temporary.name}.damaged"))
        try:
            made.from_indexed_dataset(samples, chunksize=min(100, -(-len(samples) // workers)))
            samples.check()
        finally:
            samples.damaged.unlink(missing_ok=True)
        check_whole(temporary)
        digest = digest_of(temporary)
        size = temporary.stat().st_size
        record_file(output).unlink(missing_ok=True)  # of another file
    record = BetonRecord(
        names=pictures.names,
        count=len(pictures.entries),
        size=size,
        hash=digest,
        source=pictures.hash,
        max_resolution=max_resolution,
        compress_probability=compress_probability,
        quality=quality,
        versions=versions(["ffcv", "numpy", "pillow"]),
        date=datetime.now(UTC),
    )
    record.write(record_file(output))
    return record


class Samples:
    """What FFCV's writer is given. It never raises, for the writer would wait for ever; what is damaged is written down."""

    def __init__(self, pictures: ImageFolder, damaged: Path) -> None:
        self.pictures, self.damaged = pictures, damaged

    def __len__(self) -> int:
        return len(self.pictures.entries)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        entry = self.pictures.entries[index]
        black = np.zeros((1, 1, 3), np.uint8)
        if self.damaged.exists():  # it was all for nothing: come to the end soon
            return black, entry.label
        try:
            return np.asarray(read_picture(entry.file)), entry.label
        except DataError as error:
            write_whole(self.damaged, str(error), durable=False)
            return black, entry.label

    def check(self) -> None:
        """DataError if a picture was damaged."""
        if self.damaged.exists():
            raise DataError(self.damaged.read_text(encoding="utf-8"))


def read_record(file: Path) -> BetonRecord:
    """Return the record of a beton file, once that has been checked; see `beton_check`.

    Raises DataError if either is missing or damaged.
    """
    if not file.is_file():
        raise DataError(
            f"there is no file {file}; make it of the folder {file.with_suffix('')}: "
            f"syno convert imagenet {file.with_suffix('')} --output {file}"
        )
    if not record_file(file).is_file():
        raise DataError(
            f"there is no {record_file(file)} beside {file}, which `syno convert imagenet FOLDER --output {file}` writes; "
            "convert the pictures again"
        )
    record = BetonRecord.read(record_file(file))
    size = file.stat().st_size
    if size != record.size:
        raise DataError(f"{file} has {size} bytes, but {record.size} were written; copy or convert it again")
    if check_whole(file) != record.count:
        raise DataError(f"{file} holds another number of pictures than {record_file(file)} says; convert it again")
    check_entries(file, len(record.names))
    check_content(file, record.hash)
    return record
