"""The page of an import or of joined results: the paper's figures, headline numbers, omissions, and the operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import pandas

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.ir.graph import PGraph
from syno.paper.figures.catalogue import PAPER_FIGURES, Numbers, PaperFigure
from syno.paper.figures.headlines import (
    AS_A_BAR,
    IN_WORDS,
    NOT_IN_PAPER,
    UNKNOWN,
    digits,
    has_own,
    headline_table,
    headlines,
    in_percent,
)
from syno.paper.figures.left_out import lines
from syno.paper.figures.mixture import ordered, percent, ready, scored, timed
from syno.paper.figures.origins import note
from syno.paper.figures.titles import SHORT_ORIGINS, compiler_title, model_title, operator_title
from syno.paper.joined import PROXY
from syno.paper.numbers import COMPILERS, DEVICES, GUARD, MODELS, WRONG_GUARD
from syno.paper.places import LAYERS
from syno.report.figures import drawn
from syno.report.operators.gallery import cards
from syno.report.page import document, orders
from syno.report.page_tables import Cell, Table
from syno.run.measurement import OK
from syno.run.run import Run
from syno.run.values import Latency, Score

FROM_AUTHORS = "The paper's figures, from its authors' data"
FROM_MIXTURE = "The paper's figures, from the results at hand"


@dataclass(frozen=True)
class Shown:
    """A figure on the page.

    Attributes:
        name: The figure's name in the catalogue, which is also the id of its section.
        title: The title.
        svg: The drawing.
        caption: How the figure was made, how to read it, and the origins of its numbers.
        is_wrong: Whether it has latencies of kernels with the wrong guard.
        has_headlines: Whether there are headline numbers for the figure.
        deviations: The figure's headline numbers that differ from the paper's, and why.
        left_out: The items that it does not show, with the reasons.
    """

    name: str
    title: str
    svg: str
    caption: str
    is_wrong: bool
    has_headlines: bool
    deviations: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def link(self) -> str:
        """The short title of the figure in the page's navigation."""
        number, _, rest = self.title.partition(":")
        return f"{number}, by compiler" if rest.endswith(", by compiler") else number


def paper_page(
    numbers: Numbers, operators: Mapping[str, PGraph], notes: Sequence[str] = (), ablations: Sequence[object] = ()
) -> str:
    """Return the page as an HTML document.

    Args:
        numbers: The measurements and loss curves, of an import or of joined results.
        operators: The operators whose graphs are known, by name.
        notes: The lines at the bottom: origins of the data, and missing data.
        ablations: The parts of the page for ablations (`syno.paper.ablations.page_part`).
    """
    numbers = numbers._replace(rows=ready(numbers.rows))
    table = headline_table(headlines(*numbers))
    results = published_results(numbers.rows, operators)
    shown = cards(results)
    return document(
        "paper.html",
        heading=FROM_MIXTURE if (numbers.rows["origin"] == "measured").any() else FROM_AUTHORS,
        measurements=f"{len(numbers.rows):,}",
        sources=_source_cells(numbers.rows),
        headlines=_headline_cells(table),
        beside=_own_cells(numbers.rows),
        figures=[_section(name, figure, numbers, table) for name, figure in PAPER_FIGURES.items()],
        guard=GUARD,
        has_guard=bool((numbers.rows["note"] == WRONG_GUARD).any()),
        cards=shown,
        orders=orders(results) if shown else [],
        notes=notes,
        ablations=ablations,
    )


def _section(name: str, figure: PaperFigure, numbers: Numbers, table: pandas.DataFrame) -> Shown:
    tables = figure.tables(numbers)
    svg = drawn(figure.draw(numbers, tables, ()), "svg").decode()  # its notes are beside it, as text
    caption = " ".join(filter(None, (figure.caption, note(list(tables.values())), figure.sources(numbers))))
    own = table[table["figure"].isin([name.removeprefix("figure-"), figure.title.partition(":")[0].removeprefix("Beside ")])]
    deviating = own[own["verdict"].isin(DEVIATING)]
    told = tuple(_deviation(row) for row in deviating[deviating["note"] != UNKNOWN].to_dict("records"))
    if absent := int((deviating["note"] == UNKNOWN).sum()):
        numbers_of = "number of the paper is" if absent == 1 else "numbers of the paper are"
        told = (*told, f"{absent} {numbers_of} about what is not in these results")
    missing = tuple(lines(figure.left_out(numbers)))
    return Shown(name, figure.title, svg, caption, bool(figure.warning(tables)), bool(len(own)), told, missing)


DEVIATING = ("differs", "does not hold", "unknown")
IN_THE_PAPER = {  # what is no number there, in a sentence
    NOT_IN_PAPER: "; the paper has no such number",
    IN_WORDS: "; the paper says it in words",
    AS_A_BAR: "; the paper has it as a bar",
}


def _deviation(row: Mapping[Any, Any]) -> str:
    value = "cannot be computed" if isnan(row["computed"]) else f"{row['computed']:.4g}"
    paper = IN_THE_PAPER.get(row["printed"], f"; the paper has {row['printed']}" if row["printed"] else "")
    return f"{row['what']}: {value}{paper}" + (f" ({row['note']})" if row["note"] else "")


def _headline_cells(table: pandas.DataFrame) -> Table:
    rows, is_own = [], has_own(table)
    for place, row in enumerate(table.to_dict("records")):
        computed = Cell("–") if isnan(row["computed"]) else Cell(digits(row["computed"], row), row["computed"])
        paper = None if isnan(row["paper"]) else row["paper"]
        verdict = row["verdict"]
        rows.append((
            Cell(str(row["figure"]), float(place), is_number=False), Cell(row["what"], is_number=False), computed,
            Cell(row["printed"] or "–", paper), *((_percent(row["difference"]),) if is_own else ()),
            Cell(verdict, note=row["note"], is_number=False, warns=verdict in DEVIATING), Cell(row["origin"], is_number=False),
        ))  # fmt: skip
    return Table(
        ("figure", "number", "computed", "paper", *(("difference",) if is_own else ()), "agrees", "origin"), tuple(rows)
    )


def _percent(difference: float) -> Cell:
    return Cell(in_percent(difference), None if isnan(difference) else difference)


def _own_cells(rows: pandas.DataFrame) -> Table:
    """Return a row for each own latency with a published latency of the same network, operator and device."""
    both = pandas.concat([timed(rows), timed(rows, layers=True)], ignore_index=True).dropna(subset=["published_ms"])
    cells = []
    for row in ordered(both, compiler=COMPILERS, device=DEVICES, model=MODELS).to_dict("records"):
        names = (", ".join(filter(None, [model_title(row["model"]), LAYERS.get(row["layer"], row["layer"])])),
                 operator_title(row["operator"]), compiler_title(row["compiler"]), row["place"])  # fmt: skip
        times = [(f"{row[name]:.4g}", row[name]) for name in ("latency_ms", "published_ms")]
        speedups = [(f"{row[name]:.2f}", row[name]) for name in ("speedup", "published_speedup")]
        cells.append((
            *(Cell(str(name), is_number=False) for name in names),
            *(Cell(*one) for one in times), _percent(percent(row["latency_ms"], row["published_ms"])),
            *(Cell("–") if isnan(one[1]) else Cell(*one) for one in speedups), _percent(row["difference"]),
        ))  # fmt: skip
    return Table((
        "network", "operator", "compiler", "device", "latency/ms", "published", "difference", "speedup", "published speedup",
        "difference of speedups",
    ), tuple(cells))  # fmt: skip


def _source_cells(rows: pandas.DataFrame) -> Table:
    """Return a row for each experiment and origin: networks, data sets, devices, compilers, and number of measurements."""
    cells = []
    for (experiment, origin), own in rows.groupby(["experiment", "origin"], sort=False, dropna=False):
        own = own.assign(device=_with_machines(own))
        names = [", ".join(map(str, dict.fromkeys(own[column].dropna()))) for column in ("data", "device", "compiler")]
        failed = int((own["status"] != OK).sum())
        cells.append((
            Cell(str(experiment) or "–", is_number=False), Cell(SHORT_ORIGINS.get(str(origin), str(origin)), is_number=False),
            Cell(", ".join(map(model_title, dict.fromkeys(own["model"].dropna()))), is_number=False),
            *(Cell(text or "–", is_number=False) for text in names),
            Cell(f"{len(own):,}", float(len(own))), Cell(str(failed), float(failed), warns=failed > 0),
        ))  # fmt: skip
    headings = ("experiment", "origin", "networks", "data", "devices", "compilers", "measurements", "failed")
    return Table(headings, tuple(cells))


def _with_machines(rows: pandas.DataFrame) -> list[Any]:
    """Return the names of the devices, each with the name of the own machine that stands for it, if one was measured."""
    stands = (rows["origin"] == "measured") & (rows["device"] != rows["machine"]) & rows["machine"].notna()
    columns = (rows["device"], rows["machine"], stands)
    return [f"{device} ({machine})" if is_other else device for device, machine, is_other in zip(*columns, strict=True)]


def published_results(rows: pandas.DataFrame, operators: Mapping[str, PGraph]) -> Run:
    """Return the operators' numbers as a run, each in the network that it was found for.

    That is the network in which the operator has an accuracy on the proxy data set, else the first network with any number.
    """
    rows = ready(rows)
    homes = _homes(rows, operators)
    times = timed(rows)
    scores = {(row["operator"], row["model"]): row for row in scored(rows, PROXY).to_dict("records")}
    scored_rows = [_score(rows, name, model, operators[name], scores.get((name, model), {})) for name, model in homes.items()]
    latencies = [
        _latency(row, operators[row["operator"]])
        for row in times.to_dict("records")
        if homes.get(row["operator"]) == row["model"] and row["operator"] != ORIGINAL
    ]
    known = {name: graph for name, graph in operators.items() if name in homes}
    return Run("published", scores=scored_rows, latencies=latencies, operators=known)


def _homes(rows: pandas.DataFrame, operators: Mapping[str, PGraph]) -> dict[str, str]:
    """Return the network for which each operator was found, by the operator's name (see `published_results`)."""
    known = rows[rows["operator"].isin(list(operators)) & rows["model"].notna()]
    is_score = known["metric"] == "accuracy"
    parts = (known[is_score & (known["data_role"] == PROXY)], known[is_score], known)
    first = pandas.concat(parts).drop_duplicates("operator")
    return dict(zip(first["operator"], first["model"], strict=True))


def _score(rows: pandas.DataFrame, name: str, model: str, graph: PGraph, scored_row: Mapping[Any, Any]) -> Score:
    own = rows[(rows["operator"] == name) & (rows["model"] == model) & (rows["status"] == OK) & rows["layer"].isna()]
    own = own[(own["data"] == scored_row["data"]) & (own["origin"] == scored_row["accuracy_origin"])] if scored_row else own
    values: dict[str, float] = {metric: float(value) for metric, value in _first_of_each(own)}
    score = scored_row.get("accuracy")
    return Score(
        name,
        "baseline" if own["is_baseline"].any() else ROLES.get(next(iter(own["origin"]), ""), "found"),
        metric="accuracy",
        score=None if score is None or isnan(score) else score,
        flops=values.get("flops"),
        parameters=values.get("parameters"),
        operator_id=graph.id,
    )


ROLES = {"artifact": "published", "measured": "found"}  # of operators on cards, by the origin of their numbers


def _first_of_each(rows: pandas.DataFrame) -> Iterator[tuple[str, float]]:
    firsts = rows.drop_duplicates("metric")
    yield from zip(firsts["metric"], firsts["value"], strict=True)


def _latency(row: Mapping[Any, Any], graph: PGraph) -> Latency:
    """Return the latency in a row. A kernel with the wrong guard counts as not compared with a reference."""
    return Latency(
        row["operator"], "published" if row["latency_origin"] == "artifact" else "found", "", "", row["place"],
        f"{model_title(row['model'])}, {SHORT_ORIGINS[row['latency_origin']]}", row["compiler"], OK, "",
        Interval(row["latency_ms"]), None if isnan(row["speedup"]) else row["speedup"],
        None if isnan(row["batch"]) else int(row["batch"]), None if isnan(row["threads"]) else int(row["threads"]),
        not row["is_wrong"], False, operator_id=graph.id,
    )  # fmt: skip
