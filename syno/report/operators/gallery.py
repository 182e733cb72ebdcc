"""The operators of a report's page, each on a card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from syno.base.errors import SynoError
from syno.ir.coordinates import expression, loop_nest
from syno.ir.drawing import to_svg
from syno.ir.graph import PGraph
from syno.lower.pytorch.source import to_source
from syno.report.commands import Usage, usages
from syno.report.operators.dependence import dependence
from syno.report.page_tables import (
    Cell,
    Row,
    Target,
    difference,
    latencies,
    latency,
    number,
    plain,
    quantity,
    score,
    score_rows,
    setting,
    share,
    trial_operators,
    word,
)
from syno.report.results import TRIAL_COLUMNS, Results, complete, metrics_of
from syno.results.goal_tables import SCREENED
from syno.results.table import SCORE_COLUMNS
from syno.search.reward import OF_ORIGINAL


@dataclass(frozen=True)
class Code:
    """A highlighted text about an operator, or the reason why there is none."""

    title: str
    html: Markup
    missing: str = ""


@dataclass(frozen=True)
class LatencyRow:
    """A row of a card's table of latencies."""

    target: str
    device_name: str
    setting: str
    cell: Cell
    reason: str


@dataclass(frozen=True)
class Card:
    """The content of one operator's card.

    Attributes:
        number: of the card, from 1; its ids on the page begin with it.
        facts: score and cost, with their headings.
        reads: lines on the input elements that an output element depends on.
        order: the numbers to sort by, as JSON.
        provenance: the trial that found it; empty where none did.
        usages: how to take it home; none where commands cannot find it.
    """

    number: int
    name: str
    id: str
    role: str
    drawing: str
    expression: Markup
    reads: tuple[str, ...]
    facts: tuple[tuple[str, Cell], ...]
    timings: tuple[LatencyRow, ...]
    codes: tuple[Code, ...]
    order: str
    provenance: str
    usages: tuple[Usage, ...] = ()


def cards(results: Results) -> list[Card]:
    """Return a card for each operator, the best score first."""
    known = {**_searched(results), **{str(row["operator"]): row for row in score_rows(results)}}
    measured, origins = latencies(results), _origins(results)

    def rank(name: str) -> float:
        value = number(known.get(name, {}).get("score"))
        return inf if value is None else -results.metric.quality(value)

    return [
        _card(place, name, results, known.get(name, {}), measured.get(name, {}), origins.get(name, ""))
        for place, name in enumerate(sorted(results.operators, key=rank), 1)
    ]


def is_scored(results: Results) -> bool:
    """Return whether some network was trained, again or in the search."""
    return not results.scores.empty or results.metric.column in results.trials


def of_search(row: Row) -> Cell:
    """Return a cell with the FLOPs of the search, as a share if known: they are of a batch or of the replaced layers."""
    cell, part = quantity(row["flops"]), share(row["flops_share"])
    return (
        cell if part.value is None else Cell(f"{part.text} of the original's", cell.value, f"{cell.note} as the search counts")
    )


def order_name(target: Target) -> str:
    """Return the name of the sorting by latency on this device with this compiler."""
    return f"latency, {target[1]} on {target[0]}"


def _searched(results: Results) -> dict[str, Row]:
    """Return, by name, the scores and costs of operators in the search, where no operator was trained again."""
    if not results.scores.empty:
        return {}
    found: dict[str, Row] = {}
    names = trial_operators(results)
    for row in complete(results.trials, TRIAL_COLUMNS, "trials").to_dict("records"):
        metrics = metrics_of(row)
        costs = {name: metrics.get(name) for name in ("flops", "parameters")}
        shares = {
            f"{name}_share": cost / original
            for name, cost in costs.items()
            if cost is not None and (original := metrics.get(f"{OF_ORIGINAL}{name}"))
        }
        given = {"score": metrics.get(results.metric.name), "reward": row["reward"], **costs, **shares}
        if number(row["reward"]) is not None:
            found[names[int(row["number"])].name] = given
    return found


def _origins(results: Results) -> dict[str, str]:
    """Return, by name, the first trial that found an operator, its reward and its date, as far as the table has them.

    Of an operator that was screened out, it is the reason.
    """
    found: dict[str, str] = {}
    trials, names = complete(results.trials, TRIAL_COLUMNS, "trials"), trial_operators(results)
    for row in trials[trials["outcome"].isin(("complete", SCREENED))].to_dict("records"):
        if row["outcome"] == SCREENED:
            found.setdefault(names[int(row["number"])].name, f"screened out in trial {row['number']}: {row['message']}")
            continue
        reward, ended = number(row["reward"]), row.get("ended")
        parts = [f"found in trial {row['number']}", "" if reward is None else f"reward {reward:.4g}"]
        parts.append("" if ended is None or ended != ended else f"on {ended:%Y-%m-%d}")
        found.setdefault(names[int(row["number"])].name, ", ".join(filter(None, parts)))
    return found


def _card(place: int, name: str, results: Results, row: Row, times: dict[Target, Row], provenance: str) -> Card:
    graph, metric = results.operators[name], results.metric
    row = {**dict.fromkeys(SCORE_COLUMNS), **row}
    trained = score(row, metric)
    best = {metric.name: trained.value} if is_scored(results) else {"reward": number(row.get("reward"))}
    order = {**best, "FLOPs": number(row["flops"])}
    order |= {order_name(target): latency(time).value for target, time in times.items()}
    scores = ((metric.heading, trained), ("difference", difference(row, metric))) if is_scored(results) else ()
    facts = (
        *((("reward", plain(row["reward"])),) if "reward" in row else ()),
        *scores,
        ("FLOPs", of_search(row) if "reward" in row else quantity(row["flops"], row["flops_share"])),
        ("parameters", quantity(row["parameters"], row["parameters_share"])),
        ("id", Cell(graph.id[:8], note=graph.id)),
    )
    return Card(
        place, name, graph.id, word(row.get("role")).text, to_svg(graph), _coloured(expression(graph)),
        tuple(dependence(graph).splitlines()), facts,
        tuple(_timings(times)), tuple(_codes(graph)), json.dumps(order), provenance,
        tuple(usages(results, name)) if results.kept.experiment else (),
    )  # fmt: skip


def _timings(times: dict[Target, Row]) -> Iterator[LatencyRow]:
    for (device, compiler), row in sorted(times.items()):
        cell, names = latency(row), word(row["device_name"]).text
        reason = word(row["reason"]).text if row["status"] != "ok" else cell.note
        yield LatencyRow(f"{compiler} on {device}", names, setting([row]), cell, reason)


def _codes(graph: PGraph) -> Iterator[Code]:
    for title, generate in (("Loop nest", loop_nest), ("PyTorch", to_source)):
        try:
            yield Code(title, _coloured(generate(graph)))
        except SynoError as error:
            yield Code(title, Markup(""), f"There is no code for this operator: {error}")
    yield Code("Text", Markup.escape(str(graph)))


def _coloured(code: str) -> Markup:
    formatter: Any = HtmlFormatter(nowrap=True, noclasses=True, style="default")
    return Markup(highlight(code, PythonLexer(), formatter).rstrip("\n"))  # it escapes the code
