"""The page of an import: the paper's figures, the numbers that differ from the paper's beside them, and the operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import pandas

from syno.base.files import ORIGINAL
from syno.ir.graph import PGraph
from syno.report.figures import drawn
from syno.report.operators.gallery import cards
from syno.report.page import document, orders
from syno.report.page_tables import Cell, Table
from syno.report.paper.catalogue import PAPER_FIGURES, Numbers, PaperFigure
from syno.report.paper.headlines import headline_table, headlines
from syno.report.paper.networks import accuracies, timed
from syno.report.results import TRIAL_COLUMNS, Results
from syno.results.paper import GUARD, SEARCH_DATA, WRONG_GUARD
from syno.results.table import LATENCY_COLUMNS, SCORE_COLUMNS


@dataclass(frozen=True)
class Shown:
    """A figure on the page.

    Attributes:
        name: Its name in the catalogue, which is the id of its section, too.
        title: The title.
        svg: The drawing.
        caption: How it was made, how to read it, and where its numbers come from.
        is_wrong: Whether it has latencies of kernels with the wrong guard.
        has_headlines: Whether the paper prints numbers of it.
        deviations: Its headline numbers that differ from the paper's, and why.
    """

    name: str
    title: str
    svg: str
    caption: str
    is_wrong: bool
    has_headlines: bool
    deviations: tuple[str, ...]


def paper_page(
    numbers: Numbers, operators: Mapping[str, PGraph], notes: Sequence[str] = (), ablations: Sequence[object] = ()
) -> str:
    """Return the page as an HTML document.

    Args:
        numbers: The measurements, and the log of GPT-2's training.
        operators: The operators whose graphs were published, by name.
        notes: The lines at its bottom: where the data comes from, and what it lacks.
        ablations: The parts of the page for ablations (`syno.report.ablations.page_part`).
    """
    table = headline_table(headlines(numbers.rows))
    results = published_results(numbers.rows, operators)
    return document(
        "paper.html",
        measurements=f"{len(numbers.rows):,}",
        headlines=_headline_cells(table),
        figures=[_shown(name, figure, numbers, table) for name, figure in PAPER_FIGURES.items()],
        guard=GUARD,
        cards=cards(results),
        orders=orders(results),
        notes=notes,
        ablations=ablations,
    )


def _shown(name: str, figure: PaperFigure, numbers: Numbers, table: pandas.DataFrame) -> Shown:
    svg = drawn(figure.draw(numbers, figure.tables(numbers), ()), "svg").decode()  # its notes are beside it, as text
    caption, *sources = (note for note in figure.notes(numbers) if note != GUARD)
    own = table[table["figure"] == name.removeprefix("figure-")]
    is_wrong = "latency" in figure.metrics and bool((numbers.rows["note"] == WRONG_GUARD).any())
    told = tuple(_deviation(row) for row in own[~own["same"].astype(bool)].to_dict("records"))
    return Shown(name, figure.title, svg, " ".join([caption, *sources]), is_wrong, bool(len(own)), told)


def _deviation(row: Mapping[Any, Any]) -> str:
    value = "cannot be computed" if isnan(row["computed"]) else f"{row['computed']:.4g}"
    return f"{row['what']}: {value}; the paper has {row['paper']:g}" + (f". {row['note']}" if row["note"] else "")


def _headline_cells(table: pandas.DataFrame) -> Table:
    rows = []
    for row in table.to_dict("records"):
        unknown = isnan(row["computed"])
        computed = Cell("–") if unknown else Cell(f"{row['computed']:.5g}", row["computed"])
        verdict = "unknown" if unknown else "same" if row["same"] else "differs"
        rows.append((
            Cell(str(row["figure"]), float(row["figure"])), Cell(row["what"], is_number=False), computed,
            Cell(f"{row['paper']:g}", row["paper"]), Cell(verdict, note=row["note"], is_number=False, warns=verdict != "same"),
        ))  # fmt: skip
    return Table(("figure", "number", "computed", "paper", "to 0.01"), tuple(rows))


# ---- the operators --------------------------------------------------------------------------------------------------


def published_results(rows: pandas.DataFrame, operators: Mapping[str, PGraph]) -> Results:
    """Return the numbers of the operators, each in the network that it was found for, as the results of an experiment."""
    scores = accuracies(rows, SEARCH_DATA)
    found = scores[scores["operator"].isin(list(operators))].drop_duplicates("operator")
    homes = dict(zip(found["operator"], found["model"], strict=True))
    scored = [_score(rows, name, homes[name], operators[name]) for name in homes]
    times = [
        _latency(row, rows, operators[row["operator"]])
        for row in timed(rows).to_dict("records")
        if homes.get(row["operator"]) == row["model"] and row["operator"] != ORIGINAL
    ]
    return Results(
        "published",
        pandas.DataFrame(columns=list(TRIAL_COLUMNS)),
        pandas.DataFrame(scored, columns=list(SCORE_COLUMNS)),
        pandas.DataFrame(times, columns=list(LATENCY_COLUMNS)),
        operators,
    )


def _score(rows: pandas.DataFrame, name: str, model: str, graph: PGraph) -> dict[str, Any]:
    own = rows[(rows["operator"] == name) & (rows["model"] == model) & (rows["data"] == SEARCH_DATA)]
    values: dict[str, float] = {metric: float(value) for metric, value in _first_of_each(own)}
    return dict.fromkeys(SCORE_COLUMNS, nan) | {
        "operator": name,
        "operator_id": graph.id,
        "role": "published",
        "metric": "accuracy",
        "score": values.get("accuracy", nan),
        "flops": values.get("flops", nan),
        "parameters": values.get("parameters", nan),
    }


def _first_of_each(rows: pandas.DataFrame) -> Iterator[tuple[str, float]]:
    firsts = rows.drop_duplicates("metric")
    yield from zip(firsts["metric"], firsts["value"], strict=True)


def _latency(row: Mapping[Any, Any], rows: pandas.DataFrame, graph: PGraph) -> dict[str, Any]:
    """Return a row of the latency table. A kernel with the wrong guard counts as one that was not compared with a reference."""
    same = (rows["operator"] == row["operator"]) & (rows["model"] == row["model"]) & (rows["compiler"] == row["compiler"])
    return dict.fromkeys(LATENCY_COLUMNS, None) | {
        "operator": row["operator"],
        "operator_id": graph.id,
        "role": "published",
        "device": row["device"],
        "device_name": row["model"],
        "compiler": row["compiler"],
        "status": "ok",
        "latency_ms": row["latency_ms"],
        "batch": 1,
        "checked": not (rows.loc[same, "note"] == WRONG_GUARD).any(),
        "suspicious": False,
        "speedup": row["speedup"],
    }
