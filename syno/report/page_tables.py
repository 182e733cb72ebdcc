"""The tables of the page. Each cell has a text, a number to sort by, and a tooltip."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any, NamedTuple

import pandas

from syno.base.text_tables import shown
from syno.report.results import TRIAL_COLUMNS, Results, complete
from syno.results.goal_tables import GOAL_TIMED, SELECTED_BY, goal_speedup
from syno.results.metric import ScoreMetric
from syno.results.speedups import IN_SEARCH
from syno.results.table import LATENCY_COLUMNS, SCORE_COLUMNS
from syno.search.reward import CHANCE, OF_ORIGINAL

# The operators of trials: their names on the page, and their ids.


_ID = re.compile(r"^id ([0-9a-f]+)\s*$", re.MULTILINE)  # the last line of an operator's text


class TrialOperator(NamedTuple):
    """A trial's operator.

    Attributes:
        name: as in the other tables of the page, if it is in them; else that of the store, by the first trial that found it.
        id: of the operator; "" if the table does not have it.
    """

    name: str
    id: str


def trial_operators(results: Results) -> dict[int, TrialOperator]:
    """Return the operator of each trial, by the trial's number.

    All trials of a study have one name, which is that of the network. So an operator is recognized by its id.
    """
    known = {operator.id: name for name, operator in results.operators.items()}
    found: dict[int, TrialOperator] = {}
    for row in complete(results.trials, TRIAL_COLUMNS, "trials").to_dict("records"):
        number, name = int(row["number"]), str(row.get("name", ""))
        ids = _ID.findall(str(row.get("operator", "")))
        id_ = ids[-1] if ids else ""
        if id_:
            name = known.setdefault(id_, f"{results.name}_{number}")
        found[number] = TrialOperator(name, id_)
    return found


NOTHING = "–"
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHOWN_METRICS = ("flops", "original_flops", "parameters", "original_parameters")  # not once more at the end
Row = Mapping[Any, Any]
Target = tuple[str, str]  # device, compiler


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: The text that is shown.
        value: The number that rows are sorted by; None for texts and unknown numbers.
        note: The tooltip.
        card: The operator whose card it links to; "" for none.
        is_number: Whether it is aligned like a number.
        warns: Whether it is highlighted, because the number is not to be trusted.
    """

    text: str
    value: float | None = None
    note: str = ""
    card: str = ""
    is_number: bool = True
    warns: bool = False


@dataclass(frozen=True)
class Table:
    """Column headings, and a row of cells for each line."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def summary(results: Results) -> Table:
    """Return a row for each operator and the original: score, cost, and latency on each device with each compiler, if any."""
    metric, measured = results.metric, latencies(results)
    reached, judged = targets(measured.values()), "verdict" in results.scores
    fast = "goal_speedup" in results.scores
    rows = []
    for row in score_rows(results):
        name = str(row["operator"])
        times = measured.get(name, {})
        rows.append((
            word(name, card=name if name in results.operators else ""), word(row["role"]),
            score(row, metric), difference(row, metric),
            *((speedup(row),) if fast else ()), *((verdict(row),) if judged else ()),
            quantity(row["flops"], row["flops_share"]), quantity(row["parameters"], row["parameters_share"]),
            *(latency(times.get(target)) for target in reached),
        ))  # fmt: skip
    asked = (*(("speedup",) if fast else ()), *(("goal",) if judged else ()))
    timed = (f"{compiler} on {device}" for device, compiler in reached)
    columns = ("operator", "role", metric.heading, "difference", *asked, "FLOPs", "parameters", *timed)
    known = [
        place for place in range(len(columns)) if not results.scores.empty or any(row[place].text != NOTHING for row in rows)
    ]
    return Table(tuple(columns[place] for place in known), tuple(tuple(row[place] for place in known) for row in rows))


def trial_lines(results: Results) -> Table:
    """Return a row for each trial."""
    trials, metric = complete(results.trials, TRIAL_COLUMNS, "trials"), results.metric
    measured = [str(name) for name in trials.columns if str(name).startswith("metric_")]
    of_original = (f"{OF_ORIGINAL}{metric.name}", f"{CHANCE}{metric.name}")  # the same in every row
    more = [name for name in measured if name.removeprefix("metric_") not in (*SHOWN_METRICS, metric.name, *of_original)]
    names, rows = trial_operators(results), []
    for row in trials.to_dict("records"):
        name, id_ = names[int(row["number"])]
        flops, original = number(row.get("metric_flops")), number(row.get("metric_original_flops"))
        rows.append((
            plain(row["number"]), word(row["outcome"]), plain(row["reward"]), plain(row.get(metric.column)),
            share(flops / original if flops is not None and original else None), quantity(row.get("metric_parameters")),
            plain(row.get("seconds")), word(name, card=name if name in results.operators else "", note=id_),
            word(row.get("message", "")), *(plain(row[name]) for name in more),
        ))  # fmt: skip
    headings = (
        "trial", "outcome", "reward", metric.heading, "FLOPs of original", "parameters", "seconds", "operator", "message",
    )  # fmt: skip
    return Table((*headings, *(name.removeprefix("metric_").replace("_", " ") for name in more)), tuple(rows))


def score_rows(results: Results) -> list[dict[Any, Any]]:
    """Return the rows of the table of scores, and an empty one for each operator that has a latency only."""
    rows = complete(results.scores, SCORE_COLUMNS, "scores").to_dict("records")
    seen = {str(row["operator"]) for row in rows}
    for times in latencies(results).values():
        first: Row = next(iter(times.values()))
        if str(first["operator"]) not in seen:
            rows.append(dict.fromkeys(SCORE_COLUMNS) | {name: first[name] for name in ("operator", "operator_id", "role")})
    return rows


def latencies(results: Results) -> dict[str, dict[Target, Row]]:
    """Return the latencies of each operator, by device and compiler."""
    found: dict[str, dict[Target, Row]] = {}
    for row in complete(results.latency, LATENCY_COLUMNS, "latency").to_dict("records"):
        found.setdefault(str(row["operator"]), {})[str(row["device"]), str(row["compiler"])] = row
    return found


def targets(measured: Iterable[Mapping[Target, Row]]) -> list[Target]:
    """Return all pairs of a device and a compiler."""
    return sorted({target for times in measured for target in times})


def number(value: Any) -> float | None:
    """Return a cell of a table as a number; None where it has none."""
    return None if value is None or isinstance(value, str) or pandas.isna(value) else float(value)


def word(text: Any, card: str = "", note: str = "") -> Cell:
    """Return a cell with a text."""
    return Cell("" if text is None or text is pandas.NA or text != text else str(text), note=note, card=card, is_number=False)


def plain(value: Any) -> Cell:
    """Return a cell with a number as it is. An infinite loss, from a training that diverged, is shown but not sorted by."""
    known = number(value)
    if known is None:
        return Cell(NOTHING)
    return Cell(shown(int(known) if known.is_integer() else known), known if isfinite(known) else None)


def quantity(value: Any, of_original: Any = None) -> Cell:
    """Return a cell with a large number, such as `1.28 M (41 %)`. The share is of the original; the tooltip has all digits."""
    known, part = number(value), share(of_original)
    if known is None:
        return Cell(NOTHING)
    size, prefix = next(((size, prefix) for size, prefix in PREFIXES if abs(known) >= size), (1.0, ""))
    text = f"{known / size:.3g} {prefix}".strip() + (f" ({part.text})" if part.value is not None else "")
    return Cell(text, known, f"{known:,.0f}")


def share(value: Any) -> Cell:
    """Return a cell with a percentage."""
    known = number(value)
    return Cell(NOTHING) if known is None else Cell(f"{100 * known:.3g} %", known)


def verdict(row: Row) -> Cell:
    """Return a cell with the verdict on an operator by the goal of the search; the tooltip has the reason."""
    found = word(row.get("verdict"))
    return Cell(found.text or NOTHING, note=word(row.get("verdict_reason")).text, is_number=False)


def speedup(row: Row) -> Cell:
    """Return a cell with the speedup that the goal is about, and its interval."""
    timed = word(row.get(GOAL_TIMED)).text
    notes = ["by the compiler and on the device of the goal", SELECTED_BY if timed == IN_SEARCH else timed]
    return Cell(goal_speedup(row) or NOTHING, number(row.get("goal_speedup")), "; ".join(filter(None, notes)))


def score(row: Row, metric: ScoreMetric) -> Cell:
    """Return a cell with a mean score and its standard deviation."""
    mean, spread, seeds = number(row["score"]), number(row["score_std"]), number(row["seeds"])
    if mean is None:
        return Cell(NOTHING)
    note = "" if seeds is None else "one seed" if seeds == 1 else f"mean and standard deviation of {seeds:.0f} seeds"
    text = metric.text(mean, nan if spread is None else spread)
    return Cell(text, mean if isfinite(mean) else None, note)


def difference(row: Row, metric: ScoreMetric) -> Cell:
    """Return a cell with the difference of a score from the original's and its interval, if they are known."""
    known = [number(row[name]) for name in ("difference", "difference_low", "difference_high")]
    value, low, high = (nan if one is None else one for one in known)
    text = metric.difference_text(value, low, high)
    return Cell(NOTHING) if text is None else Cell(text, value, "score minus the original's; Welch's interval over seeds")


def latency(row: Row | None) -> Cell:
    """Return a cell with a latency and its speedup, or why there is none."""
    if row is None:
        return Cell(NOTHING)
    time, speedup = number(row["latency_ms"]), number(row["speedup"])
    if row["status"] != "ok" or time is None:
        return Cell("partial" if row["status"] == "partial" else "failed", note=word(row["reason"]).text, warns=True)
    low, high = number(row["latency_low_ms"]), number(row["latency_high_ms"])
    notes = [] if low is None or high is None else [f"95 % interval {digits(low)} to {digits(high)} ms"]
    if row["checked"] is False:
        notes.append("its output was not compared with a reference")
    if suspicious := row["suspicious"] is True:
        notes.append("faster than the device's peak speed: not to be trusted")
    text = f"{digits(time)} ms" + ("" if speedup is None else f" ({speedup:.2f}×)") + (" ?" if suspicious else "")
    return Cell(text, time, "; ".join(notes), warns=suspicious)


def digits(value: float) -> str:
    """Return a number with at least three significant digits."""
    return f"{value:.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def setting(times: Sequence[Row]) -> str:
    """Return the batch and the threads of measurements as text; what differs between them is left out."""
    batches, threads = ({number(row[name]) for row in times} - {None} for name in ("batch", "threads"))
    parts = [f"batch of {batch:.0f}" for batch in batches] if len(batches) == 1 else []
    parts += [f"{count:.0f} thread{'' if count == 1 else 's'}" for count in threads] if len(threads) == 1 else []
    return ", ".join(parts)
