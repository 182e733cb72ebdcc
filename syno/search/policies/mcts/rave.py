"""RAVE: what an operator's reward says of its operations wherever else they could have been taken.

When a reward comes back, the published system walks all permutations of the commuting steps of its path, which are
factorially many, to credit every node below the operator. Steps here have ids that don't depend on where they are taken, so
a node is below an operator that has all its steps; and a node is credited when it is looked at next, which few are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from syno.search.policies.mcts.statistics import NO_REWARDS, Arrival, Rave, Rewards, Statistics
from syno.search.tree import Arc


def credit(statistics: Statistics, path: Sequence[Arc], reward: float) -> Statistics:
    """Credit every operation of an operator with its reward: everywhere, and at every node below it."""
    ids, kinds = frozenset(arc.id for arc in path), {arc.kind for arc in path}
    return replace(
        statistics,
        arrivals=(*statistics.arrivals, Arrival(tuple(path), ids, reward)),
        operations=statistics.operations.add(ids, reward),
        kinds=statistics.kinds.add(kinds, reward),
    )


def rave_at(statistics: Statistics, node: Hashable) -> Rave:
    """What the operators above a node say of their steps further up: those that came back since it joined the search tree."""
    here, arrivals, known = statistics.at(node), statistics.arrivals, statistics.raves.get(node)
    if known is None or not _is_earlier(known, arrivals):
        known = Rave(here.joined, None)
    if known.count == len(arrivals):
        return known
    operations, kinds = dict(known.operations), dict(known.kinds)
    for arrival in arrivals[known.count :]:
        if here.steps <= arrival.ids:
            above = [arc for arc in arrival.path if arc.id not in here.steps]
            _add(operations, {arc.id for arc in above}, arrival.reward)
            _add(kinds, {arc.kind for arc in above}, arrival.reward)
    found = statistics.raves[node] = Rave(len(arrivals), arrivals[-1], operations, kinds)
    return found


def _is_earlier(known: Rave, arrivals: Sequence[Arrival]) -> bool:
    """Whether it was made from the first of these: statistics that got different rewards may have remembered it."""
    return known.count <= len(arrivals) and known.last is arrivals[known.count - 1]


def _add(rewards: dict[str, Rewards], names: set[str], reward: float) -> None:
    for name in names:
        rewards[name] = rewards.get(name, NO_REWARDS).add(reward)
