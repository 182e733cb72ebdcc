"""Constants of the Monte Carlo tree search, and its decisions at a node: the children to consider, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Annotated, NamedTuple

from pydantic import Field

from syno.search.policies.contract import PolicySettings
from syno.search.policies.mcts_statistics import (
    NO_REWARDS,
    NO_STEPS,
    NodeStatistics,
    Rave,
    Rewards,
    Statistics,
    VisitStatistics,
    rave_at,
)
from syno.search.tree import Tree, TreeDraft, TreeStep
from syno.search.walks import Draws

Fraction = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class MctsSettings(PolicySettings):
    """Constants of the Monte Carlo tree search. The defaults are the published system's, but for the last two.

    Of failures it learnt nothing, and it judged a step by the trials that had taken this very step. `policy: published` has its
    values of these, too (`PRESETS`).

    Source: the published system's search, class constants.
    """

    exploration: NotNegative = 4 * math.sqrt(2)
    """weight c of the exploration term of UCB1-tuned, for rewards in [0, 1]"""
    virtual_loss: NotNegative = 0.3
    """what each outstanding trial takes off the score of the steps that lead to it"""
    widening: Fraction = 0.8
    """exponent b; a node visited T times considers floor(T ** b) of its children, at least one"""
    local_rave: NotNegative = 3.0
    """c_l; a local RAVE statistic of N visits has weight N / (c_l + N) beside the global one"""
    reveal_noise: Fraction = 0.3
    """share of chance in the order in which children are considered"""
    suppress_visits: Annotated[int, Field(ge=0)] = 30
    """a child with more visits than this, whose rewards hardly vary, is avoided while it has other siblings"""
    suppress_deviation: NotNegative = 0.001
    """standard deviation up to which rewards hardly vary"""
    failure_reward: Fraction | None = 0.0
    """reward of a failed evaluation; null learns nothing of failures, as the published system"""
    share_values: bool = True
    """judge a child by all visits to its node, by any path; the published system counts only those through one parent"""


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
        # The published exploration term is several times the range of the rewards; with this one the search settles sooner.
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
        hidden: the children that were never taken, some of which may be dead ends.
        shown: how many children were taken before and have operators left.
        visits: number of visits of the node.
        promise: returns the promise of a child.
        leads_on: returns whether a child has operators left. This takes long, so it is called only for children to consider.
        settings: the constants.
    """
    room = max(math.floor(visits**settings.widening), 1) - shown
    if room <= 0:
        return []
    return list(islice(filter(leads_on, sorted(hidden, key=lambda name: (-promise(name), name))), room))


def best_child(
    taken: Mapping[str, VisitStatistics], visits: int, shared: Mapping[str, Rewards], settings: MctsSettings, draws: Draws
) -> str:
    """Return the child to descend to, of those taken before: the best by UCB1-tuned, less virtual losses.

    Args:
        taken: visits of each child.
        visits: number of visits of the node.
        shared: rewards by which to judge a child in place of those of its own visits.
        settings: the constants.
        draws: decide between equal scores.
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
    """A step that was taken before, known without asking the tree. It is no Finalize: those lead to nothing new."""

    kind: str
    id: str
    node: Hashable
    operator: None = None


@dataclass(frozen=True)
class NodeView:
    """A node as a selection sees it.

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
        """Statistics of the node."""
        return self.statistics.at(self.node)

    @cached_property
    def rave(self) -> Rave:
        """Local RAVE statistics of the node."""
        return rave_at(self.statistics, self.node)

    @cached_property
    def drafts(self) -> Mapping[str, Mapping[str, TreeDraft]]:
        """Drafts of the steps from the node, by kind and id."""
        found: dict[str, dict[str, TreeDraft]] = {}
        for draft in self.tree.drafts(self.node):
            found.setdefault(draft.kind, {})[draft.id] = draft
        return found

    @cached_property
    def kinds(self) -> list[str]:
        """Kinds of steps that were taken before and of which some step, taken or not, has operators left."""
        return [kind for kind in self.here.kinds if self._taken(kind) or self._any_leads_on(kind)]

    def new_kinds(self) -> list[str]:
        """Return the kinds to consider of which no step was ever taken."""

        def promise(kind: str) -> float:
            return self._promise(self.rave.kinds.get(kind), self.statistics.kinds.promise(kind), f"kind {kind}")

        return widen(self._hidden_kinds(), len(self.kinds), self.here.visits.count, promise, self._any_leads_on, self.settings)

    def new_steps(self, kind: str) -> list[TreeStep]:
        """Return the steps of this kind to consider that were never taken."""
        known, looked = self.here.kinds.get(kind, NO_STEPS), dict[str, TreeStep]()

        def promise(id_: str) -> float:
            return self._promise(self.rave.operations.get(id_), self.statistics.operations.promise(id_), f"step {id_}")

        def leads_on(id_: str) -> bool:
            step = self.drafts[kind][id_].look()
            if step is None or not self.is_open(step.node):
                return False
            looked[id_] = step
            return True

        ids = widen(self._hidden_steps(kind), len(self._taken(kind)), known.visits.count, promise, leads_on, self.settings)
        return [looked[id_] for id_ in ids]

    def best_kind(self) -> str:
        """Return the kind of step to descend by, of those taken before."""
        kinds = {kind: self.here.kinds[kind].visits for kind in self.kinds}
        return best_child(kinds, self.here.visits.count, {}, self.settings, self.draws)

    def best_step(self, kind: str) -> TreeStep:
        """Return the step of this kind to descend by, of those taken before."""
        known, open_ = self.here.kinds[kind], self._taken(kind)
        shared = {id_: self.statistics.at(node).visits.rewards for id_, node in open_.items()}
        taken = {id_: known.steps[id_] for id_ in open_}
        chosen = best_child(taken, known.visits.count, shared if self.settings.share_values else {}, self.settings, self.draws)
        return KnownStep(kind, chosen, open_[chosen])

    def _hidden_kinds(self) -> Iterator[str]:  # a generator, because drafts are not always needed
        yield from (kind for kind in self.drafts if kind not in self.here.kinds)

    def _hidden_steps(self, kind: str) -> Iterator[str]:
        known = self.here.kinds.get(kind, NO_STEPS).steps
        yield from (id_ for id_ in self.drafts.get(kind, {}) if id_ not in known)

    def _taken(self, kind: str) -> dict[str, Hashable]:
        """Return the nodes, by id of the step, to which steps of this kind were taken and that may have operators left."""
        children = self.here.kinds.get(kind, NO_STEPS).children
        return {id_: node for id_, node in children.items() if self.is_open(node)}

    def _any_leads_on(self, kind: str) -> bool:
        """Return whether any step of this kind leads to operators left."""
        looked = (draft.look() for draft in self.drafts.get(kind, {}).values())
        return any(step is not None and self.is_open(step.node) for step in looked)

    def _promise(self, local: Rewards | None, everywhere: float, name: str) -> float:
        """Return the promise of a child, by which children are considered: RAVE, and a share of chance."""
        settings, known = self.settings, local or NO_REWARDS
        weight = settings.local_rave + known.count
        share = settings.local_rave / weight if weight else 1.0
        rave = (1 - share) * known.promise + share * everywhere
        return (1 - settings.reveal_noise) * rave + settings.reveal_noise * self.draws.of(name)
