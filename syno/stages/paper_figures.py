"""The paper's figures, of the measurements in a folder of results, with their tables and the headline numbers beside them."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.files import write_whole
from syno.results.parquet import read_parquet
from syno.results.table import FOLDER, read_measurements, write_table
from syno.stages.artifact import LOSSES, MADE_BY, RECORD, ImportRecord
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

    from syno.report.paper.catalogue import Numbers

FORMATS = ("pdf", "svg", "png")
HEADLINES, PAGE = "headlines", "report.html"


def draw_paper(folder: Path, names: Iterable[str] = ()) -> list[Path]:
    """Draw figures of the paper (all, if none is named) and write the tables that they show; returns the files.

    Args:
        folder: where `syno artifact import` has written.
        names: in `PAPER_FIGURES`.

    Raises SpecError if there are no measurements, UnknownNameError for a name that is none.
    """
    from syno.report.figures import save
    from syno.report.paper.catalogue import PAPER_FIGURES

    chosen = {name: PAPER_FIGURES[name] for name in names or PAPER_FIGURES}
    numbers = _numbers(folder)
    files: list[Path] = []
    for name, figure in chosen.items():
        tables = figure.tables(numbers)
        for table, rows in tables.items():
            files += write_table(rows, folder, table)
        files += save(figure.draw(numbers, tables, figure.notes(numbers)), folder / "figures" / name, FORMATS)
    return files


def write_headlines(folder: Path) -> pandas.DataFrame:
    """The headline numbers beside the paper's, also written as a table. SpecError if there are no measurements."""
    from syno.report.paper.headlines import headline_table, headlines

    table = headline_table(headlines(read_measurements(folder, MADE_BY)))
    write_table(table, folder, HEADLINES)
    return table


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write the page of an import: figures, headline numbers, operators; returns its file. SpecError if there is no import."""
    from syno.report.paper.headlines import headline_table, headlines
    from syno.report.paper.page import paper_page

    numbers, record, store = _numbers(folder), ImportRecord.read(folder / RECORD), OperatorStore(folder)
    operators = {one.name: store.get(one.key) for one in record.operators if one.key is not None}
    notes = [f"read from {record.artifact}", *(f"missing or damaged: {problem}" for problem in record.problems)]
    file = output or folder / PAGE
    write_whole(file, paper_page(numbers, headline_table(headlines(numbers.rows)), operators, notes), durable=False)
    return file


def headline_texts(table: pandas.DataFrame) -> tuple[list[dict[str, object]], list[str]]:
    """The headline numbers as people read them: rows of a table, and what is to be said below it."""
    from syno.report.paper.catalogue import GUARD

    found = table.to_dict("records")
    rows: list[dict[str, object]] = [
        {
            "figure": row["figure"],
            "number": row["what"],
            "computed": "–" if isnan(row["computed"]) else _digits(row["computed"], row["paper"]),
            "paper": _digits(row["paper"], row["paper"]),
            "to 0.01": "same" if row["same"] else "unknown" if isnan(row["computed"]) else "differs",
        }
        for row in found
    ]
    return rows, [*(f"- {row['what']}: {row['note']}" for row in found if row["note"]), f"- {GUARD}"]


def _digits(value: float, paper: float) -> str:
    """With as many digits as the paper prints."""
    return f"{value:.{max(2, len(f'{paper:g}'.partition('.')[2]))}f}"


def _numbers(folder: Path) -> Numbers:
    from syno.report.paper.catalogue import Numbers

    return Numbers(read_measurements(folder, MADE_BY), read_parquet(folder / FOLDER / f"{LOSSES}.parquet", MADE_BY))
