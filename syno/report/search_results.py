"""What a search has found, as files and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno.files import write_whole
from syno.report.tables import markdown

if TYPE_CHECKING:
    from syno.search.study import Study

TABLE = "trials.csv"


def save_results(study: Study, folder: Path, count: int = 5) -> str:
    """Write all trials to `trials.csv` and the best operators to `best-1.txt`, `best-2.txt` ... Returns them as a table."""
    trials = study.trials
    write_whole(folder / TABLE, trials.to_csv(index=False))
    rows = []
    for rank, record in enumerate(study.best(count), 1):
        file = folder / f"best-{rank}.txt"
        write_whole(file, str(record.operator.renamed(f"{study.name}_{record.number}")))
        metrics = {name: value for name, value in record.metrics.items() if not name.startswith("original_")}
        rows.append({"file": file.name, "trial": record.number, "reward": record.reward, **metrics})
    outcomes = (
        ", ".join(f"{count} {outcome}" for outcome, count in trials["outcome"].value_counts().items()) if len(trials) else ""
    )
    found = markdown(rows) if rows else "No trial has a reward; the column message of the table says why.\n"
    return f"{found}\n{len(trials)} trials ({outcomes}) in {folder / TABLE}\n"
