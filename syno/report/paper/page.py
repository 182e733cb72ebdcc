"""What was published, on one page of HTML: the paper's figures, beside each what deviates from the paper, and the operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import pandas
from markupsafe import Markup

from syno.artifact.reading import WRONG_GUARD
from syno.base.names import ORIGINAL
from syno.ir.graph import PGraph
from syno.report.document import document
from syno.report.figures import drawn
from syno.report.inline_svg import inline_svg
from syno.report.operators.gallery import cards
from syno.report.page import orders
from syno.report.page_tables import Cell, Table
from syno.report.paper.catalogue import GUARD, PAPER_FIGURES, Numbers, PaperFigure
from syno.report.paper.speedups import accuracies, timed
from syno.report.results import LATENCY_COLUMNS, SCORE_COLUMNS, TRIAL_COLUMNS, Results

SEARCHED_ON = "cifar100"


@dataclass(frozen=True)
class Shown:
    """A figure on the page.

    Attributes:
        name: in the catalogue, and of its section.
        is_wrong: whether latencies of kernels with the wrong guard are in it.
        has_headlines: whether the paper prints numbers of it.
        deviations: its headline numbers that differ from the paper's, and why.
    """

    name: str
    title: str
    svg: Markup
    caption: str
    is_wrong: bool
    has_headlines: bool
    deviations: tuple[str, ...]


def paper_page(
    numbers: Numbers, headlines: pandas.DataFrame, operators: Mapping[str, PGraph], notes: Sequence[str] = ()
) -> str:
    """The page.

    Args:
        numbers: all measurements, and the log of GPT-2's training.
        headlines: the table of headline numbers (`headline_table`).
        operators: those whose graphs were published, by name.
        notes: what is at its bottom: where the data comes from, and what it lacks.
    """
    results = published_results(numbers.rows, operators)
    return document(
        "paper.html",
        measurements=f"{len(numbers.rows):,}",
        headlines=_headline_cells(headlines),
        figures=[_shown(name, figure, numbers, headlines) for name, figure in PAPER_FIGURES.items()],
        guard=GUARD,
        cards=cards(results),
        orders=orders(results),
        notes=notes,
    )


def _shown(name: str, figure: PaperFigure, numbers: Numbers, headlines: pandas.DataFrame) -> Shown:
    svg = drawn(figure.draw(numbers, figure.tables(numbers), ()), "svg").decode()  # its notes are beside it, as text
    caption, *sources = (note for note in figure.notes(numbers) if note != GUARD)
    own = headlines[headlines["figure"] == name.removeprefix("figure-")]
    is_wrong = "latency" in figure.metrics and bool((numbers.rows["note"] == WRONG_GUARD).any())
    told = tuple(_deviation(row) for row in own[~own["same"].astype(bool)].to_dict("records"))
    return Shown(
        name, figure.title, Markup(inline_svg(svg, name)), " ".join([caption, *sources]), is_wrong, bool(len(own)), told
    )


def _deviation(row: Mapping[Any, Any]) -> str:
    value = "cannot be computed" if isnan(row["computed"]) else f"{row['computed']:.4g}"
    return f"{row['what']}: {value}; the paper has {row['paper']:g}" + (f". {row['note']}" if row["note"] else "")


def _headline_cells(headlines: pandas.DataFrame) -> Table:
    rows = []
    for row in headlines.to_dict("records"):
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
    """What is known of the operators, each in the network that it was found for, as tables of an experiment."""
    scores = accuracies(rows, SEARCHED_ON)
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
    own = rows[(rows["operator"] == name) & (rows["model"] == model) & (rows["data"] == SEARCHED_ON)]
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
    """A line of a card. A kernel with the wrong guard counts as one that was not compared with a reference."""
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
