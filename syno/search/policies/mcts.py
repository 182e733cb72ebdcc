"""Monte Carlo tree search: four pure functions (select, expand, simulate, backpropagate) and the policy that calls them.

The first three lead from the root to an operator; they read frozen statistics and change nothing. `add_virtual_loss` and
`backpropagate` make new statistics when an operator is proposed and when its reward comes back.

Source: the published system's search; UCB1-tuned (Auer et al., 2002), progressive widening (Coulom, 2007), RAVE (Gelly and
Silver, 2011), values shared in a graph (Childs et al., 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from syno.search.policies.contract import POLICIES, Candidate, Policy
from syno.search.policies.mcts_choice import MctsSettings, NodeView
from syno.search.policies.mcts_statistics import NodeStatistics, Statistics, VisitStatistics, credit
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action, Tree, TreeStep
from syno.search.walks import Draws, Walks


@dataclass(frozen=True)
class Frontier:
    """The end of a selection.

    Attributes:
        path: the steps from the root, all of them taken before.
        node: the node that they lead to.
        choices: the steps from there to consider that were never taken, the most promising first; empty if the node has no
            operators left.
    """

    path: tuple[TreeStep, ...]
    node: Hashable
    choices: tuple[TreeStep, ...]


class TraversedStep(NamedTuple):
    """A step of the search tree on the path of a proposal: the node it starts from, the action, and the node it leads to."""

    node: Hashable
    action: Action
    child: Hashable


def select(
    statistics: Statistics, tree: Tree, is_open: Callable[[Hashable], bool], settings: MctsSettings, draws: Draws
) -> Frontier:
    """Descend from the root to a node where a step that was never taken comes into consideration.

    Two decisions are made at each node: first the kind of step, then the step. `is_open` returns whether a node may have
    operators left.
    """
    node = tree.root
    path: list[TreeStep] = []
    while True:
        view = NodeView(statistics, tree, node, is_open, settings, draws.below(str(len(path))))
        choices = [step for kind in view.new_kinds() for step in view.new_steps(kind)]
        if not choices and view.kinds:
            kind = view.best_kind()
            choices = view.new_steps(kind)
        if choices or not view.kinds:
            return Frontier(tuple(path), node, tuple(choices))
        path.append(view.best_step(kind))
        node = path[-1].node


def expand(frontier: Frontier, draws: Draws) -> TreeStep:
    """Return one of the frontier's choices, all equally likely."""
    return draws.below("expand").order(frontier.choices, lambda step: step.id)[0]


def simulate(walks: Walks, step: TreeStep, draws: Draws) -> tuple[TreeStep, ...] | None:
    """Return random steps after `step` to an operator that nobody has proposed; None if none was found."""
    return walks.complete_after(step, draws.below("simulate"))


def add_virtual_loss(
    statistics: Statistics, tree: Tree, path: Sequence[Action]
) -> tuple[Statistics, tuple[TraversedStep, ...]]:
    """Let one more step of a proposal's path join the search tree, and add a virtual loss to all its steps in the tree.

    Returns the new statistics, and the steps of the path in the search tree, from the root.
    """
    visits: list[TraversedStep] = []
    node = tree.root
    for action in path:
        child = statistics.at(node).child(action)
        step = tree.step(node, *action) if child is None else None
        if step is not None:
            visits.append(TraversedStep(node, action, step.node))
        if child is None:
            break
        visits.append(TraversedStep(node, action, child))
        node = child
    if visits and visits[-1].child not in statistics.nodes:
        steps = frozenset(visit.action.id for visit in visits)
        joined = NodeStatistics(steps=steps, joined=len(statistics.evaluated))
        statistics = statistics.changed({visits[-1].child: joined})
    return _along(statistics, visits, VisitStatistics.depart), tuple(visits)


def backpropagate(
    statistics: Statistics, visits: Sequence[TraversedStep], path: Sequence[Action], reward: float | None
) -> Statistics:
    """Return the statistics after the reward of a proposal came back (None: it counts as nothing).

    The virtual losses on `visits` are taken back, the reward is added there, and the operator's operations are credited with it
    in the RAVE statistics.
    """
    after = _along(statistics, visits, lambda visit: visit.arrive(reward))
    return after if reward is None else credit(after, path, reward)


def _along(
    statistics: Statistics, visits: Sequence[TraversedStep], change: Callable[[VisitStatistics], VisitStatistics]
) -> Statistics:
    """Return the statistics with changed visits of all nodes and steps on a path, its last node included."""
    changed: dict[Hashable, NodeStatistics] = {}
    for node, action, child in visits:
        changed[node] = statistics.at(node).along(action, child, change)
    if visits:
        last = statistics.at(visits[-1].child)
        changed[visits[-1].child] = replace(last, visits=change(last.visits))
    return statistics.changed(changed)


@POLICIES.register("mcts")
class MonteCarloTreeSearch(Policy):
    """The published search: UCB1-tuned with virtual losses, progressive widening in the order of RAVE statistics.

    A node with no operators left below it is closed for good; a node below which none was found in time is hidden until its
    statistics change.

    Source: the published system's search.
    """

    name = "mcts"
    Settings = MctsSettings
    settings: MctsSettings

    def _prepare(self) -> None:
        self.statistics = Statistics()
        self._visits: dict[str, tuple[TraversedStep, ...]] = {}
        self._hidden: dict[Hashable, int] = {}  # nodes, and their number of visits then

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        root = self.tree.root
        while not self.walks.is_closed(root):
            frontier = select(self.statistics, self.tree, self._is_open, self.settings, draws)
            if not frontier.choices:
                if frontier.node == root:  # all operators left are below hidden nodes
                    return self.walks.anywhere(draws)
                self._set_aside(frontier.node)
                continue
            step = expand(frontier, draws)
            rest = simulate(self.walks, step, draws)
            if rest is not None:
                return (*frontier.path, step, *rest)
            if not self.walks.is_closed(step.node):
                self._hidden[step.node] = self.statistics.at(step.node).visits.count
        return None

    def _is_open(self, node: Hashable) -> bool:
        return not self.walks.is_closed(node) and not self._is_hidden(node)

    def _is_hidden(self, node: Hashable) -> bool:
        visits = self._hidden.get(node)
        return visits is not None and visits == self.statistics.at(node).visits.count

    def _set_aside(self, node: Hashable) -> None:
        """Close a node whose steps have no operators left; hide it if some steps are only hidden."""
        if self.walks.has_more(node):
            self._hidden[node] = self.statistics.at(node).visits.count
        else:
            self.walks.close(node)

    def _adopted(self, candidate: Candidate) -> None:
        self.statistics, visits = add_virtual_loss(self.statistics, self.tree, candidate.path)
        self._visits[candidate.fingerprint] = visits

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:
        reward = self.settings.failure_reward if isinstance(outcome, Failure) else outcome
        visits = self._visits.pop(candidate.fingerprint)
        self.statistics = backpropagate(self.statistics, visits, candidate.path, reward)
