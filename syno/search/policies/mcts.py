"""Monte Carlo tree search: four pure functions (select, expand, simulate, backpropagate) and the policy that calls them.

The first three lead from the root to an operator; they read immutable statistics. `add_virtual_loss` and `backpropagate` return
new statistics, after a proposal and after its reward.

RAVE credits every node below an operator with its reward. The published system walks all permutations of the commuting steps of
a path, which are factorially many. Here, a step's id does not depend on its node, so a node is below every operator that has
all of the node's steps; and a node is credited lazily, at its next visit, since few nodes are visited again.

Source: the published system's search; UCB1-tuned (Auer et al., 2002), progressive widening (Coulom, 2007), RAVE (Gelly and
Silver, 2011), values shared in a graph (Childs et al., 2008).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Annotated, NamedTuple

from immutables import Map
from pydantic import Field

from syno.search.policies.contract import POLICIES, Candidate, Policy, PolicySettings
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action, Tree, TreeDraft, TreeStep
from syno.search.walks import Draws, Walks


@dataclass(frozen=True, slots=True)
class Rewards:
    """The number, sum and sum of squares of some rewards."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, reward: float) -> Rewards:
        """Return the statistics with another reward added."""
        return Rewards(self.count + 1, self.total + reward, self.squares + reward * reward)

    @property
    def mean(self) -> float:
        """Mean of the rewards; 0 without rewards."""
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """Population variance of the rewards (not the sample variance); 0 without rewards."""
        return max(self.squares / self.count - self.mean**2, 0.0) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation of the rewards."""
        return math.sqrt(self.variance)

    @property
    def promise(self) -> float:
        """Promise of the rewards, the value of a RAVE statistic: mean + deviation - 1 / count."""
        return self.mean + self.deviation - 1 / self.count if self.count else 0.0


NO_REWARDS = Rewards()


@dataclass(frozen=True, slots=True)
class VisitStatistics:
    """The visits of a node, a kind or a step: rewards of finished visits, and the number of outstanding visits."""

    rewards: Rewards = NO_REWARDS
    outstanding: int = 0

    @property
    def count(self) -> int:
        """Number of all visits, including outstanding ones."""
        return self.rewards.count + self.outstanding

    def depart(self) -> VisitStatistics:
        """Return the statistics with one more outstanding visit."""
        return VisitStatistics(self.rewards, self.outstanding + 1)

    def arrive(self, reward: float | None) -> VisitStatistics:
        """Return the statistics after an outstanding visit ended with this reward, or without one."""
        return VisitStatistics(self.rewards if reward is None else self.rewards.add(reward), self.outstanding - 1)


NO_VISITS = VisitStatistics()


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """Statistics of the steps of one kind from one node.

    Attributes:
        visits: visits of all these steps.
        steps: visits of each step taken, by id.
        children: the node that each of these steps leads to, by the step's id.
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
        joined: number of rewards that were known when the node joined the search tree.
    """

    visits: VisitStatistics = NO_VISITS
    kinds: Mapping[str, KindStatistics] = field(default_factory=dict)
    steps: frozenset[str] = frozenset()
    joined: int = 0

    def child(self, action: Action) -> Hashable | None:
        """Return the node that a step leads to; None if the step was never taken."""
        return self.kinds.get(action.kind, NO_STEPS).children.get(action.id)

    def along(self, action: Action, child: Hashable, change: Callable[[VisitStatistics], VisitStatistics]) -> NodeStatistics:
        """Return the statistics with `change` applied to the visits of the node and of the step to `child`."""
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
    """Rewards by operation, or by kind of step, independent of the node (global RAVE).

    Attributes:
        of: rewards of all operators that contain an operation or kind, by the operation's id or the kind's name.
        promises: sum of the promises of all operations, or kinds.
    """

    of: Map[str, Rewards] = field(default_factory=Map)
    promises: float = 0.0

    def promise(self, name: str) -> float:
        """Return the promise of the operation or kind `name`; if it is unknown, the mean over all known ones."""
        known = self.of.get(name)
        if known is not None:
            return known.promise
        return self.promises / len(self.of) if self.of else 0.0

    def add(self, names: Set[str], reward: float) -> GlobalRewards:
        """Return the rewards with one more operator, which contains these operations or kinds."""
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
    """Rewards of the operators above a node, by their steps above the node (local RAVE).

    Attributes:
        count: number of evaluated paths that are included.
        last: the last of these paths; None if there are none.
        operations: rewards of the operators that contain an operation above the node, by the operation's id.
        kinds: rewards of the operators that contain a kind of step above the node, by the kind's name.
    """

    count: int
    last: EvaluatedPath | None
    operations: Mapping[str, Rewards] = field(default_factory=dict)
    kinds: Mapping[str, Rewards] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The state of the search: everything that it has learnt.

    Attributes:
        nodes: statistics of the search tree, which is a part of the space.
        operations, kinds: global rewards by operation and by kind of step.
        evaluated: the paths of evaluated operators, in the order of their rewards' arrival.
        raves: cache of local RAVE statistics, derived from `evaluated`; shared with older and newer statistics.
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
        """Return a copy with new statistics for these nodes."""
        return replace(self, nodes=self.nodes.update(nodes))


def credit(statistics: Statistics, path: Sequence[Action], reward: float) -> Statistics:
    """Return the statistics after an evaluation: its path and reward are recorded, and credited to the global RAVE statistics.

    `rave_at` computes the local RAVE statistics of a node from the recorded paths.
    """
    ids, kinds = frozenset(action.id for action in path), {action.kind for action in path}
    return replace(
        statistics,
        evaluated=(*statistics.evaluated, EvaluatedPath(tuple(path), ids, reward)),
        operations=statistics.operations.add(ids, reward),
        kinds=statistics.kinds.add(kinds, reward),
    )


def rave_at(statistics: Statistics, node: Hashable) -> Rave:
    """Return the local RAVE statistics of a node: operators above it that were evaluated since the node joined the tree."""
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
    rave = statistics.raves[node] = Rave(len(evaluated), evaluated[-1], operations, kinds)
    return rave


def _is_earlier(known: Rave, evaluated: Sequence[EvaluatedPath]) -> bool:
    """Return whether the cached statistics include exactly the first of these paths; others may be in the cache."""
    return known.count <= len(evaluated) and known.last is evaluated[known.count - 1]


def _add(rewards: dict[str, Rewards], names: set[str], reward: float) -> None:
    for name in names:
        rewards[name] = rewards.get(name, NO_REWARDS).add(reward)


Fraction = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class MctsSettings(PolicySettings):
    """Constants of the Monte Carlo tree search. The defaults are the published system's, except the last two.

    The published system learnt nothing from failures, and judged a step only by trials that had taken this very step. `policy:
    published` has its values of these, too (`PRESETS`).

    Source: the published system's search, class constants.
    """

    exploration: NotNegative = 4 * math.sqrt(2)
    """weight c of the exploration term of UCB1-tuned, for rewards in [0, 1]"""
    virtual_loss: NotNegative = 0.3
    """virtual loss: amount by which each outstanding trial lowers the score of the steps on its path"""
    widening: Fraction = 0.8
    """exponent b of progressive widening; a node with T visits considers floor(T ** b) of its children, at least one"""
    local_rave: NotNegative = 3.0
    """constant c_l; a local RAVE statistic of N visits has weight N / (c_l + N) against the global one"""
    reveal_noise: Fraction = 0.3
    """share of random noise in the order in which children are considered"""
    suppress_visits: Annotated[int, Field(ge=0)] = 30
    """number of visits after which a child whose rewards hardly vary is avoided while it has siblings"""
    suppress_deviation: NotNegative = 0.001
    """standard deviation below which rewards count as hardly varying"""
    failure_reward: Fraction | None = 0.0
    """reward of a failed evaluation; null: failures are ignored, as in the published system"""
    share_values: bool = True
    """whether to judge a child by all visits to its node, over all parents (transpositions); the published system counts only
    visits over this parent
    """


PRESETS: Mapping[str, MctsSettings] = MappingProxyType(
    {
        # All of them, so that no other default of `mcts` changes the paper's searches.
        "published": MctsSettings(
            exploration=4 * math.sqrt(2),
            virtual_loss=0.3,
            widening=0.8,
            local_rave=3.0,
            reveal_noise=0.3,
            suppress_visits=30,
            suppress_deviation=0.001,
            failure_reward=None,
            share_values=False,
        ),
        # The published exploration term is several times the range of the rewards; this one lets the search converge sooner.
        "focused": MctsSettings(exploration=0.5),
    }
)


def widen(
    hidden: Iterable[str],
    shown: int,
    visits: int,
    promise: Callable[[str], float],
    leads_on: Callable[[str], bool],
    settings: MctsSettings,
) -> list[str]:
    """Return the children to consider that were never taken, the most promising first (progressive widening).

    Args:
        hidden: the children that were never taken, including dead ends.
        shown: number of children that were taken and have operators left.
        visits: number of visits of the node.
        promise: returns the promise of a child.
        leads_on: returns whether a child has operators left. It is slow, so it is called only for children to consider.
        settings: the constants.
    """
    room = max(math.floor(visits**settings.widening), 1) - shown
    if room <= 0:
        return []
    return list(islice(filter(leads_on, sorted(hidden, key=lambda name: (-promise(name), name))), room))


def best_child(
    taken: Mapping[str, VisitStatistics], visits: int, shared: Mapping[str, Rewards], settings: MctsSettings, draws: Draws
) -> str:
    """Return the child to descend to, among the children taken before: the best by UCB1-tuned minus virtual losses.

    Args:
        taken: visits of each child.
        visits: number of visits of the node.
        shared: rewards that replace those of a child's own visits.
        settings: the constants.
        draws: random numbers that break ties.
    """
    rewards = {name: shared.get(name, child.rewards) for name, child in taken.items()}

    def is_settled(name: str) -> bool:
        enough = taken[name].rewards.count > settings.suppress_visits
        return enough and rewards[name].deviation <= settings.suppress_deviation

    def score(name: str) -> tuple[float, float]:
        ratio = math.log(max(visits, 1)) / max(taken[name].count, 1)
        spread = min(0.25, rewards[name].variance + math.sqrt(2 * ratio))
        upper = rewards[name].mean + settings.exploration * math.sqrt(ratio * spread)
        return upper - settings.virtual_loss * taken[name].outstanding, draws.of(f"tie {name}")

    return max([name for name in taken if not is_settled(name)] or taken, key=score)


class KnownStep(NamedTuple):
    """A step that was taken before, known without asking the tree. It is never a Finalize, which leads to nothing new."""

    kind: str
    id: str
    node: Hashable
    operator: None = None


@dataclass(frozen=True)
class NodeView:
    """A node during selection, with its statistics and the steps to consider.

    Attributes:
        is_open: returns whether a node may have operators left.
    """

    statistics: Statistics
    tree: Tree
    node: Hashable
    is_open: Callable[[Hashable], bool]
    settings: MctsSettings
    draws: Draws

    @cached_property
    def here(self) -> NodeStatistics:
        """Statistics of the node under selection."""
        return self.statistics.at(self.node)

    @cached_property
    def rave(self) -> Rave:
        """Local RAVE statistics of the node under selection."""
        return rave_at(self.statistics, self.node)

    @cached_property
    def drafts(self) -> Mapping[str, Mapping[str, TreeDraft]]:
        """Drafts of the steps from the node, by kind and id."""
        by_kind: dict[str, dict[str, TreeDraft]] = {}
        for draft in self.tree.drafts(self.node):
            by_kind.setdefault(draft.kind, {})[draft.id] = draft
        return by_kind

    @cached_property
    def kinds(self) -> list[str]:
        """Kinds of steps that were taken before from the node, and for which some step (taken or not) has operators left."""
        return [kind for kind in self.here.kinds if self._open_children(kind) or self._any_leads_on(kind)]

    def new_kinds(self) -> list[str]:
        """Return the kinds of steps to consider that were never taken from this node."""

        def promise(kind: str) -> float:
            return self._promise(self.rave.kinds.get(kind), self.statistics.kinds.promise(kind), f"kind {kind}")

        return widen(self._hidden_kinds(), len(self.kinds), self.here.visits.count, promise, self._any_leads_on, self.settings)

    def new_steps(self, kind: str) -> list[TreeStep]:
        """Return the steps of this kind to consider that were never taken from this node."""
        known, looked = self.here.kinds.get(kind, NO_STEPS), dict[str, TreeStep]()

        def promise(id_: str) -> float:
            return self._promise(self.rave.operations.get(id_), self.statistics.operations.promise(id_), f"step {id_}")

        def leads_on(id_: str) -> bool:
            step = self.drafts[kind][id_].look()
            if step is None or not self.is_open(step.node):
                return False
            looked[id_] = step
            return True

        ids = widen(
            self._hidden_steps(kind), len(self._open_children(kind)), known.visits.count, promise, leads_on, self.settings
        )
        return [looked[id_] for id_ in ids]

    def best_kind(self) -> str:
        """Return the kind of step by which to descend, chosen among the kinds taken before."""
        kinds = {kind: self.here.kinds[kind].visits for kind in self.kinds}
        return best_child(kinds, self.here.visits.count, {}, self.settings, self.draws)

    def best_step(self, kind: str) -> TreeStep:
        """Return the step of this kind by which to descend, chosen among the steps taken before."""
        known, open_ = self.here.kinds[kind], self._open_children(kind)
        shared = {id_: self.statistics.at(node).visits.rewards for id_, node in open_.items()}
        taken = {id_: known.steps[id_] for id_ in open_}
        chosen = best_child(taken, known.visits.count, shared if self.settings.share_values else {}, self.settings, self.draws)
        return KnownStep(kind, chosen, open_[chosen])

    def _hidden_kinds(self) -> Iterator[str]:  # a generator, because drafts are not always needed
        yield from (kind for kind in self.drafts if kind not in self.here.kinds)

    def _hidden_steps(self, kind: str) -> Iterator[str]:
        known = self.here.kinds.get(kind, NO_STEPS).steps
        yield from (id_ for id_ in self.drafts.get(kind, {}) if id_ not in known)

    def _open_children(self, kind: str) -> dict[str, Hashable]:
        """Return the nodes below steps of this kind that were taken and may have operators left, by the step's id."""
        children = self.here.kinds.get(kind, NO_STEPS).children
        return {id_: node for id_, node in children.items() if self.is_open(node)}

    def _any_leads_on(self, kind: str) -> bool:
        """Return whether any step of this kind leads to a node with operators left."""
        looked = (draft.look() for draft in self.drafts.get(kind, {}).values())
        return any(step is not None and self.is_open(step.node) for step in looked)

    def _promise(self, local: Rewards | None, everywhere: float, name: str) -> float:
        """Return the promise of a child: its local and global RAVE values, with a share of random noise."""
        settings, known = self.settings, local or NO_REWARDS
        weight = settings.local_rave + known.count
        share = settings.local_rave / weight if weight else 1.0
        rave = (1 - share) * known.promise + share * everywhere
        return (1 - settings.reveal_noise) * rave + settings.reveal_noise * self.draws.of(name)


@dataclass(frozen=True)
class Frontier:
    """The end of a selection: a node at which a new step is to be taken.

    Attributes:
        path: the steps from the root, all of them taken before.
        node: the node that they lead to.
        choices: the steps to consider at this node that were never taken, the most promising first; empty if the node has no
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
    """Descend from the root to a node at which a step that was never taken is to be considered.

    At each node, first the kind of step is chosen, then the step. `is_open` returns whether a node may have operators left.
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
    """Return a random step among the frontier's choices."""
    return draws.below("expand").order(frontier.choices, lambda step: step.id)[0]


def simulate(walks: Walks, step: TreeStep, draws: Draws) -> tuple[TreeStep, ...] | None:
    """Return random steps after `step` to an operator that was not proposed yet; None if none was found."""
    return walks.complete_after(step, draws.below("simulate"))


def add_virtual_loss(
    statistics: Statistics, tree: Tree, path: Sequence[Action]
) -> tuple[Statistics, tuple[TraversedStep, ...]]:
    """Add one more node of a proposal's path to the search tree, and add a virtual loss to all steps of the path in the tree.

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
    """Return the statistics after the reward of a proposal (None if the proposal does not count).

    The virtual losses on `visits` are removed, the reward is added there, and the operator's operations are credited with it in
    the RAVE statistics.
    """
    after = _along(statistics, visits, lambda visit: visit.arrive(reward))
    return after if reward is None else credit(after, path, reward)


def _along(
    statistics: Statistics, visits: Sequence[TraversedStep], change: Callable[[VisitStatistics], VisitStatistics]
) -> Statistics:
    """Return the statistics with `change` applied to the visits of all nodes and steps on a path."""
    changed: dict[Hashable, NodeStatistics] = {}
    for node, action, child in visits:
        changed[node] = statistics.at(node).along(action, child, change)
    if visits:
        last = statistics.at(visits[-1].child)
        changed[visits[-1].child] = replace(last, visits=change(last.visits))
    return statistics.changed(changed)


@POLICIES.register("mcts")
class MonteCarloTreeSearch(Policy):
    """The published search: UCB1-tuned with virtual losses, and progressive widening in the order of RAVE statistics.

    A node without operators left below it is closed for good; a node below which none was found in time is hidden until its
    statistics change.

    Source: the published system's search.
    """

    name = "mcts"
    Settings = MctsSettings
    settings: MctsSettings

    def _prepare(self) -> None:
        self.statistics = Statistics()
        self._visits: dict[str, tuple[TraversedStep, ...]] = {}
        self._hidden: dict[Hashable, int] = {}  # hidden nodes, with their number of visits when they were hidden

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        root = self.tree.root
        while not self.walks.is_closed(root):
            frontier = select(self.statistics, self.tree, self._is_open, self.settings, draws)
            if not frontier.choices:
                if frontier.node == root:  # all remaining operators are below hidden nodes
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
        """Close a node that has no operators left; hide it if walks below it only ran out of time."""
        if self.walks.has_more(node):
            self._hidden[node] = self.statistics.at(node).visits.count
        else:
            self.walks.close(node)

    def _adopt(self, candidate: Candidate) -> None:
        self.statistics, visits = add_virtual_loss(self.statistics, self.tree, candidate.path)
        self._visits[candidate.fingerprint] = visits

    def _observe(self, candidate: Candidate, outcome: Outcome) -> None:
        reward = self.settings.failure_reward if isinstance(outcome, Failure) else outcome
        visits = self._visits.pop(candidate.fingerprint)
        self.statistics = backpropagate(self.statistics, visits, candidate.path, reward)
