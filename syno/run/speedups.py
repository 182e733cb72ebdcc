"""The speedup of each network over the original, with its 95 % interval: timed in turns, or by two latencies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite, nan
from typing import NamedTuple

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.model.networks import has_lower_precision
from syno.run.breakdown import NETWORK
from syno.run.measurement import OK
from syno.run.values import Latency, Score, Speedup, TimedPart
from syno.search.goal import Goal

# How original and candidate were timed: in turns, after the selection or in the search; in turns by layers; or apart.
IN_TURNS, IN_SEARCH, BY_LAYERS, APART = "in turns", "in turns, in the search", "in turns, by layers", "apart"
EAGER = "eager"


def speedup_apart(latencies: Sequence[Latency], key: str, compiler: str, device: str) -> Interval | None:
    """Return the speedup by two latencies that were measured one after the other; None if one of them is not known.

    The ends of its interval are the ratios of the opposite ends of both intervals.

    Args:
        latencies: latencies of the networks.
        key: key of the network with the operator.
        compiler, device: names in the settings of the compiler and the device of both latencies.
    """
    found = {one.key: one.ms for one in latencies if one.is_ok and one.target == (device, compiler)}
    if key not in found or ORIGINAL not in found:
        return None
    return _ratio(found[ORIGINAL], found[key])


def _ratio(original: Interval, changed: Interval) -> Interval:
    """Return the ratio original / changed of two latencies, with its interval; NaN where one of them is unknown."""
    own, other = (Interval(*map(_positive, one)) for one in (changed, original))
    return Interval(other.value / own.value, other.low / own.high, other.high / own.low)


def _positive(latency: float) -> float:
    return latency if latency > 0 else nan


def speedup_by_layers(parts: Sequence[TimedPart], key: str, compiler: str, device: str) -> Interval | None:
    """Return the speedup of a network by a breakdown: its layers were timed in turns with the original's. None without one.

    Args:
        parts: parts of the networks' time, by breakdowns; empty if none was measured.
        key, compiler, device: as in `speedup_apart`.
    """
    place = (NETWORK, key, OK, compiler, device)
    return next((one.speedup for one in parts if (one.part, one.key, one.status, one.compiler, one.device) == place), None)


def known_speedups(
    latencies: Sequence[Latency],
    goal: Goal | None = None,
    judged: Sequence[Score] = (),
    parts: Sequence[TimedPart] = (),
) -> list[Speedup]:
    """Return the known speedup of each network except the original, for each compiler and device.

    For the goal's compiler and device it is the speedup in the verdict. Otherwise it is the speedup by layers timed in turns
    or, without a breakdown, the ratio of two latencies.

    Args:
        latencies: latencies of the networks.
        goal: the goal of the search; None without one.
        judged: the networks with their verdicts (`syno.run.goal.judged_networks`); empty without a goal.
        parts: parts of the networks' time, by breakdowns; empty if none was measured.
    """
    known: dict[tuple[str, str, str], Speedup] = {}
    for one in latencies:
        if one.key == ORIGINAL or not one.is_ok:
            continue
        place = (one.key, one.compiler, one.device)
        in_turns, apart = speedup_by_layers(parts, *place), speedup_apart(latencies, *place)
        if (ratio := in_turns or apart) is not None:
            how = (APART, one.is_suspicious) if in_turns is None else (BY_LAYERS, False)
            known[place] = Speedup(one.operator, one.key, one.role, one.device, one.compiler, ratio, *how)
    for network in judged if goal is not None else ():
        if goal is not None and network.timed:
            place = (network.key, goal.compiler, goal.device)
            is_doubtful = network.timed == APART and place in known and known[place].is_suspicious
            names = (network.operator, network.key, network.role, goal.device, goal.compiler)
            known[place] = Speedup(*names, network.speedup, network.timed, is_doubtful)
    return list(known.values())


class BestAgainstBest(NamedTuple):
    """The fastest network with an operator against the original with the compiler that suits the original best, on one device.

    Attributes:
        device: the device.
        compiler: the fastest compiler of the original there.
        slower: the compilers, other than eager, with which the original is certainly slower than with `compiler`.
        original_ms, slower_ms: the original's latency with `compiler`, and with the first of `slower`.
        operator, own_compiler: the network with the smallest latency, and its compiler.
        speedup: this network's speedup over the original, by two latencies.
    """

    device: str
    compiler: str
    slower: tuple[str, ...]
    original_ms: float
    slower_ms: float
    operator: str
    own_compiler: str
    speedup: Interval


def best_against_best(latencies: Sequence[Latency], names: Collection[str] | None = None) -> list[BestAgainstBest]:
    """Return the comparison for each device on which some compiler slows the original down and operators were measured with it.

    A speedup over an original that the compiler has slowed down says little: people would run the original without it.

    Args:
        latencies: latencies of the networks.
        names: the operators to choose from; None for all operators of the search.
    """
    found: list[BestAgainstBest] = []
    rows = [one for one in latencies if one.is_ok and not one.is_suspicious and isfinite(_positive(one.ms.value))]
    rows = [one for one in rows if not has_lower_precision(one.compiler)]  # another network
    for device in dict.fromkeys(one.device for one in rows):
        here = [one for one in rows if one.device == device]
        own = [one for one in here if one.role == "found" and (names is None or one.operator in names)]
        theirs = {one.compiler: one.ms for one in here if one.role == ORIGINAL}
        if not own or not theirs:
            continue
        name, best = min(theirs.items(), key=lambda pair: pair[1].value)
        lows = {other: _positive(ms.low) for other, ms in theirs.items() if other not in (EAGER, name)}
        least = _positive(best.high)
        slower = tuple(other for other in dict.fromkeys(one.compiler for one in own) if lows.get(other, nan) > least)
        if slower:
            fastest = min(own, key=lambda one: one.ms.value)
            where = (device, name, slower, best.value, theirs[slower[0]].value)
            found.append(BestAgainstBest(*where, fastest.operator, fastest.compiler, _ratio(best, fastest.ms)))
    return found
