"""What a Monte Carlo tree search knows: frozen statistics of nodes, kinds of steps, steps, and operations everywhere.

Every event makes new statistics from old ones; nothing that was learnt changes in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from immutables import Map

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
        steps: ids of the steps to it from the root.
        joined: how many rewards had come back when the node joined the search tree.
    """

    visits: Visits = NO_VISITS
    kinds: Mapping[str, KindStatistics] = field(default_factory=dict)
    steps: frozenset[str] = frozenset()
    joined: int = 0

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

    of: Map[str, Rewards] = field(default_factory=Map)
    promises: float = 0.0

    def promise(self, name: str) -> float:
        """What this operation or kind promises; where nothing is known of it, the mean of all that are known."""
        known = self.of.get(name)
        if known is not None:
            return known.promise
        return self.promises / len(self.of) if self.of else 0.0

    def add(self, names: Set[str], reward: float) -> Global:
        """With the reward of an operator that has these."""
        new = {name: self.of.get(name, NO_REWARDS).add(reward) for name in sorted(names)}
        gain = sum(rewards.promise - self.of.get(name, NO_REWARDS).promise for name, rewards in new.items())
        return Global(self.of.update(new), self.promises + gain)


class Arrival(NamedTuple):
    """An operator whose reward came back: its steps, their ids, and the reward."""

    path: tuple[Arc, ...]
    ids: frozenset[str]
    reward: float


@dataclass(frozen=True, slots=True)
class Rave:
    """What the operators above a node say of their steps further up.

    Attributes:
        count: how many arrivals it takes into account.
        last: the last of these; None if there are none.
        operations: for each operation, by id, the rewards of operators above the node that have it further up.
        kinds: the same for kinds of steps.
    """

    count: int
    last: Arrival | None
    operations: Mapping[str, Rewards] = field(default_factory=dict)
    kinds: Mapping[str, Rewards] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statistics:
    """All that a search has learnt.

    Attributes:
        nodes: the search tree, which is a part of the space.
        operations, kinds: rewards by operation and by kind of step, wherever it stands.
        arrivals: the operators whose rewards came back, in that order.
        raves: what follows from `arrivals` at some nodes, remembered. Older and newer statistics share it.
    """

    nodes: Map[Hashable, NodeStatistics] = field(default_factory=Map)
    operations: Global = Global()
    kinds: Global = Global()
    arrivals: tuple[Arrival, ...] = ()
    raves: dict[Hashable, Rave] = field(default_factory=dict, compare=False, repr=False)

    def at(self, node: Hashable) -> NodeStatistics:
        """What is known at a node of the search tree; nothing at a root that was never visited."""
        return self.nodes.get(node, NOTHING)

    def changed(self, nodes: Mapping[Hashable, NodeStatistics]) -> Statistics:
        """With other statistics at some nodes."""
        return replace(self, nodes=self.nodes.update(nodes))


def with_changes(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    """A mapping with some entries changed or added; the old one stays as it is."""
    return {**old, **new}
