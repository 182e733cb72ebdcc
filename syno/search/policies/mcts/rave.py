"""RAVE: what an operator's reward says of its operations wherever else they could have been taken.

The published system walks all permutations of the commuting steps of a path, which are factorially many. Steps here have
ids that don't depend on where they are taken, so the nodes of the search tree that lie below the operator are found by
following the steps it has: each is visited once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from syno.search.policies.mcts.statistics import NO_REWARDS, Rewards, Statistics, with_changes
from syno.search.tree import Arc


def credit(statistics: Statistics, root: Hashable, path: Sequence[Arc], reward: float) -> Statistics:
    """Add the reward to the statistics of every operation of an operator: everywhere, and at every node below it."""
    changed = {}
    for node, done in below(statistics, root, path).items():
        here = statistics.at(node)
        rest = [arc for arc in path if arc.id not in done]
        changed[node] = replace(
            here,
            rave=_credited(here.rave, {arc.id for arc in rest}, reward),
            rave_kinds=_credited(here.rave_kinds, {arc.kind for arc in rest}, reward),
        )
    return replace(
        statistics.changed(changed),
        operations=statistics.operations.add({arc.id for arc in path}, reward),
        kinds=statistics.kinds.add({arc.kind for arc in path}, reward),
    )


def _credited(known: Mapping[str, Rewards], names: set[str], reward: float) -> Mapping[str, Rewards]:
    return with_changes(known, {name: known.get(name, NO_REWARDS).add(reward) for name in sorted(names)})


def below(statistics: Statistics, root: Hashable, path: Sequence[Arc]) -> dict[Hashable, frozenset[str]]:
    """The nodes of the search tree that steps of `path` lead to, in any order, and the ids of the steps to each."""
    found: dict[Hashable, frozenset[str]] = {root: frozenset()}
    pending = [root]
    while pending:
        node = pending.pop()
        here = statistics.at(node)
        for arc in path:
            child = here.child(arc)
            if child is not None and child not in found:
                found[child] = found[node] | {arc.id}
                pending.append(child)
    return found
