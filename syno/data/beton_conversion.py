"""Conversion of folders of pictures to FFCV's beton files, as for ImageNet.

Known of ffcv 1.0.2: its writer waits for ever for a worker that raised, and it declares no dependency on Pillow, without which
it cannot be imported.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from syno.base.errors import DataError, SpecError
from syno.base.files import replaced, write_whole
from syno.base.record import versions
from syno.data.beton import BetonRecord, check_whole, digest_of, ffcv, record_file
from syno.data.image_folder import ImageFolder, find_pictures, read_picture


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
        samples = _Samples(pictures, temporary.with_name(f"{temporary.name}.damaged"))
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


class _Samples:
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
