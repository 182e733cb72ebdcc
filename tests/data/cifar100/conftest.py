"""A small CIFAR-100 in both of its forms, and what reads it."""

from __future__ import annotations

from hashlib import md5
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_cifar100 import SIZES, Load, Part, write_parquet, write_pickles

from syno.data import DATASETS, DataSet


@pytest.fixture(scope="module")
def parts() -> dict[str, Part]:
    """Pictures [n, 32, 32, 3] and labels."""
    random = np.random.default_rng(0)
    return {
        split: (random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), random.integers(0, 100, count).tolist())
        for split, count in SIZES.items()
    }


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def call(folder: Path, **settings: Any) -> DataSet:
        data = DATASETS["cifar100"](**{"folder": folder, "prepared": tmp_path / "prepared" / "cifar100.npz", **settings})
        assert isinstance(data, DataSet)
        return data

    return call


@pytest.fixture
def parquet(tmp_path: Path, parts: dict[str, Part]) -> Path:
    return write_parquet(tmp_path / "parquet", parts)


@pytest.fixture
def pickles(tmp_path: Path, parts: dict[str, Part], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pickles whose MD5s stand for those of the published files."""
    folder = write_pickles(tmp_path / "pickles", parts)
    digests = {split: md5((folder / "cifar-100-python" / split).read_bytes()).hexdigest() for split in SIZES}
    monkeypatch.setattr(import_module("syno.data.cifar100"), "PUBLISHED_MD5", digests)
    return folder
