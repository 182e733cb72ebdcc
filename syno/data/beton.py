"""FFCV's beton files: their record, and checks before FFCV reads them. FFCV is optional and imported lazily.

FFCV checks nothing, and reads out of bounds in a damaged file. A file has a header, a description of each field, an entry for
each picture (format, size, offset and label), the pictures, and a table of offsets. Its bytes are compared with the SHA-256 in
its record, which takes a minute for ImageNet, once on each machine and again after each change of the file.
"""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import file_digest
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import AwareDatetime

from syno.base.errors import DataError, SpecError, one_line
from syno.base.files import replaced, write_whole
from syno.base.record import Count, Record, versions
from syno.data.files import no_ffcv, record_file
from syno.data.image_folder import ImageFolder, find_pictures, read_picture

HEADER = struct.Struct("<HHIQQ")  # version, fields, size of a page, pictures, where the table of places begins
FIELD = 1 + 16 + 1024  # bytes of the description of a field: kind, name, arguments
KINDS = (2, 1)  # of the fields: pictures, whole numbers
ENTRY = 24  # bytes of an entry: form, width, height, place, label
PLACE = 24  # bytes of a row of the table of places: number of the picture, place, bytes
AGAIN = "copy or convert it again"


class BetonRecord(Record):
    """The record of a beton file, a JSON file beside it.

    Attributes:
        names: names of the classes, in the order of their labels.
        count: number of pictures.
        size: size of the file in bytes.
        hash: hash of the file's bytes.
        source: hash of the folder from which the file was converted.
        max_resolution, compress_probability, quality: see `syno.data.beton.convert`.
        versions, date: versions of packages, and time of the conversion.
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
    """Return a module of FFCV, such as "loader". MissingPackageError, with the command to install it, if FFCV is missing."""
    try:
        version("ffcv")
        return import_module(f"ffcv.{module}")
    except (PackageNotFoundError, ImportError) as error:
        raise no_ffcv(one_line(error)) from None


def read_record(file: Path) -> BetonRecord:
    """Check a beton file against its record, and return the record. DataError if either is missing or damaged."""
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
        raise DataError(f"{file} has {size} bytes, but {record.size} were written; {AGAIN}")
    if check_whole(file) != record.count:
        raise DataError(f"{file} holds another number of pictures than {record_file(file)} says; convert it again")
    check_content(file, record.hash)
    return record


def digest_of(file: Path) -> str:
    """Return the first 128 bits of the SHA-256 of a file, as 32 hexadecimal digits."""
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()[:32]


def check_whole(file: Path) -> int:
    """Return the number of pictures in a beton file. DataError if it is no beton file or truncated."""
    with file.open("rb") as opened:
        head = opened.read(HEADER.size)
        described = opened.read(len(KINDS) * FIELD)
    if len(head) < HEADER.size:
        raise DataError(f"{file} is no beton file: it has {len(head)} bytes; convert it again")
    form, columns, _, count, table = HEADER.unpack(head)
    if form != 2 or columns != len(KINDS) or tuple(described[::FIELD]) != KINDS:
        raise DataError(f"{file} is no beton file of pictures and labels, or of another version of FFCV; convert it again")
    size, expected = file.stat().st_size, table + PLACE * count
    if not table or size != expected:
        raise DataError(f"{file} has {size} bytes, but its header says {expected}; {AGAIN}")
    if table < HEADER.size + len(described) + ENTRY * count:
        raise DataError(f"{file} is damaged: it has no room for the {count} pictures of its header; {AGAIN}")
    return int(count)


def check_content(file: Path, digest: str) -> None:
    """Raise DataError if the bytes of a file do not match its digest.

    A successful check is noted in a file beside it, with the file's inode and times, so that the note is void for a copy.
    Without permission to write there, the file is checked every time.
    """
    note, status = file.with_name(f".{file.name}.checked"), file.stat()
    times = {"changed": status.st_ctime_ns, "modified": status.st_mtime_ns}
    place = {"inode": status.st_ino, "device": status.st_dev, "owner": os.getuid()}
    checked = {"size": status.st_size, **times, **place, "hash": digest}
    with suppress(OSError, ValueError, RecursionError):
        if json.loads(note.read_text(encoding="utf-8")) == checked:
            return
    if digest_of(file) != digest:
        raise DataError(f"{file} is damaged: it has other bytes than were written; {AGAIN}")
    with suppress(SpecError):
        write_whole(note, json.dumps(checked) + "\n", durable=False)


def convert(
    folder: Path,
    output: Path,
    *,
    max_resolution: int = 400,
    compress_probability: float = 0.10,
    quality: int = 90,
    workers: int = 1,
) -> BetonRecord:
    """Convert a folder of pictures to a beton file with a record beside it, atomically; return the record.

    Args:
        folder: holds one folder of pictures for each class.
        output: the file, FILE.beton.
        max_resolution: largest length of the longer side, in pixels; larger pictures are scaled down.
        compress_probability: share of the pictures that are stored as JPEG; the others are raw pixels, larger but faster to
            read.
        quality: quality of the JPEGs, up to 100.
        workers: number of processes.

    Raises:
        SpecError: the output does not end in .beton.
        MissingPackageError: FFCV is not installed.
        DataError: the folder has no such pictures, or one of them is damaged.
    """
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
        samples = _BetonSamples(pictures, temporary.with_name(f"{temporary.name}.damaged"))
        try:
            made.from_indexed_dataset(samples, chunksize=min(100, -(-len(samples) // workers)))
            samples.check()
        finally:
            samples.damaged.unlink(missing_ok=True)
        check_whole(temporary)
        digest = digest_of(temporary)
        size = temporary.stat().st_size
        record_file(output).unlink(missing_ok=True)  # the record of the replaced file
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


class _BetonSamples:
    """The pictures for FFCV's writer. Damaged ones raise nothing, since the writer would hang; errors are written to a file."""

    def __init__(self, pictures: ImageFolder, damaged: Path) -> None:
        self.pictures, self.damaged = pictures, damaged

    def __len__(self) -> int:
        return len(self.pictures.entries)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        entry = self.pictures.entries[index]
        black = np.zeros((1, 1, 3), np.uint8)
        if self.damaged.exists():  # the conversion has failed: skip the rest
            return black, entry.label
        try:
            return np.asarray(read_picture(entry.file)), entry.label
        except DataError as error:
            write_whole(self.damaged, str(error), durable=False)
            return black, entry.label

    def check(self) -> None:
        """Raise DataError if a picture was damaged when the writer read it."""
        if self.damaged.exists():
            raise DataError(self.damaged.read_text(encoding="utf-8"))
