"""The numbers of the verdict at the top of the page, and how it tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

from syno.base.files import ORIGINAL
from syno.report.page_tables import Target, number, setting, word
from syno.report.results import Results, complete
from syno.results.goal import Span, speedup_in
from syno.results.measurement import INT8, INT8_COMPILER
from syno.results.metric import ScoreMetric
from syno.results.speedups import APART, IN_SEARCH, IN_TURNS, SPEEDUP_COLUMNS
from syno.results.table import LATENCY_COLUMNS, SCORE_COLUMNS
from syno.search.reward_contract import OF_ORIGINAL

WITHIN = {"accuracy": 0.01, "loss": 0.05}  # what a network may lose of the score, where no goal says it
Speedups = Mapping[str, tuple[str, Span]]  # role and speedup of each network


@dataclass(frozen=True)
class Margin:
    """The loss of score that a network may have: as much as the goal allows, else `WITHIN`. `most` is a score."""

    metric: ScoreMetric
    most: float

    @property
    def words(self) -> str:
        """The margin with its unit, such as `1 point`."""
        steps = self.most / self.metric.step
        return f"{steps:g} {self.metric.step_name.removesuffix('s') if steps == 1 else self.metric.step_name}"


@dataclass(frozen=True)
class Network:
    """A network with an operator: what is known of it. Unknown numbers are NaN."""

    name: str
    role: str
    score: float
    lost: Span  # how much worse than the original's its score is; below 0 for a better one
    flops: float  # as a share of the original's
    state: str  # of the verdict by the goal; "" without one
    seeds: float = nan


def margin_of(results: Results) -> Margin:
    """Return how much a network may lose."""
    asked = None if results.aim is None else results.aim.lose_at_most
    return Margin(results.metric, WITHIN[results.metric.name] if asked is None else asked)


def rows_of(table: Any, columns: Sequence[str], what: str) -> list[dict[Any, Any]]:
    """Return the rows of a table. SpecError if it lacks a column."""
    return list(complete(table, columns, what).to_dict("records"))


def trained_rows(results: Results) -> list[dict[Any, Any]]:
    """Return the scores of networks other than the original, as far as they are finite."""
    rows = rows_of(results.scores, SCORE_COLUMNS, "scores")
    return [row for row in rows if row["role"] != ORIGINAL and number(row["score"]) is not None and isfinite(row["score"])]


def network_of(row: Mapping[Any, Any], metric: ScoreMetric) -> Network:
    """Return what a row of scores says of a network."""
    value, low, high = (_or_nan(row[name]) for name in ("difference", "difference_low", "difference_high"))
    lost = Span(-value, -high, -low) if metric.more_is_better else Span(value, low, high)
    state = row.get("verdict")
    return Network(
        str(row["operator"]), str(row["role"]), float(row["score"]), lost, _or_nan(row["flops_share"]),
        state if isinstance(state, str) else "", _or_nan(row["seeds"]),
    )  # fmt: skip


def _or_nan(value: Any) -> float:
    known = number(value)
    return nan if known is None else known


def speedups_by_target(results: Results) -> dict[Target, Speedups]:
    """Return the speedups by device and compiler, the goal's first.

    A latency below what the device's peak speed allows is not counted, and neither is one in 8-bit integers, since the scores
    are of networks in floating point.
    """
    found: dict[Target, dict[str, tuple[str, Span]]] = {}
    for row in rows_of(results.speedups, SPEEDUP_COLUMNS, "speedups"):
        if row["suspicious"] is True or str(row["compiler"]).endswith(INT8_COMPILER) or number(row["speedup"]) is None:
            continue
        span = Span(*(_or_nan(row[name]) for name in ("speedup", "speedup_low", "speedup_high")))
        found.setdefault((str(row["device"]), str(row["compiler"])), {})[str(row["operator"])] = (str(row["role"]), span)
    wanted = None if results.aim is None else (results.aim.device, results.aim.compiler)
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != wanted, pair[0])))


def speed_text(span: Span) -> str:
    """Return a speedup with its interval, and whether that leaves open which of the two is faster."""
    text = f"{span.value:.2f} times as fast"
    if not span.is_certain:
        return text
    doubt = "; the interval contains 1" if span.low <= 1 <= span.high else ""
    return f"{text} (95 %: {span.low:.2f} to {span.high:.2f}{doubt})"


def score_text(network: Network, original: Mapping[Any, Any], metric: ScoreMetric) -> str:
    """Return how a network's score compares. Without an interval, both scores are told in place of their difference."""
    lost = network.lost
    if not lost.is_certain:
        theirs = number(original.get("score"))
        of = "" if theirs is None else f"; the original's is {metric.text(theirs)}, and no interval of the difference is known"
        return f"{metric.name} {metric.text(network.score)}{of}"
    sign = -1 if metric.more_is_better else 1
    value, *ends = (sign * end / metric.step for end in lost)
    low, high = (f"{end:+z.{metric.digits}f}" for end in sorted(ends))
    size = f"{abs(value):.{metric.digits}f}"
    way = "higher" if value > 0 else "lower"
    way = f"{size} {metric.step_name} {way}" if float(size) else f"the same to {10**-metric.digits:g} {metric.step_name}"
    return f"{metric.name} {way} (95 %: {low} to {high})"


def doubt_text(network: Network, most: float, metric: ScoreMetric) -> str:
    """Return how far the interval of a network's score leaves open whether it loses at most `most`; "" if it does not."""
    lost = network.lost
    if not (lost.is_certain and lost.low <= most < lost.high):
        return ""
    allowed = Margin(metric, most).words
    where = f"where {allowed} may be lost" if lost.value > most else f"within the {allowed} that may be lost"
    return f"{score_text(network, {}, metric)}, {where}: {network.seeds:.0f} seeds cannot tell, more would narrow the interval"


def measured_in_search(metrics: Mapping[str, float], metric: ScoreMetric) -> list[str]:
    """Return the score and the speedup of a trial, as far as its metrics have them."""
    found = []
    if metric.name in metrics:
        original = metrics.get(f"{OF_ORIGINAL}{metric.name}")
        beside = "" if original is None else f" (the original's: {metric.text(original)})"
        found.append(f"{metric.name} {metric.text(metrics[metric.name])}{beside}")
    if (speedup := speedup_in(metrics)) is not None:
        found.append(speed_text(speedup))
    return found


def measured(results: Results) -> str:
    """Return what was measured, and where; "" if nothing was."""
    parts = []
    trained = [row for row in rows_of(results.scores, SCORE_COLUMNS, "scores") if number(row["seeds"]) is not None]
    trained = [row for row in trained if row["operator"] != INT8]  # the original once more
    if trained:
        seeds = sorted({int(row["seeds"]) for row in trained})
        each = f"{seeds[0]} seed{'' if seeds == [1] else 's'}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        parts.append(f"{results.metric.name} of {len(trained)} trained networks, {each} each")
    rows = rows_of(results.latency, LATENCY_COLUMNS, "latency")
    rows = [row for row in rows if row["status"] == "ok"]
    for device in dict.fromkeys(str(row["device"]) for row in rows):
        here = [row for row in rows if str(row["device"]) == device]
        names = dict.fromkeys(filter(None, (word(row["device_name"]).text for row in here)))
        compilers = ", ".join(dict.fromkeys(str(row["compiler"]) for row in here))
        where = "; ".join(filter(None, [*names, setting(here)]))
        parts.append(f"latency of whole networks on {device}{f' ({where})' if where else ''} with {compilers}")
    in_turns = [row for row in rows_of(results.speedups, SPEEDUP_COLUMNS, "speedups") if row["timed"] != APART]
    for place in dict.fromkeys((str(row["compiler"]), str(row["device"])) for row in in_turns):
        timed = {row["timed"] for row in in_turns if (str(row["compiler"]), str(row["device"])) == place}
        when = " after the selection" if IN_TURNS in timed else " in the search" if IN_SEARCH in timed else ""
        parts.append(f"speedups with {place[0]} on {place[1]}, timed in turns with the original{when}")
    return f"Measured: {'; '.join(parts)}." if parts else ""
