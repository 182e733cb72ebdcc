"""An experiment that was run to its end, in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_run import RESULTS, write_config

CONFIG = "small.yaml"
KEPT = ("trials.db", "trials.parquet", "selected.json", "data.json", "search", "train", "tune", "operators")


class Done:
    """A finished run in a folder, for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / CONFIG
        self.results = folder / RESULTS

    def changed(self, **changes: Any) -> Path:
        """The config with changes."""
        return write_config(self.folder / "changed.yaml", changes)

    def kept(self) -> dict[str, bytes]:
        """What a run is not to lose when another one fails."""
        files = [file for name in KEPT for file in [self.results / name, *(self.results / name).rglob("*")] if file.is_file()]
        return {str(file): file.read_bytes() for file in files}
