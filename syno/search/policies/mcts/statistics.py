"""What a Monte Carlo tree search knows: frozen statistics of nodes, kinds of steps, steps, and operations everywhere.

Every event makes new statistics from old ones; nothing changes in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from syno.search.tree import Arc

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Rewards:
    """Some rewards: how many, their sum and the sum of their squares."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, reward: float) -> Rewards:
        """With one more reward."""
        return Rewards(self.count + 1, self.total + reward, self.squares + reward * reward)

    @property
    def mean(self) -> float:
        """Their mean; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """Their variance, of the rewards themselves, not of a sample."""
        return max(self.squares / self.count - self.mean**2, 0.0) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        return math.sqrt(self.variance)

    @property
    def promise(self) -> float:
        """Mean + deviation - 1 / count: what a RAVE statistic is worth."""
        return self.mean + self.deviation - 1 / self.count if self.count else 0.0


NO_REWARDS = Rewards()


@dataclass(frozen=True, slots=True)
class Visits:
    """Visits of a node, a kind or a step: those that came back with a reward, and those still outstanding."""

    rewards: Rewards = NO_REWARDS
    outstanding: int = 0

    @property
    def count(self) -> int:
        """All visits, outstanding ones included."""
        return self.rewards.count + self.outstanding

    def depart(self) -> Visits:
        """With one more outstanding."""
        return Visits(self.rewards, self.outstanding + 1)

    def arrive(self, reward: float | None) -> Visits:
        """With one less outstanding, which brought this reward or nothing."""
        return Visits(self.rewards if reward is None else self.rewards.add(reward), self.outstanding - 1)


NO_VISITS = Visits()


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """What is known of the steps of one kind from one node.

    Attributes:
        visits: of all of them.
        steps: visits of each step taken, by id.
        children: the node that each of these leads to.
    """

    visits: Visits = NO_VISITS
    steps: Mapping[str, Visits] = field(default_factory=dict)
    children: Mapping[str, Hashable] = field(default_factory=dict)


NO_STEPS = KindStatistics()


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """What is known at one node of the search tree.

    Attributes:
        visits: of the node, whichever way they came.
        kinds: for each kind of which a step was taken, what is known of these.
        rave: for each operation, by id, the rewards of operators above this node that have it further up.
        rave_kinds: the same for kinds of steps.
    """

    visits: Visits = NO_VISITS
    kinds: Mapping[str, KindStatistics] = field(default_factory=dict)
    rave: Mapping[str, Rewards] = field(default_factory=dict)
    rave_kinds: Mapping[str, Rewards] = field(default_factory=dict)

    def child(self, arc: Arc) -> Hashable | None:
        """The node that a step leads to; None if it was never taken."""
        return self.kinds.get(arc.kind, NO_STEPS).children.get(arc.id)

    def along(self, arc: Arc, child: Hashable, change: Callable[[Visits], Visits]) -> NodeStatistics:
        """With other visits of the node, and of a step from it to `child`."""
        old = self.kinds.get(arc.kind, NO_STEPS)
        kind = KindStatistics(
            change(old.visits),
            with_changes(old.steps, {arc.id: change(old.steps.get(arc.id, NO_VISITS))}),
            with_changes(old.children, {arc.id: child}),
        )
        return replace(self, visits=change(self.visits), kinds=with_changes(self.kinds, {arc.kind: kind}))


NOTHING = NodeStatistics()


@dataclass(frozen=True, slots=True)
class Global:
    """Rewards of operators by what they are made of, whatever its place.

    Attributes:
        of: for each operation, by id, or each kind, the rewards of operators that have it.
        promises: sum of the promises of these.
    """

    of: Mapping[str, Rewards] = field(default_factory=dict)
    promises: float = 0.0

    def promise(self, name: str) -> float:
        """What this operation or kind promises; where nothing is known of it, the mean of all that are known."""
        known = self.of.get(name)
        if known is not None:
            return known.promise
        return self.promises / len(self.of) if self.of else 0.0

    def add(self, names: set[str], reward: float) -> Global:
        """With the reward of an operator that has these."""
        new = {name: self.of.get(name, NO_REWARDS).add(reward) for name in sorted(names)}
        gain = sum(rewards.promise - self.of.get(name, NO_REWARDS).promise for name, rewards in new.items())
        return Global(with_changes(self.of, new), self.promises + gain)


@dataclass(frozen=True, slots=True)
class Statistics:
    """All that a search has learnt. The search tree is the part of the space that `nodes` has entries for."""

    nodes: Mapping[Hashable, NodeStatistics] = field(default_factory=dict)
    operations: Global = Global()
    kinds: Global = Global()

    def at(self, node: Hashable) -> NodeStatistics:
        """What is known at the node; nothing if it was never visited."""
        return self.nodes.get(node, NOTHING)

    def changed(self, nodes: Mapping[Hashable, NodeStatistics]) -> Statistics:
        """With other statistics at some nodes."""
        return replace(self, nodes=with_changes(self.nodes, nodes))


def with_changes(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    """A mapping with some entries changed or added; the old one stays as it is."""
    return {**old, **new}
