"""A file for the trials of a study."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "trials.log")
