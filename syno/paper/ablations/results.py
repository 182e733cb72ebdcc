"""The tables of ablations in a folder of results (`tables/ablation-NAME`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno.results import ABLATION, FOLDER
from syno.results.parquet import read_parquet

if TYPE_CHECKING:
    import pandas


def read_ablations(folder: Path, made_by: str) -> dict[str, pandas.DataFrame]:
    """Return the tables of ablations in a folder of results, by name (`ablation-canonical`); none if there are none."""
    files = sorted((folder / FOLDER).glob(f"{ABLATION}*.parquet"))
    return {file.stem: read_parquet(file, made_by) for file in files}
