"""Settings of all tests. That this file is here lets tests import `golden_files` and `strategies` from beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ARTIFACT_VARIABLE = "SYNO_ARTIFACT"
ARTIFACT_BESIDE = Path(__file__).parents[2] / "shared" / "ae" / "data"


@pytest.fixture(scope="session")
def artifact() -> Path:
    """The data folder of the authors' published artifact, which is no part of this project. Skips where it is absent."""
    given = os.environ.get(ARTIFACT_VARIABLE)
    folder = Path(given) if given else ARTIFACT_BESIDE
    if not folder.is_dir():
        where = f" ({ARTIFACT_VARIABLE}={given} is no folder)" if given else ""
        pytest.skip(f"published artifact not found: set {ARTIFACT_VARIABLE} to its data folder{where}")
    return folder
