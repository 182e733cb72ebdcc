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
from syno.report.operators.words import dependence
from syno.report.page_tables import (
    Cell,
    difference,
    latencies,
    latency,
    plain,
    quantity,
    score,
    score_rows,
    share,
)
from syno.run.goal import SCREENED
from syno.run.run import Run
from syno.run.story import setting
from syno.run.values import Latency, Score, Target
from syno.train.metric import OF_ORIGINAL


@dataclass(frozen=True)
class Code:
    """A highlighted text (source code or loops) of an operator, or the reason why there is none."""

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
        number: the card's number, from 1; ids of its elements on the page begin with it.
        facts: pairs of heading and value: score and costs.
        reads: lines on the input elements that an output element depends on.
        order: the numbers to sort by, as JSON.
        provenance: the trial that found the operator; empty if no trial did.
        usages: the commands that take it home; empty if commands cannot find it.
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


def cards(run: Run) -> list[Card]:
    """Return a card for each operator, the best score first."""
    known = {name: Score(name) for name in run.operators} | _searched(run)
    known |= {row.operator: row for row in score_rows(run)}
    measured, origins = latencies(run), _origins(run)

    def rank(name: str) -> float:
        value = known[name].score
        return inf if value is None else -run.metric.quality(value)

    return [
        _card(place, name, run, known[name], measured.get(name, {}), origins.get(name, ""))
        for place, name in enumerate(sorted(run.operators, key=rank), 1)
    ]


def is_scored(run: Run) -> bool:
    """Return whether any network was trained, in the search or after the selection."""
    return bool(run.scores) or any(run.metric.key in trial.metrics for trial in run.trials)


def of_search(row: Score) -> Cell:
    """Return a cell with an operator's FLOPs in the search: a share of the original's if known, else of a batch."""
    cell, part = quantity(row.flops), share(row.flops_share)
    return (
        cell if part.value is None else Cell(f"{part.text} of the original's", cell.value, f"{cell.note} as the search counts")
    )


def order_name(target: Target) -> str:
    """Return the page's name for sorting cards by the latency on this device with this compiler."""
    return f"latency, {target[1]} on {target[0]}"


def _searched(run: Run) -> dict[str, Score]:
    """Return the operators' scores and costs in the search, by name; {} if operators were trained again after it."""
    if run.scores:
        return {}
    found: dict[str, Score] = {}
    names = run.trial_operators
    for trial in run.trials:
        if trial.reward is not None:
            name, metrics = names[trial.number].name, trial.metrics
            flops, parameters = ((metrics.get(cost), metrics.get(f"{OF_ORIGINAL}{cost}")) for cost in ("flops", "parameters"))
            found[name] = Score(
                name, score=metrics.get(run.metric.key), reward=trial.reward,
                flops=flops[0], flops_share=_ratio(*flops), parameters=parameters[0], parameters_share=_ratio(*parameters),
            )  # fmt: skip
    return found


def _ratio(cost: float | None, original: float | None) -> float | None:
    return cost / original if cost is not None and original else None


def _origins(run: Run) -> dict[str, str]:
    """Return texts by the operator's name: the first trial that found it, with reward and date as far as known.

    For an operator that was screened out, the text has the reason in place of the reward.
    """
    found: dict[str, str] = {}
    names = run.trial_operators
    for trial in run.trials:
        name = names[trial.number].name
        if trial.outcome == SCREENED:
            found.setdefault(name, f"screened out in trial {trial.number}: {trial.message}")
        elif trial.outcome == "complete":
            parts = [f"found in trial {trial.number}", "" if trial.reward is None else f"reward {trial.reward:.4g}"]
            parts.append("" if trial.ended is None else f"on {trial.ended:%Y-%m-%d}")
            found.setdefault(name, ", ".join(filter(None, parts)))
    return found


def _card(place: int, name: str, run: Run, row: Score, times: dict[Target, Latency], provenance: str) -> Card:
    graph, metric = run.operators[name], run.metric
    trained = score(row, metric)
    best = {metric.name: trained.value} if is_scored(run) else {"reward": row.reward}
    order = {**best, "FLOPs": row.flops}
    order |= {order_name(target): latency(time).value for target, time in times.items()}
    scores = ((metric.heading, trained), ("difference", difference(row, metric))) if is_scored(run) else ()
    facts = (
        *((("reward", plain(row.reward)),) if row.reward is not None else ()),
        *scores,
        ("FLOPs", of_search(row) if row.reward is not None else quantity(row.flops, row.flops_share)),
        ("parameters", quantity(row.parameters, row.parameters_share)),
        ("id", Cell(graph.id[:8], note=graph.id)),
    )
    return Card(
        place, name, graph.id, row.role, to_svg(graph), _coloured(expression(graph)),
        tuple(dependence(graph).splitlines()), facts,
        tuple(_timings(times)), tuple(_codes(graph)), json.dumps(order), provenance,
        tuple(usages(run, name)) if run.kept.experiment else (),
    )  # fmt: skip


def _timings(times: dict[Target, Latency]) -> Iterator[LatencyRow]:
    for (device, compiler), row in sorted(times.items()):
        cell = latency(row)
        reason = cell.note if row.is_ok else row.reason
        yield LatencyRow(f"{compiler} on {device}", row.device_name, setting([row]), cell, reason)


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
