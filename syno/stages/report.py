"""The page."""

from __future__ import annotations

from pathlib import Path

from syno.config import Experiment


def write_report(experiment: Experiment, output: Path | None = None) -> Path:
    """Write it."""
    return Path()
