"""CIFAR-100 of a few pictures, in files of the real form."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray
from PIL import Image

from syno.data import DataSet

SIZES = {"train": 23, "test": 11}
Part = tuple[NDArray[np.uint8], list[int]]


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def table(pictures: list[bytes], labels: list[Any]) -> Any:
    """As on the Hub."""
    rows = [{"bytes": png, "path": f"{place}.png"} for place, png in enumerate(pictures)]
    return pyarrow.table({"img": rows, "fine_label": labels, "coarse_label": [0] * len(labels)})


def write_parquet(folder: Path, parts: dict[str, Part]) -> Path:
    (folder / "cifar100").mkdir(parents=True)
    for split, (pixels, labels) in parts.items():
        made = table([encoded(picture) for picture in pixels], labels)
        pyarrow.parquet.write_table(made, folder / "cifar100" / f"{split}-00000-of-00001.parquet")
    return folder


def write_pickles(folder: Path, parts: dict[str, Part]) -> Path:
    """As Python 2 wrote them."""
    (folder / "cifar-100-python").mkdir(parents=True)
    for split, (pixels, labels) in parts.items():
        rows = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        content = {b"filenames": [b"a.png"] * len(rows), b"data": rows, b"fine_labels": labels, b"coarse_labels": labels}
        (folder / "cifar-100-python" / split).write_bytes(pickle.dumps(content, protocol=2))
    return folder


Load = Callable[..., DataSet]
