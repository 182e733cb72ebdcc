"""Monte Carlo tree search as four pure functions: select, expand, simulate, backpropagate.

The first three lead from the root to an operator; they read frozen statistics and change nothing. `depart` and
`backpropagate` make new statistics when a proposal goes out and when its reward comes back.

Source: the published system's search; UCB1-tuned (Auer et al., 2002), progressive widening (Coulom, 2007), RAVE (Gelly and
Silver, 2011), values shared in a graph (Childs et al., 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from syno.search.draws import Draws
from syno.search.policies.mcts.choice import Place
from syno.search.policies.mcts.rave import credit
from syno.search.policies.mcts.settings import MctsSettings
from syno.search.policies.mcts.statistics import NodeStatistics, Statistics, Visits
from syno.search.tree import Arc, Step, Tree
from syno.search.walks import Walks


@dataclass(frozen=True)
class Frontier:
    """Where a selection ended.

    Attributes:
        path: the steps from the root, all of them taken before.
        node: where they lead.
        choices: steps from there that come into consideration and were never taken, the most promising first; empty if the
            node has nothing left.
    """

    path: tuple[Step, ...]
    node: Hashable
    choices: tuple[Step, ...]


class Visit(NamedTuple):
    """A step of the search tree that a proposal went along: where from, which, and where to."""

    node: Hashable
    arc: Arc
    child: Hashable


def select(
    statistics: Statistics, tree: Tree, is_open: Callable[[Hashable], bool], settings: MctsSettings, draws: Draws
) -> Frontier:
    """Descend from the root to a node where a step that was never taken comes into consideration.

    Two decisions are made at each node: first the kind of step, then the step. `is_open` says whether a node is not known to
    have no operators left.
    """
    node = tree.root
    path: list[Step] = []
    while True:
        place = Place(statistics, tree, node, is_open, settings, draws.below(str(len(path))))
        choices = [step for kind in place.new_kinds() for step in place.new_steps(kind)]
        if not choices and place.kinds:
            kind = place.best_kind()
            choices = place.new_steps(kind)
        if choices or not place.kinds:
            return Frontier(tuple(path), node, tuple(choices))
        path.append(place.best_step(kind))
        node = path[-1].node


def expand(frontier: Frontier, draws: Draws) -> Step:
    """One of the frontier's choices, all equally likely."""
    return draws.below("expand").order(frontier.choices, lambda step: step.id)[0]


def simulate(walks: Walks, step: Step, draws: Draws) -> tuple[Step, ...] | None:
    """Random steps after `step` to an operator nobody has proposed; None if none was found."""
    return walks.complete_after(step, draws.below("simulate"))


def depart(statistics: Statistics, tree: Tree, path: Sequence[Arc]) -> tuple[Statistics, tuple[Visit, ...]]:
    """A proposal goes out along `path`: its steps in the search tree get a virtual loss, and one more step joins the tree.

    Returns the new statistics, and the steps in the search tree, from the root.
    """
    visits: list[Visit] = []
    node = tree.root
    for arc in path:
        child = statistics.at(node).child(arc)
        step = tree.step(node, *arc) if child is None else None
        if step is not None:
            visits.append(Visit(node, arc, step.node))
        if child is None:
            break
        visits.append(Visit(node, arc, child))
        node = child
    if visits and visits[-1].child not in statistics.nodes:
        steps = frozenset(visit.arc.id for visit in visits)
        joined = NodeStatistics(steps=steps, joined=len(statistics.arrivals))
        statistics = statistics.changed({visits[-1].child: joined})
    return _along(statistics, visits, Visits.depart), tuple(visits)


def backpropagate(statistics: Statistics, visits: Sequence[Visit], path: Sequence[Arc], reward: float | None) -> Statistics:
    """The reward of a proposal comes back (None if it is to count as nothing).

    Takes back the virtual losses on `visits`, adds the reward there, and credits the operator's operations with it in the
    RAVE statistics.
    """
    after = _along(statistics, visits, lambda visit: visit.arrive(reward))
    return after if reward is None else credit(after, path, reward)


def _along(statistics: Statistics, visits: Sequence[Visit], change: Callable[[Visits], Visits]) -> Statistics:
    """Change the visits of all nodes and steps along a way, its last node included."""
    changed: dict[Hashable, NodeStatistics] = {}
    for node, arc, child in visits:
        changed[node] = statistics.at(node).along(arc, child, change)
    if visits:
        last = statistics.at(visits[-1].child)
        changed[visits[-1].child] = replace(last, visits=change(last.visits))
    return statistics.changed(changed)
