"""The verdict at the top of the page: the fastest operator that costs little of the score, from what was measured.

Where nothing is faster, or something was not measured, the verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

from syno.base.files import ORIGINAL
from syno.report.page_tables import Target, share
from syno.report.results import Results, metrics_of, rewarded
from syno.report.trial_operators import trial_operators
from syno.report.verdict_numbers import (
    Margin,
    Network,
    Speedups,
    doubt_text,
    margin_of,
    measured,
    measured_in_search,
    network_of,
    rows_of,
    score_text,
    speed_text,
    speedups_by_target,
    trained_rows,
)
from syno.results.goal import NONE_FASTER, STATES, Span
from syno.results.majority import warning_of
from syno.results.metric import ACCURACY
from syno.results.speedups import best_against_best
from syno.results.table import SCORE_COLUMNS

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


def verdict_lines(results: Results) -> list[Line]:
    """Return sentences: an answer for each compiler and device, the goal's first, and at last what was measured."""
    metric, margin = results.metric, margin_of(results)
    networks = {one.name: one for one in (network_of(row, metric) for row in trained_rows(results))}
    original = next((row for row in rows_of(results.scores, SCORE_COLUMNS, "scores") if row["role"] == ORIGINAL), {})
    timed = speedups_by_target(results)
    lines = [] if results.aim is None else _by_goal(results, list(networks.values()), timed)
    if results.none_because is not None:
        lines.append(Line(results.none_because))
    lines += [Line(*one.sentence) for one in best_against_best(results.latency, _near(networks, margin))]
    far: dict[str, list[str]] = {}  # the nearest operators where none is within the margin, each with its speedups
    for target, speedups in timed.items():
        where = f"with {target[1]} on {target[0]}"
        if (nearest := _nearest_beyond(speedups, networks, margin)) is None:
            lines.append(_fastest(where, speedups, networks, original, margin))
        else:
            far.setdefault(nearest, []).append(f"{speed_text(speedups[nearest][1])} {where}")
    slow = not any(span.value > 1 for speedups in timed.values() for role, span in speedups.values() if role == FOUND)
    lines += [_beyond(networks[name], speeds, original, margin, slow=slow) for name, speeds in far.items()]
    if not timed and networks:
        lines.append(_cheapest(list(networks.values()), original, margin))
    if not lines:
        lines.append(_of_search(results))
    return [*lines, *(Line(text) for text in (_majority(results, original), measured(results)) if text)]


def _majority(results: Results, original: Mapping[Any, Any]) -> str | None:
    """Return a warning if one label is so frequent that accuracies say little; None if there is nothing to warn of."""
    if results.majority is None or results.metric.name != ACCURACY.name:
        return None
    score = original.get("score")
    return warning_of(*results.majority, None if score is None or isnan(score) else float(score))


# ---- sentences --------------------------------------------------------------------------------------------------------------


def _by_goal(results: Results, networks: Sequence[Network], timed: Mapping[Target, Speedups]) -> list[Line]:
    """Return how many operators meet the goal; nothing if none was judged."""
    judged = [one for one in networks if one.role == FOUND and one.state in STATES]
    if not judged:
        return []
    counts = {state: sum(one.state == state for one in judged) for state in STATES}
    if counts["meets"]:
        find = "front" if results.aim is None else results.aim.find or "front"
        best = _best_of([one for one in judged if one.state == "meets"], find, results, timed)
        speed = _speed_at_goal(best, results, timed)
        none = f"{NONE_FASTER.capitalize()}. " if speed is not None and not speed.value > 1 and BEST[find] == "fastest" else ""
        start = f"{none}The goal is met by {counts['meets']} of {_operators(len(judged))}. "
        return [Line(f"{start}The {BEST[find]} of them: " if counts["meets"] > 1 else f"{start}It is ", best.name, ".")]
    if counts["may meet"]:
        doubted = [one for one in judged if one.state == "may meet"]
        number = f"{counts['may meet']} of {_operators(len(judged))}"
        return [
            Line(f"Whether the goal is met is not certain: {number} may meet it, since {_why(doubted, results)}."),
            *_doubt(results, doubted),
        ]
    if counts["unknown"] == len(judged):
        return [Line("Whether the goal is met is not known, since something was not measured.")]
    return [Line(f"The goal is not met by any of {_operators(len(judged))}.")]


def _why(doubted: Sequence[Network], results: Results) -> str:
    """Return why it is not certain that these networks meet the goal."""
    if results.aim is None or results.aim.lose_at_most is None or all(one.lost.is_certain for one in doubted):
        return "an interval contains the limit"
    if any(one.lost.is_certain for one in doubted):
        return "an interval contains the limit, or there is none"
    one_seed = "one seed: " if all(one.seeds == 1 for one in doubted) else ""
    return f"there is no interval of the {results.metric.name} ({one_seed}train with more seeds)"


def _doubt(results: Results, doubted: Sequence[Network]) -> list[Line]:
    """Return how uncertain the nearest of these networks is by its score; nothing if only speedups are in doubt."""
    nearest = min(doubted, key=lambda one: (isnan(one.lost.value), one.lost.value))
    most = None if results.aim is None else results.aim.lose_at_most
    doubt = "" if most is None else doubt_text(nearest, most, results.metric)
    return [Line("The nearest by its score is ", nearest.name, f", {doubt}.")] if doubt else []


def _best_of(met: Sequence[Network], find: str, results: Results, timed: Mapping[Target, Speedups]) -> Network:
    if find == "most_accurate" or results.aim is None:
        return max(met, key=lambda one: results.metric.quality(one.score))

    def speed(one: Network) -> float:
        found = _speed_at_goal(one, results, timed)
        return -inf if found is None else found.value

    return max(met, key=speed)


def _speed_at_goal(one: Network, results: Results, timed: Mapping[Target, Speedups]) -> Span | None:
    """Return the speedup of a network with the goal's compiler on its device; None if there is none."""
    speedups = {} if results.aim is None else timed.get((results.aim.device, results.aim.compiler), {})
    return speedups[one.name][1] if one.name in speedups else None


def _operators(count: int) -> str:
    return f"{count} operator{'' if count == 1 else 's'}"


def _nearest_beyond(speedups: Speedups, networks: Mapping[str, Network], margin: Margin) -> str | None:
    """Return the found operator with the best score, if scores are known and all are beyond the margin; else None."""
    lost = {name: networks[name].lost.value for name, (role, _) in speedups.items() if role == FOUND and name in networks}
    known = {name: value for name, value in lost.items() if not isnan(value)}
    return min(known, key=known.__getitem__) if known and min(known.values()) > margin.most else None


def _near(networks: Mapping[str, Network], margin: Margin) -> list[str] | None:
    """Return the names of the found operators within the margin; None if none is, or no score is known."""
    return [one.name for one in networks.values() if one.role == FOUND and one.lost.value <= margin.most] or None


def _beyond(network: Network, speeds: Sequence[str], original: Mapping[Any, Any], margin: Margin, *, slow: bool) -> Line:
    """Return that no operator is within the margin, with the nearest one and its speedups; `slow` if no operator is faster."""
    none = f"{NONE_FASTER.capitalize()}. " if slow else ""
    return Line(
        f"{none}No operator is within {margin.words} of the original's {margin.metric.name}. The nearest: ", network.name,
        f", {score_text(network, original, margin.metric)}, {', '.join(speeds)}.",
    )  # fmt: skip


def _fastest(
    where: str,
    speedups: Speedups,
    networks: Mapping[str, Network],
    original: Mapping[Any, Any],
    margin: Margin,
) -> Line:
    """Return which found operator is the fastest within the margin by one compiler on one device, or why none is.

    If scores are known, one is within the margin.
    """
    metric, words = margin.metric, margin.words
    fastest = sorted(speedups, key=lambda name: -speedups[name][1].value)
    found = [name for name in fastest if speedups[name][0] == FOUND]
    if not found:
        return Line(f"No operator of the search was measured {where}.")
    scored = [name for name in found if name in networks and not isnan(networks[name].lost.value)]
    if not scored:
        best = found[0]
        score = f"; its {metric.name} and the original's were not both measured"
        none = "" if speedups[best][1].value > 1 else f"{NONE_FASTER.capitalize()} {where}. "
        return Line(f"{none}The fastest {where}: ", best, f", {speed_text(speedups[best][1])}{score}.")
    best = next(name for name in scored if networks[name].lost.value <= margin.most)
    speed, network = speedups[best][1], networks[best]
    also = "" if not network.lost.high > margin.most else f"; the interval of the {metric.name} reaches beyond {words}"
    numbers = f"{speed_text(speed)}, {score_text(network, original, metric)}{also}"
    if speed.value <= 1:
        return Line(
            f"No operator within {words} of the original's {metric.name} is faster than the original {where}. The fastest: ",
            best, f", {numbers}.",
        )  # fmt: skip
    ahead = fastest[: fastest.index(best)]
    known = [one for one in ahead if speedups[one][0] != FOUND and one in networks and networks[one].lost.value <= margin.most]
    faster = "" if not known else f" A known operator is faster: {known[0]}, {speed_text(speedups[known[0]][1])}."
    return Line(f"Fastest within {words} {where}: ", best, f", {numbers}.{faster}")


def _cheapest(networks: Sequence[Network], original: Mapping[Any, Any], margin: Margin) -> Line:
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
        return Line(f"{start}The fewest FLOPs within {words}: ", best.name, f", {cost}, {score_text(best, original, metric)}.")
    best = max(found, key=lambda one: metric.quality(one.score))
    none = "" if isnan(best.lost.value) else f"No operator is within {words} of the original's {metric.name}. "
    return Line(f"{start}{none}The best {metric.name}: ", best.name, f", {score_text(best, original, metric)}.")


def _of_search(results: Results) -> Line:
    """Return the best trial and what the search measured of it, where nothing was trained again or measured."""
    trials, metric = results.trials, results.metric
    done = trials if trials.empty else rewarded(trials)
    layers = "" if results.layers.empty else " Single layers were measured: see Layers."
    start = "No network was trained again or measured"
    if done.empty:
        return Line(f"{start}, so nothing is known of speed and score.{layers}")
    best = done.sort_values(["reward", "number"], ascending=[False, True]).iloc[0]
    found = measured_in_search(metrics_of(best), metric)
    unknown = " after the search" if found else ", so nothing is known of speed and score"
    shown = trial_operators(results)[int(best["number"])].name
    after = "".join(f", {one}" for one in found) + "."
    name = shown if shown in results.operators else ""
    return Line(
        f"{start}{unknown}.{layers} The highest reward of the search is {best['reward']:.4g}: ",
        name, f"{'' if name else shown}{after}",
    )  # fmt: skip
