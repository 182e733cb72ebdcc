"""The verdict at the top of the page: the fastest operator that costs little of the score, from what was measured.

A latency below what the device's peak speed allows is not counted, and neither is one in 8-bit integers, since the scores are
of networks in floating point. Where nothing is faster, or something was not measured, the verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import Any

from syno.base.files import ORIGINAL
from syno.report.page_tables import Target, number, setting, share
from syno.report.results import Results, complete, rewarded
from syno.report.trial_operators import trial_operators
from syno.results.goal import STATES, Span
from syno.results.measurement import INT8
from syno.results.metric import ScoreMetric
from syno.results.paper import INT8_COMPILER
from syno.results.speedups import APART, SPEEDUP_COLUMNS
from syno.results.table import LATENCY_COLUMNS, SCORE_COLUMNS

WITHIN = {"accuracy": 0.01, "loss": 0.05}  # what a network may lose of the score, where no goal says it
BEST = {"fastest": "fastest", "most_accurate": "most accurate", "front": "fastest"}
FOUND = "found"


@dataclass(frozen=True)
class Line:
    """A sentence of the verdict: an operator's name, which links to its card, between two texts. The name may be ""."""

    before: str
    operator: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """The whole sentence."""
        return self.before + self.operator + self.after


@dataclass(frozen=True)
class _Margin:
    """What a network may lose of the score, by what is asked for or usual."""

    metric: ScoreMetric
    most: float

    @property
    def words(self) -> str:
        steps = self.most / self.metric.step
        return f"{steps:g} {self.metric.step_name.removesuffix('s') if steps == 1 else self.metric.step_name}"


@dataclass(frozen=True)
class _Network:
    """A network with an operator: what is known of it. Unknown numbers are NaN."""

    name: str
    role: str
    score: float
    lost: Span  # how much worse than the original's its score is; below 0 for a better one
    flops: float  # as a share of the original's
    state: str  # of the verdict by the goal; "" without one


def verdict_lines(results: Results) -> list[Line]:
    """Return sentences: an answer for each compiler and device, the goal's first, and at last what was measured."""
    metric, margin = results.metric, _margin(results)
    networks = {one.name: one for one in (_network(row, metric) for row in _trained(results))}
    original = next((row for row in _rows(results.scores, SCORE_COLUMNS, "scores") if row["role"] == ORIGINAL), {})
    timed = _speedups(results)
    lines = [] if results.aim is None else _by_goal(results, list(networks.values()), timed)
    for target, speedups in timed.items():
        lines.append(_fastest(f"with {target[1]} on {target[0]}", speedups, networks, original, margin))
    if not timed and networks:
        lines.append(_cheapest(list(networks.values()), original, margin))
    if not lines:
        lines.append(_of_search(results))
    return [*lines, *_measured(results, timed)]


def _margin(results: Results) -> _Margin:
    asked = None if results.aim is None else results.aim.lose_at_most
    return _Margin(results.metric, WITHIN[results.metric.name] if asked is None else asked)


def _rows(table: Any, columns: Sequence[str], what: str) -> list[dict[Any, Any]]:
    return list(complete(table, columns, what).to_dict("records"))


def _trained(results: Results) -> list[dict[Any, Any]]:
    rows = _rows(results.scores, SCORE_COLUMNS, "scores")
    return [row for row in rows if row["role"] != ORIGINAL and number(row["score"]) is not None and isfinite(row["score"])]


def _network(row: Mapping[Any, Any], metric: ScoreMetric) -> _Network:
    value, low, high = (_or_nan(row[name]) for name in ("difference", "difference_low", "difference_high"))
    lost = Span(-value, -high, -low) if metric.more_is_better else Span(value, low, high)
    state = row.get("verdict")
    return _Network(
        str(row["operator"]), str(row["role"]), float(row["score"]), lost, _or_nan(row["flops_share"]),
        state if isinstance(state, str) else "",
    )  # fmt: skip


def _or_nan(value: Any) -> float:
    known = number(value)
    return nan if known is None else known


def _speedups(results: Results) -> dict[Target, dict[str, tuple[str, Span]]]:
    """Return role and speedup of each network by device and compiler, the goal's first."""
    found: dict[Target, dict[str, tuple[str, Span]]] = {}
    for row in _rows(results.speedups, SPEEDUP_COLUMNS, "speedups"):
        if row["suspicious"] is True or str(row["compiler"]).endswith(INT8_COMPILER) or number(row["speedup"]) is None:
            continue
        span = Span(*(_or_nan(row[name]) for name in ("speedup", "speedup_low", "speedup_high")))
        found.setdefault((str(row["device"]), str(row["compiler"])), {})[str(row["operator"])] = (str(row["role"]), span)
    wanted = None if results.aim is None else (results.aim.device, results.aim.compiler)
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != wanted, pair[0])))


# ---- sentences --------------------------------------------------------------------------------------------------------------


def _by_goal(
    results: Results, networks: Sequence[_Network], timed: Mapping[Target, Mapping[str, tuple[str, Span]]]
) -> list[Line]:
    """Return how many operators meet the goal; nothing if none was judged."""
    judged = [one for one in networks if one.role == FOUND and one.state in STATES]
    if not judged:
        return []
    counts = {state: sum(one.state == state for one in judged) for state in STATES}
    if counts["meets"]:
        find = "front" if results.aim is None else results.aim.find or "front"
        best = _best_of([one for one in judged if one.state == "meets"], find, results, timed)
        start = f"The goal is met by {counts['meets']} of {_operators(len(judged))}. "
        return [Line(f"{start}The {BEST[find]} of them: " if counts["meets"] > 1 else f"{start}It is ", best.name, ".")]
    if counts["may meet"]:
        return [Line(
            f"Whether the goal is met is not certain: {counts['may meet']} of {_operators(len(judged))} may meet it, since an "
            "interval contains the limit."
        )]  # fmt: skip
    if counts["unknown"] == len(judged):
        return [Line("Whether the goal is met is not known, since something was not measured.")]
    return [Line(f"The goal is not met by any of {_operators(len(judged))}.")]


def _best_of(
    met: Sequence[_Network], find: str, results: Results, timed: Mapping[Target, Mapping[str, tuple[str, Span]]]
) -> _Network:
    if find == "most_accurate" or results.aim is None:
        return max(met, key=lambda one: results.metric.quality(one.score))
    speedups = timed.get((results.aim.device, results.aim.compiler), {})
    return max(met, key=lambda one: speedups[one.name][1].value if one.name in speedups else -inf)


def _operators(count: int) -> str:
    return f"{count} operator{'' if count == 1 else 's'}"


def _fastest(
    where: str,
    speedups: Mapping[str, tuple[str, Span]],
    networks: Mapping[str, _Network],
    original: Mapping[Any, Any],
    margin: _Margin,
) -> Line:
    """Return which found operator is the fastest within the margin by one compiler on one device, or why none is."""
    metric, words = margin.metric, margin.words
    fastest = sorted(speedups, key=lambda name: -speedups[name][1].value)
    found = [name for name in fastest if speedups[name][0] == FOUND]
    if not found:
        return Line(f"No operator of the search was measured {where}.")
    scored = [name for name in found if name in networks and not isnan(networks[name].lost.value)]
    if not scored:
        best = found[0]
        score = f"; its {metric.name} and the original's were not both measured"
        return Line(f"The fastest {where}: ", best, f", {_speed(speedups[best][1])}{score}.")
    near = [name for name in scored if networks[name].lost.value <= margin.most]
    if not near:
        best = min(scored, key=lambda name: networks[name].lost.value)
        return Line(
            f"No operator is within {words} of the original's {metric.name}. The nearest: ", best,
            f", {_score(networks[best], original, metric)}, {_speed(speedups[best][1])} {where}.",
        )  # fmt: skip
    best = near[0]
    speed, network = speedups[best][1], networks[best]
    also = "" if not network.lost.high > margin.most else f"; the interval of the {metric.name} reaches beyond {words}"
    numbers = f"{_speed(speed)}, {_score(network, original, metric)}{also}"
    if speed.value <= 1:
        return Line(
            f"No operator within {words} of the original's {metric.name} is faster than the original {where}. The fastest: ",
            best, f", {numbers}.",
        )  # fmt: skip
    ahead = fastest[: fastest.index(best)]
    known = [one for one in ahead if speedups[one][0] != FOUND and one in networks and networks[one].lost.value <= margin.most]
    faster = "" if not known else f" A known operator is faster: {known[0]}, {_speed(speedups[known[0]][1])}."
    return Line(f"Fastest within {words} {where}: ", best, f", {numbers}.{faster}")


def _cheapest(networks: Sequence[_Network], original: Mapping[Any, Any], margin: _Margin) -> Line:
    """Return which found operator has the fewest FLOPs within the margin, where no latency is known."""
    metric, words = margin.metric, margin.words
    start = "No speedup of a whole network was measured. "
    found = [one for one in networks if one.role == FOUND]
    if not found:
        return Line(f"{start}No operator of the search was trained again.")
    near = [one for one in found if one.lost.value <= margin.most and not isnan(one.flops)]
    if near:
        best = min(near, key=lambda one: one.flops)
        cost = f"{share(best.flops).text} of the original's"
        return Line(f"{start}The fewest FLOPs within {words}: ", best.name, f", {cost}, {_score(best, original, metric)}.")
    best = max(found, key=lambda one: metric.quality(one.score))
    none = "" if isnan(best.lost.value) else f"No operator is within {words} of the original's {metric.name}. "
    return Line(f"{start}{none}The best {metric.name}: ", best.name, f", {_score(best, original, metric)}.")


def _of_search(results: Results) -> Line:
    """Return the best trial, where nothing was trained again or measured."""
    trials = results.trials
    done = trials if trials.empty else rewarded(trials)
    layers = "" if results.layers.empty else " Single layers were measured: see Layers."
    start = f"No network was trained again or measured, so nothing is known of speed and score.{layers}"
    if done.empty:
        return Line(start)
    best = done.sort_values(["reward", "number"], ascending=[False, True]).iloc[0]
    shown = trial_operators(results)[int(best["number"])]
    name = shown.name if shown.name in results.operators else ""
    return Line(f"{start} The highest reward of the search is {best['reward']:.4g}: ", name, f"{'' if name else shown.name}.")


def _speed(span: Span) -> str:
    text = f"{span.value:.2f} times as fast"
    if not span.is_certain:
        return text
    doubt = "; the interval contains 1" if span.low <= 1 <= span.high else ""
    return f"{text} (95 %: {span.low:.2f} to {span.high:.2f}{doubt})"


def _score(network: _Network, original: Mapping[Any, Any], metric: ScoreMetric) -> str:
    """Return how a network's score compares. Without an interval, both scores are told in place of their difference."""
    lost = network.lost
    if not lost.is_certain:
        theirs = number(original.get("score"))
        of = "" if theirs is None else f"; the original's is {metric.text(theirs)}, and no interval of the difference is known"
        return f"{metric.name} {metric.text(network.score)}{of}"
    sign = -1 if metric.more_is_better else 1
    value, *ends = (sign * end / metric.step for end in lost)
    low, high = (f"{end:+z.{metric.digits}f}" for end in sorted(ends))
    size = f"{abs(value):.{metric.digits}f} {metric.step_name}"
    way = f"{size} {'higher' if value > 0 else 'lower'}" if float(size.split()[0]) else f"the same to {10**-metric.digits:g}"
    return f"{metric.name} {way} (95 %: {low} to {high})"


def _measured(results: Results, timed: Mapping[Target, object]) -> list[Line]:
    """Return what was measured, and where."""
    parts = []
    trained = [row for row in _rows(results.scores, SCORE_COLUMNS, "scores") if number(row["seeds"]) is not None]
    trained = [row for row in trained if row["operator"] != INT8]  # the original once more
    if trained:
        seeds = sorted({int(row["seeds"]) for row in trained})
        each = f"{seeds[0]} seed{'' if seeds == [1] else 's'}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        parts.append(f"{results.metric.name} of {len(trained)} trained networks, {each} each")
    rows = _rows(results.latency, LATENCY_COLUMNS, "latency")
    for device in dict.fromkeys(str(row["device"]) for row in rows):
        here = [row for row in rows if str(row["device"]) == device]
        names = dict.fromkeys(str(row["device_name"]) for row in here if row["device_name"])
        compilers = ", ".join(dict.fromkeys(str(row["compiler"]) for row in here))
        where = "; ".join(filter(None, [*names, setting(here)]))
        parts.append(f"latency of whole networks on {device}{f' ({where})' if where else ''} with {compilers}")
    in_turns = [row for row in _rows(results.speedups, SPEEDUP_COLUMNS, "speedups") if row["timed"] != APART]
    places = dict.fromkeys(f"{row['compiler']} on {row['device']}" for row in in_turns)
    parts += [f"speedups with {place}, timed in turns with the original" for place in places]
    return [Line(f"Measured: {'; '.join(parts)}.")] if parts else []
