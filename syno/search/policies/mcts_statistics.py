"""Statistics of a Monte Carlo tree search: of nodes, of kinds of steps, of steps, and of operations wherever they stand (RAVE).

All statistics are frozen: every event makes new ones from the old ones.

RAVE credits every node below an operator with its reward. The published system walks all permutations of the commuting steps
of a path, which are factorially many. Here, a step's id does not depend on where it is taken, so a node is below every operator
that has all the node's steps; and a node is credited only when it is looked at next, which few nodes are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map

from syno.search.tree import Action


@dataclass(frozen=True, slots=True)
class Rewards:
    """A set of rewards: their number, their sum and the sum of their squares."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, reward: float) -> Rewards:
        """Return the statistics with one more reward."""
        return Rewards(self.count + 1, self.total + reward, self.squares + reward * reward)

    @property
    def mean(self) -> float:
        """The mean; 0 without rewards."""
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """The variance of the population, not of a sample; 0 without rewards."""
        return max(self.squares / self.count - self.mean**2, 0.0) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    @property
    def promise(self) -> float:
        """Mean + deviation - 1 / count: the value of a RAVE statistic."""
        return self.mean + self.deviation - 1 / self.count if self.count else 0.0


NO_REWARDS = Rewards()


@dataclass(frozen=True, slots=True)
class VisitStatistics:
    """The visits of a node, a kind or a step: those with a reward, and how many are outstanding."""

    rewards: Rewards = NO_REWARDS
    outstanding: int = 0

    @property
    def count(self) -> int:
        """The number of all visits, outstanding ones included."""
        return self.rewards.count + self.outstanding

    def depart(self) -> VisitStatistics:
        """Return the statistics with one more outstanding visit."""
        return VisitStatistics(self.rewards, self.outstanding + 1)

    def arrive(self, reward: float | None) -> VisitStatistics:
        """Return the statistics with one visit less outstanding, which gave this reward or none."""
        return VisitStatistics(self.rewards if reward is None else self.rewards.add(reward), self.outstanding - 1)


NO_VISITS = VisitStatistics()


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """Statistics of the steps of one kind from one node.

    Attributes:
        visits: visits of all these steps.
        steps: visits of each step taken, by id.
        children: the node that each of these steps leads to.
    """

    visits: VisitStatistics = NO_VISITS
    steps: Mapping[str, VisitStatistics] = field(default_factory=dict)
    children: Mapping[str, Hashable] = field(default_factory=dict)


NO_STEPS = KindStatistics()


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Statistics of one node of the search tree.

    Attributes:
        visits: visits of the node, by any path.
        kinds: statistics for each kind of which a step was taken.
        steps: ids of the steps from the root to the node.
        joined: how many rewards had come back when the node joined the search tree.
    """

    visits: VisitStatistics = NO_VISITS
    kinds: Mapping[str, KindStatistics] = field(default_factory=dict)
    steps: frozenset[str] = frozenset()
    joined: int = 0

    def child(self, action: Action) -> Hashable | None:
        """Return the node that a step leads to; None if the step was never taken."""
        return self.kinds.get(action.kind, NO_STEPS).children.get(action.id)

    def along(self, action: Action, child: Hashable, change: Callable[[VisitStatistics], VisitStatistics]) -> NodeStatistics:
        """Return the statistics with changed visits of the node and of a step from it to `child`."""
        old = self.kinds.get(action.kind, NO_STEPS)
        kind = KindStatistics(
            change(old.visits),
            {**old.steps, action.id: change(old.steps.get(action.id, NO_VISITS))},
            {**old.children, action.id: child},
        )
        return replace(self, visits=change(self.visits), kinds={**self.kinds, action.kind: kind})


NOTHING = NodeStatistics()


@dataclass(frozen=True, slots=True)
class GlobalRewards:
    """Rewards by operation, or by kind of step, wherever it stands (global RAVE).

    Attributes:
        of: for each operation, by id, or each kind, the rewards of operators that have it.
        promises: sum of their promises.
    """

    of: Map[str, Rewards] = field(default_factory=Map)
    promises: float = 0.0

    def promise(self, name: str) -> float:
        """Return the promise of this operation or kind; the mean of all known ones if it is unknown."""
        known = self.of.get(name)
        if known is not None:
            return known.promise
        return self.promises / len(self.of) if self.of else 0.0

    def add(self, names: Set[str], reward: float) -> GlobalRewards:
        """Return the rewards with one more operator, which has these operations or kinds."""
        new = {name: self.of.get(name, NO_REWARDS).add(reward) for name in sorted(names)}
        gain = sum(rewards.promise - self.of.get(name, NO_REWARDS).promise for name, rewards in new.items())
        return GlobalRewards(self.of.update(new), self.promises + gain)


class EvaluatedPath(NamedTuple):
    """The path of an evaluated operator, the ids of its steps, and its reward."""

    path: tuple[Action, ...]
    ids: frozenset[str]
    reward: float


@dataclass(frozen=True, slots=True)
class Rave:
    """Rewards of the operators above a node, by their steps above it (local RAVE).

    Attributes:
        count: how many evaluated paths it takes into account.
        last: the last of these paths; None if there are none.
        operations: for each operation, by id, the rewards of operators above the node that have it above the node.
        kinds: for each kind of step, the rewards of operators above the node that have it above the node.
    """

    count: int
    last: EvaluatedPath | None
    operations: Mapping[str, Rewards] = field(default_factory=dict)
    kinds: Mapping[str, Rewards] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Everything that a search has learnt.

    Attributes:
        nodes: the search tree, which is a part of the space.
        operations, kinds: rewards by operation and by kind of step, wherever it stands.
        evaluated: the paths of evaluated operators, in the order in which their rewards came back.
        raves: a cache of local RAVE statistics, which follow from `evaluated`. Older and newer statistics share it.
    """

    nodes: Map[Hashable, NodeStatistics] = field(default_factory=Map)
    operations: GlobalRewards = GlobalRewards()
    kinds: GlobalRewards = GlobalRewards()
    evaluated: tuple[EvaluatedPath, ...] = ()
    raves: dict[Hashable, Rave] = field(default_factory=dict, compare=False, repr=False)

    def at(self, node: Hashable) -> NodeStatistics:
        """Return the statistics of a node of the search tree; empty ones for a root that was never visited."""
        return self.nodes.get(node, NOTHING)

    def changed(self, nodes: Mapping[Hashable, NodeStatistics]) -> Statistics:
        """Return the statistics with those of some nodes replaced."""
        return replace(self, nodes=self.nodes.update(nodes))


def credit(statistics: Statistics, path: Sequence[Action], reward: float) -> Statistics:
    """Return the statistics with an operator's reward credited to its operations: everywhere, and at every node below it."""
    ids, kinds = frozenset(action.id for action in path), {action.kind for action in path}
    return replace(
        statistics,
        evaluated=(*statistics.evaluated, EvaluatedPath(tuple(path), ids, reward)),
        operations=statistics.operations.add(ids, reward),
        kinds=statistics.kinds.add(kinds, reward),
    )


def rave_at(statistics: Statistics, node: Hashable) -> Rave:
    """Return the local RAVE statistics of a node: of operators above it that were evaluated since it joined the tree."""
    here, evaluated, known = statistics.at(node), statistics.evaluated, statistics.raves.get(node)
    if known is None or not _is_earlier(known, evaluated):
        known = Rave(here.joined, None)
    if known.count == len(evaluated):
        return known
    operations, kinds = dict(known.operations), dict(known.kinds)
    for path in evaluated[known.count :]:
        if here.steps <= path.ids:
            above = [action for action in path.path if action.id not in here.steps]
            _add(operations, {action.id for action in above}, path.reward)
            _add(kinds, {action.kind for action in above}, path.reward)
    found = statistics.raves[node] = Rave(len(evaluated), evaluated[-1], operations, kinds)
    return found


def _is_earlier(known: Rave, evaluated: Sequence[EvaluatedPath]) -> bool:
    """Return whether it was made from the first of these paths: statistics with other rewards may have cached it."""
    return known.count <= len(evaluated) and known.last is evaluated[known.count - 1]


def _add(rewards: dict[str, Rewards], names: set[str], reward: float) -> None:
    for name in names:
        rewards[name] = rewards.get(name, NO_REWARDS).add(reward)
