"""A beton file of a few pictures as FFCV 1.0.2 writes it, and its record, made without FFCV."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

from syno.data.beton import BetonRecord, record_file

IMAGE = np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("place", "<u8")])
ENTRY = np.dtype([("image", IMAGE), ("label", "<i8")], align=True)
PLACE = np.dtype([("picture", "<u8"), ("place", "<u8"), ("size", "<u8")])
JPEG, PIXELS = 0, 1  # modes
NAMES = ("n01", "n02", "n03")
SIZES = ((6, 4), (5, 5), (16, 8), (3, 7))  # width, height; the third is a JPEG


def write_beton(file: Path) -> Path:
    """Four pictures, one of them as a JPEG."""
    random, pictures = np.random.default_rng(0), []
    for number, (width, height) in enumerate(SIZES):
        pixels, stream = random.integers(0, 256, (height, width, 3), dtype=np.uint8), io.BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG")
        pictures.append((JPEG, stream.getvalue()) if number == 2 else (PIXELS, pixels.tobytes()))
    fields = b"".join(bytes([kind]) + name.ljust(16, b"\0") + bytes(1024) for kind, name in ((2, b"image"), (1, b"label")))
    entries, places = np.zeros(len(SIZES), ENTRY), np.zeros(len(SIZES), PLACE)
    place = 24 + len(fields) + entries.nbytes
    for number, ((mode, content), size) in enumerate(zip(pictures, SIZES, strict=True)):
        entries["image"][number] = (mode, *size, place)
        entries["label"][number] = number % len(NAMES)
        places[number] = (number, place, len(content))
        place += len(content)
    head = struct.pack("<HHIQQ", 2, 2, 2**21, len(SIZES), place)
    file.write_bytes(b"".join((head, fields, entries.tobytes(), *(content for _, content in pictures), places.tobytes())))
    write_record(file)
    return file


def write_record(file: Path) -> None:
    """The record that agrees with the file, whatever is in it."""
    content = file.read_bytes()
    record_file(file).unlink(missing_ok=True)
    BetonRecord(
        names=NAMES, count=len(SIZES), size=len(content), hash=sha256(content).hexdigest()[:32], source="ab",
        max_resolution=400, compress_probability=0.1, quality=90, versions={}, date=datetime.now(UTC),
    ).write(record_file(file))  # fmt: skip
