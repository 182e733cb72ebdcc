"""The verdict at the top of the page: the fastest operator that costs little of the score, from what was measured.

Where nothing is faster, or something was not measured, the verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.base.text_tables import plural
from syno.model.networks import has_lower_precision, is_converted
from syno.report.page_tables import setting, share
from syno.run.goal import NONE_FASTER, STATES, speed_text, speedup_in
from syno.run.goal_tables import beside_rivals
from syno.run.majority import warning_of
from syno.run.run import Run
from syno.run.speedups import APART, IN_SEARCH, IN_TURNS, best_against_best
from syno.run.values import Score, Target, best_first
from syno.train.metric import ACCURACY, OF_ORIGINAL, Metric

# The numbers of the verdict at the top of the page, and how it tells them.


WITHIN = 0.01  # share of the original's score that may be lost, where neither a goal nor the metric says it
Speedups = Mapping[str, tuple[str, Interval]]  # role and speedup of each network


@dataclass(frozen=True)
class Margin:
    """The loss of score that a network may have: as much as the goal allows, else `WITHIN`. `most` is a score."""

    metric: Metric
    most: float

    @property
    def words(self) -> str:
        """The margin with its unit, such as `1 point`."""
        return self.metric.amount(self.most)


@dataclass(frozen=True)
class Network:
    """A network with an operator: what is known of it. Unknown numbers are NaN."""

    name: str
    role: str
    score: float
    lost: Interval  # how much worse than the original's its score is; below 0 for a better one
    flops: float  # as a share of the original's
    state: str  # of the verdict by the goal; "" without one
    seeds: int | None = None


def margin_of(run: Run) -> Margin:
    """Return the loss of score that is allowed, in words."""
    asked = None if run.goal is None else run.goal.lose_at_most
    if asked is None and (asked := run.metric.margin) is None:
        original = next((row.score for row in run.scores if row.role == ORIGINAL and row.is_finite), None)
        asked = float(f"{WITHIN * abs(original or 0.0):.2g}")
    return Margin(run.metric, asked)


def networks_of(run: Run) -> dict[str, Network]:
    """Return the networks other than the original by name, as far as their scores are finite."""
    return {
        row.operator: Network(
            row.operator,
            row.role,
            row.score,
            row.lost,
            _or_nan(row.flops_share),
            row.verdict,
            row.seeds,
        )
        for row in run.scores
        if row.role != ORIGINAL and row.score is not None and isfinite(row.score)
    }


def _or_nan(value: float | None) -> float:
    return nan if value is None else value


def speedups_by_target(run: Run) -> dict[Target, Speedups]:
    """Return the speedups by device and compiler, the goal's first.

    A latency below what the device's peak speed allows is not counted, and neither is one in lower precision, since the scores
    are of networks as they were trained.
    """
    found: dict[Target, dict[str, tuple[str, Interval]]] = {}
    for row in run.speedups:
        if not (row.is_suspicious or has_lower_precision(row.compiler) or isnan(row.ratio.value)):
            found.setdefault(row.target, {})[row.operator] = (row.role, row.ratio)
    wanted = None if run.goal is None else (run.goal.device, run.goal.compiler)
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != wanted, pair[0])))


def score_text(network: Network, original: Score | None, metric: Metric) -> str:
    """Return a comparison of a network's score with the original's, in words. Without an interval, it names both scores."""
    lost = network.lost
    if not lost.is_certain:
        theirs = None if original is None else original.score
        of = "" if theirs is None else f"; the original's is {metric.text(theirs)}, and no interval of the difference is known"
        return f"{metric.name} {metric.text(network.score)}{of}"
    sign = -1 if metric.more_is_better else 1
    value, *ends = (sign * end for end in lost)
    low, high = (metric.steps_text(end, "+z") for end in sorted(ends))
    size = metric.steps_text(abs(value))
    way = "higher" if value > 0 else "lower"
    least = "" if metric.digits is None else f" to {metric.with_unit(f'{10**-metric.digits:g}')}"
    way = f"{metric.with_unit(size)} {way}" if float(size) else f"the same{least}"
    return f"{metric.name} {way} (95 %: {low} to {high})"


def doubt_text(network: Network, most: float, metric: Metric) -> str:
    """Return a clause if the interval of a network's score contains the limit `most`; "" if it does not."""
    lost = network.lost
    if not (lost.is_certain and lost.low <= most < lost.high):
        return ""
    allowed = Margin(metric, most).words
    where = f"where {allowed} may be lost" if lost.value > most else f"within the {allowed} that may be lost"
    return f"{score_text(network, None, metric)}, {where}: {network.seeds} seeds cannot tell, more would narrow the interval"


def measured_in_search(metrics: Mapping[str, float], metric: Metric) -> list[str]:
    """Return the score and the speedup of a trial, as far as its metrics have them."""
    found = []
    if metric.key in metrics:
        original = metrics.get(f"{OF_ORIGINAL}{metric.key}")
        beside = "" if original is None else f" (the original's: {metric.text(original)})"
        found.append(f"{metric.name} {metric.text(metrics[metric.key])}{beside}")
    if (speedup := speedup_in(metrics)) is not None:
        found.append(speed_text(speedup))
    return found


def measured(run: Run) -> str:
    """Return the compilers and devices of the measurements, in words; "" if there are none."""
    parts = []
    counts = [row.seeds for row in run.scores if row.seeds is not None and not is_converted(row.key)]
    if counts:
        least, most = min(counts), max(counts)
        each = plural(least, "seed") if least == most else f"{least} to {most} seeds"
        parts.append(f"{run.metric.name} of {len(counts)} trained networks, {each} each")
    rows = [row for row in run.latencies if row.is_ok]
    for device in dict.fromkeys(row.device for row in rows):
        here = [row for row in rows if row.device == device]
        names = dict.fromkeys(filter(None, (row.device_name for row in here)))
        compilers = ", ".join(dict.fromkeys(row.compiler for row in here))
        where = "; ".join(filter(None, [*names, setting(here)]))
        parts.append(f"latency of whole networks on {device}{f' ({where})' if where else ''} with {compilers}")
    in_turns = [row for row in run.speedups if row.timed != APART]
    for target in dict.fromkeys(row.target for row in in_turns):
        timed = {row.timed for row in in_turns if row.target == target}
        when = " after the selection" if IN_TURNS in timed else " in the search" if IN_SEARCH in timed else ""
        parts.append(f"speedups with {target[1]} on {target[0]}, timed in turns with the original{when}")
    return f"Measured: {'; '.join(parts)}." if parts else ""


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


def verdict_lines(run: Run) -> list[Line]:
    """Return sentences: an answer for each compiler and device, the goal's first, and at last what was measured."""
    networks, margin = networks_of(run), margin_of(run)
    original = next((row for row in run.scores if row.role == ORIGINAL), None)
    timed = speedups_by_target(run)
    lines = [] if run.goal is None else _by_goal(run, list(networks.values()), timed)
    if run.none_because is not None:
        lines.append(Line(run.none_because))
    lines += [Line(*one.sentence) for one in best_against_best(run.latencies, _near(networks, margin))]
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
        lines.append(_search_line(run))
    return [*lines, *(Line(text) for text in (_majority(run, original), measured(run)) if text)]


def _majority(run: Run, original: Score | None) -> str | None:
    """Return a warning if one label is so frequent that accuracies say little; None if there is nothing to warn of."""
    if run.majority is None or run.metric != ACCURACY:
        return None
    return warning_of(*run.majority, None if original is None else original.score)


def _by_goal(run: Run, networks: Sequence[Network], timed: Mapping[Target, Speedups]) -> list[Line]:
    """Return the number of operators that meet the goal, in words; nothing if none was judged."""
    aim = run.goal
    lines = [] if aim is None else [Line(*parts) for parts in beside_rivals(aim, run.metric, run.scores)]
    judged = [one for one in networks if one.role == FOUND and one.state in STATES]
    if not judged:
        return lines
    meeting, doubted = ([one for one in judged if one.state == state] for state in STATES[:2])
    if meeting:
        find = "front" if run.goal is None else run.goal.find or "front"
        best = _best_of(meeting, find, run, timed)
        speed = _speed_at_goal(best, run, timed)
        none = f"{NONE_FASTER.capitalize()}. " if speed is not None and not speed.value > 1 and BEST[find] == "fastest" else ""
        start = f"{none}The goal is met by {len(meeting)} of {plural(len(judged), 'operator')}. "
        return [*lines, Line(f"{start}The {BEST[find]} of them: " if len(meeting) > 1 else f"{start}It is ", best.name, ".")]
    if doubted:
        number = f"{len(doubted)} of {plural(len(judged), 'operator')}"
        return [
            *lines,
            Line(f"Whether the goal is met is not certain: {number} may meet it, since {_why(doubted, run)}."),
            *_doubt(run, doubted),
        ]
    if all(one.state == "unknown" for one in judged):
        return [*lines, Line("Whether the goal is met is not known, since something was not measured.")]
    return [*lines, Line(f"The goal is not met by any of {plural(len(judged), 'operator')}.")]


def _why(doubted: Sequence[Network], run: Run) -> str:
    """Return why it is not certain that these networks meet the goal."""
    if run.goal is None or run.goal.lose_at_most is None or all(one.lost.is_certain for one in doubted):
        return "an interval contains the limit"
    if any(one.lost.is_certain for one in doubted):
        return "an interval contains the limit, or there is none"
    one_seed = "one seed: " if all(one.seeds == 1 for one in doubted) else ""
    return f"there is no interval of the {run.metric.name} ({one_seed}train with more seeds)"


def _doubt(run: Run, doubted: Sequence[Network]) -> list[Line]:
    """Return the uncertainty of the nearest network's score, in words; nothing if only speedups are in doubt."""
    nearest = min(doubted, key=lambda one: (isnan(one.lost.value), one.lost.value))
    most = None if run.goal is None else run.goal.lose_at_most
    doubt = "" if most is None else doubt_text(nearest, most, run.metric)
    return [Line("The nearest by its score is ", nearest.name, f", {doubt}.")] if doubt else []


def _best_of(met: Sequence[Network], find: str, run: Run, timed: Mapping[Target, Speedups]) -> Network:
    if find == "most_accurate" or run.goal is None:
        return max(met, key=lambda one: run.metric.quality(one.score))

    def speed(one: Network) -> float:
        found = _speed_at_goal(one, run, timed)
        return -inf if found is None else found.value

    return max(met, key=speed)


def _speed_at_goal(one: Network, run: Run, timed: Mapping[Target, Speedups]) -> Interval | None:
    """Return the speedup of a network with the goal's compiler on its device; None if there is none."""
    speedups = {} if run.goal is None else timed.get((run.goal.device, run.goal.compiler), {})
    return speedups[one.name][1] if one.name in speedups else None


def _nearest_beyond(speedups: Speedups, networks: Mapping[str, Network], margin: Margin) -> str | None:
    """Return the found operator with the best score, if scores are known and all are beyond the margin; else None."""
    lost = {name: networks[name].lost.value for name, (role, _) in speedups.items() if role == FOUND and name in networks}
    known = {name: value for name, value in lost.items() if not isnan(value)}
    return min(known, key=known.__getitem__) if known and min(known.values()) > margin.most else None


def _near(networks: Mapping[str, Network], margin: Margin) -> list[str] | None:
    """Return the names of the found operators within the margin; None if none is, or no score is known."""
    return [one.name for one in networks.values() if one.role == FOUND and one.lost.value <= margin.most] or None


def _beyond(network: Network, speeds: Sequence[str], original: Score | None, margin: Margin, *, slow: bool) -> Line:
    """Return the sentence for no operator within the margin: the nearest one and its speedups; `slow` if none is faster."""
    none = f"{NONE_FASTER.capitalize()}. " if slow else ""
    return Line(
        f"{none}No operator is within {margin.words} of the original's {margin.metric.name}. The nearest: ", network.name,
        f", {score_text(network, original, margin.metric)}, {', '.join(speeds)}.",
    )  # fmt: skip


def _fastest(
    where: str,
    speedups: Speedups,
    networks: Mapping[str, Network],
    original: Score | None,
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
    kind = "Without synthesis, it is faster" if known and speedups[known[0]][0] == "rival" else "A known operator is faster"
    faster = "" if not known else f" {kind}: {known[0]}, {speed_text(speedups[known[0]][1])}."
    return Line(f"Fastest within {words} {where}: ", best, f", {numbers}.{faster}")


def _cheapest(networks: Sequence[Network], original: Score | None, margin: Margin) -> Line:
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


def _search_line(run: Run) -> Line:
    """Return the best trial and what the search measured of it, where nothing was trained again or measured."""
    done = best_first(run.trials)
    layers = "" if not run.layers else " Single layers were measured: see Layers."
    start = "No network was trained again or measured"
    if not done:
        return Line(f"{start}, so nothing is known of speed and score.{layers}")
    best = done[0]
    found = measured_in_search(best.metrics, run.metric)
    unknown = " after the search" if found else ", so nothing is known of speed and score"
    shown = run.trial_operators[best.number].name
    after = "".join(f", {one}" for one in found) + "."
    name = shown if shown in run.operators else ""
    return Line(
        f"{start}{unknown}.{layers} The highest reward of the search is {best.reward:.4g}: ",
        name, f"{'' if name else shown}{after}",
    )  # fmt: skip
