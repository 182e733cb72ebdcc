"""A small artifact, to be read and to be damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_artifact import write_artifact

from syno.paper.artifact.reading import Contents, read


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    return write_artifact(tmp_path_factory.mktemp("whole") / "data")


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "data"))


@pytest.fixture(scope="module")
def contents(whole: Path) -> Contents:
    return read(whole)
