"""FFCV's beton files: their record, and the checks before FFCV reads one. FFCV is optional, and imported late.

FFCV checks nothing, and reads whatever memory a damaged file points to. A file has a header, a description of each field, an
entry for each picture (its form, size, place and label), the pictures, and a table of the places. All entries are checked
whenever a file is opened. Bytes and the headers of JPEGs, which take a minute for ImageNet, are checked once on each machine,
and again when the file has changed.
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
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime

from syno.base.errors import DataError, SpecError, one_line
from syno.base.files import replaced, write_whole
from syno.base.record import Count, Record, versions
from syno.data.files import no_ffcv, record_file
from syno.data.image_folder import MOST_PIXELS, ImageFolder, find_pictures, read_picture

HEADER = struct.Struct("<HHIQQ")  # version, fields, size of a page, pictures, where the table of places begins
FIELD = 1 + 16 + 1024  # bytes of the description of a field: kind, name, arguments
KINDS = (2, 1)  # of the fields: pictures, whole numbers
IMAGE = np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("place", "<u8")])
ENTRY = np.dtype([("image", IMAGE), ("label", "<i8")], align=True)
PLACE = np.dtype([("picture", "<u8"), ("place", "<u8"), ("size", "<u8")])
JPEG, PIXELS = 0, 1  # modes
AGAIN = "copy or convert it again"


class BetonRecord(Record):
    """The record of a beton file, which stands beside it.

    Attributes:
        names: of the classes, in the order of their labels.
        count: pictures.
        size: bytes of the file.
        hash: of these bytes.
        source: hash of the folder that it was made from.
        max_resolution, compress_probability, quality: see `syno.data.beton.convert`.
        versions, date: of the packages and the time when it was made.
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
    """Return a module of FFCV, such as "loader". MissingPackageError, with what to install, if FFCV is not installed."""
    try:
        version("ffcv")
        return import_module(f"ffcv.{module}")
    except (PackageNotFoundError, ImportError) as error:
        raise no_ffcv(one_line(error)) from None


def read_record(file: Path) -> BetonRecord:
    """Return the record of a beton file after checking the file. DataError if either is missing or damaged."""
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
    check_entries(file, len(record.names))
    check_content(file, record.hash)
    return record


def digest_of(file: Path) -> str:
    """Return 128 bits over a file's bytes, as 32 hexadecimal digits."""
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()[:32]


def check_whole(file: Path) -> int:
    """Return the number of pictures in a beton file. DataError if it is no beton file, or if its end is missing."""
    with file.open("rb") as opened:
        head = opened.read(HEADER.size)
        described = opened.read(len(KINDS) * FIELD)
    if len(head) < HEADER.size:
        raise DataError(f"{file} is no beton file: it has {len(head)} bytes; convert it again")
    form, columns, _, count, table = HEADER.unpack(head)
    if form != 2 or columns != len(KINDS) or tuple(described[::FIELD]) != KINDS:
        raise DataError(f"{file} is no beton file of pictures and labels, or of another version of FFCV; convert it again")
    size, expected = file.stat().st_size, table + PLACE.itemsize * count
    if not table or size != expected:
        raise DataError(f"{file} has {size} bytes, but its header says {expected}; {AGAIN}")
    if table < HEADER.size + len(described) + ENTRY.itemsize * count:
        raise DataError(f"{file} is damaged: it has no room for the {count} pictures of its header; {AGAIN}")
    return int(count)


def check_entries(file: Path, classes: int) -> None:
    """Raise DataError if an entry of a whole file points outside of it, or has an impossible size, form or label."""
    entries, sizes = _entries(file)
    image = entries["image"]
    pixels = image["width"].astype(np.int64) * image["height"]
    checks = (
        ("points to a place where there is no picture", sizes == 0),
        ("has no such size", (pixels == 0) | (pixels > MOST_PIXELS)),
        ("is in no known form", (image["mode"] != JPEG) & (image["mode"] != PIXELS)),
        ("has another number of pixels than its size says", (image["mode"] == PIXELS) & (sizes != 3 * pixels)),
        (f"has a label that is not below {classes}", (entries["label"] < 0) | (entries["label"] >= classes)),
    )
    for problem, wrong in checks:
        if wrong.any():
            raise DataError(f"{file} is damaged: picture {int(wrong.argmax())} {problem}; {AGAIN}")


def _entries(file: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the entries of a whole file, and the bytes of each one's picture; 0 if there is no picture at its place."""
    with file.open("rb") as opened:
        *_, count, table = HEADER.unpack(opened.read(HEADER.size))
        first = HEADER.size + len(KINDS) * FIELD
        entries = np.fromfile(opened, ENTRY, count, offset=first - HEADER.size)
        opened.seek(table)
        places = np.sort(np.fromfile(opened, PLACE, count), order="place")
    beginning = first + ENTRY.itemsize * count
    inside = (places["place"] >= beginning) & (places["place"] <= table) & (places["size"] <= table - places["place"])
    inside &= places["picture"] < count
    index = np.searchsorted(places["place"], entries["image"]["place"])
    found = np.minimum(index, count - 1)
    good = (places["place"][found] == entries["image"]["place"]) & inside[found]
    return entries, np.where(good, places["size"][found], 0).astype(np.int64)


def check_content(file: Path, digest: str) -> None:
    """Raise DataError if a file has other bytes than were written, or if a JPEG has another size than its entry says.

    A note beside the file says that it was checked. It holds what only this machine's file system knows of the file, so that it
    means nothing for a copy. Without the right to write there, the file is checked every time.
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
    _check_jpegs(file)
    with suppress(SpecError):
        write_whole(note, json.dumps(checked) + "\n", durable=False)


def _check_jpegs(file: Path) -> None:
    """Raise DataError if a JPEG has another size than its entry says: FFCV decodes it into as much memory as that says."""
    from PIL import Image

    entries, sizes = _entries(file)
    with file.open("rb") as opened:
        for number in np.flatnonzero(entries["image"]["mode"] == JPEG):
            image = entries["image"][number]
            opened.seek(int(image["place"]))
            try:
                size = Image.open(BytesIO(opened.read(int(sizes[number]))), formats=("JPEG",)).size
            except Exception as error:  # a damaged picture raises anything
                raise DataError(f"{file} is damaged: picture {number}: {one_line(error)}; {AGAIN}") from error
            if size != (image["width"], image["height"]):
                raise DataError(
                    f"{file} is damaged: picture {number} is {size[0]} x {size[1]}, but its entry says {image['width']} x "
                    f"{image['height']}; {AGAIN}"
                )


# ---- conversion ------------------------------------------------------------------------------------------------------

# Conversion of folders of pictures to FFCV's beton files, as for ImageNet.
#
# Known of ffcv 1.0.2: its writer waits for ever for a worker that raised, and it declares no dependency on Pillow, without
# which it cannot be imported.


def convert(
    folder: Path,
    output: Path,
    *,
    max_resolution: int = 400,
    compress_probability: float = 0.10,
    quality: int = 90,
    workers: int = 1,
) -> BetonRecord:
    """Write the pictures of a folder into a beton file, whole or not at all, and a record beside it; return the record.

    Args:
        folder: holds one folder of pictures for each class.
        output: the file, FILE.beton.
        max_resolution: most pixels of the longer side; larger pictures are made smaller.
        compress_probability: share of the pictures that are kept as JPEG; the others are pixels, larger and faster to read.
        quality: of these JPEGs, up to 100.
        workers: processes.

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


class _BetonSamples:
    """The pictures for FFCV's writer. It never raises, since the writer would wait for ever; damage goes into a file."""

    def __init__(self, pictures: ImageFolder, damaged: Path) -> None:
        self.pictures, self.damaged = pictures, damaged

    def __len__(self) -> int:
        return len(self.pictures.entries)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        entry = self.pictures.entries[index]
        black = np.zeros((1, 1, 3), np.uint8)
        if self.damaged.exists():  # the conversion has failed: finish soon
            return black, entry.label
        try:
            return np.asarray(read_picture(entry.file)), entry.label
        except DataError as error:
            write_whole(self.damaged, str(error), durable=False)
            return black, entry.label

    def check(self) -> None:
        """Raise DataError if a picture was damaged."""
        if self.damaged.exists():
            raise DataError(self.damaged.read_text(encoding="utf-8"))
