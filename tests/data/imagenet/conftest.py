"""A small ImageNet in folders of JPEG files."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_imagenet import COUNTS, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, count in COUNTS.items():
        write_folder(tmp_path / "imagenet" / split, count)
    return tmp_path / "imagenet"
