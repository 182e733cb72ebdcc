"""Checking a beton file before FFCV reads it: FFCV looks at nothing, and reads whatever memory a damaged file points to.

A file has a header, a description of each field, an entry for each picture (its form, size, place and label), the pictures, and
a table of the places. All entries are checked whenever a file is opened; bytes and the headers of JPEGs, which takes a minute
for ImageNet, once on each machine, and again when the file has changed.
"""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from hashlib import file_digest
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syno.base.errors import DataError, SpecError
from syno.base.files import write_whole
from syno.data.image_folder import MOST_PIXELS
from syno.data.parquet import one_line

HEADER = struct.Struct("<HHIQQ")  # version, fields, size of a page, pictures, where the table of places begins
FIELD = 1 + 16 + 1024  # bytes of the description of a field: kind, name, arguments
KINDS = (2, 1)  # of the fields: pictures, whole numbers
IMAGE = np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("place", "<u8")])
ENTRY = np.dtype([("image", IMAGE), ("label", "<i8")], align=True)
PLACE = np.dtype([("picture", "<u8"), ("place", "<u8"), ("size", "<u8")])
JPEG, PIXELS = 0, 1  # modes


def digest_of(file: Path) -> str:
    """Return 128 bits over a file's bytes, as 32 hexadecimal digits."""
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()[:32]


def check_whole(file: Path) -> int:
    """How many pictures a beton file holds. DataError if its end is missing, or it is none."""
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
        raise DataError(f"{file} has {size} bytes, but its header says {expected}; copy or convert it again")
    if table < HEADER.size + len(described) + ENTRY.itemsize * count:
        raise DataError(f"{file} is damaged: it has no room for the {count} pictures of its header; copy or convert it again")
    return int(count)


def check_entries(file: Path, classes: int) -> None:
    """DataError if an entry points outside of the file, or has a size or a label that there is not. The file is whole."""
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
            raise DataError(f"{file} is damaged: picture {int(wrong.argmax())} {problem}; copy or convert it again")


def _entries(file: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The entries of a file that is whole, and how many bytes each one's picture has; 0 if there is none at its place."""
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
    """DataError if a file has other bytes than were written, or a JPEG in it another size than its entry says.

    Which file was checked is noted beside it, with what only this machine's file system knows of it, so that the note means
    nothing for a copy. Without the right to write there, the file is checked every time.
    """
    note, known = file.with_name(f".{file.name}.checked"), _known(file, digest)
    with suppress(OSError, ValueError, RecursionError):
        if json.loads(note.read_text(encoding="utf-8")) == known:
            return
    if digest_of(file) != digest:
        raise DataError(f"{file} is damaged: it has other bytes than were written; copy or convert it again")
    _check_jpegs(file)
    with suppress(SpecError):
        write_whole(note, json.dumps(known) + "\n", durable=False)


def _known(file: Path, digest: str) -> dict[str, Any]:
    found = file.stat()
    known = {"size": found.st_size, "changed": found.st_ctime_ns, "modified": found.st_mtime_ns, "inode": found.st_ino}
    return {**known, "device": found.st_dev, "owner": os.getuid(), "hash": digest}


def _check_jpegs(file: Path) -> None:
    """DataError if a JPEG has another size than its entry says: FFCV decodes it into as much memory as that says."""
    from PIL import Image

    entries, sizes = _entries(file)
    with file.open("rb") as opened:
        for number in np.flatnonzero(entries["image"]["mode"] == JPEG):
            image = entries["image"][number]
            opened.seek(int(image["place"]))
            try:
                size = Image.open(BytesIO(opened.read(int(sizes[number]))), formats=("JPEG",)).size
            except Exception as error:  # a damaged picture raises anything
                raise DataError(f"{file} is damaged: picture {number}: {one_line(error)}; copy or convert it again") from error
            if size != (image["width"], image["height"]):
                raise DataError(
                    f"{file} is damaged: picture {number} is {size[0]} x {size[1]}, but its entry says {image['width']} x "
                    f"{image['height']}; copy or convert it again"
                )
