"""The two decisions at a node of a Monte Carlo tree search: which children come into consideration, and which is the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from syno.search.draws import Draws
from syno.search.policies.mcts.rave import rave_at
from syno.search.policies.mcts.settings import MctsSettings
from syno.search.policies.mcts.statistics import NO_REWARDS, NO_STEPS, NodeStatistics, Rave, Rewards, Statistics, Visits
from syno.search.tree import Draft, Step, Tree


def reveal(
    hidden: Iterable[str],
    shown: int,
    visits: int,
    promise: Callable[[str], float],
    leads_on: Callable[[str], bool],
    settings: MctsSettings,
) -> list[str]:
    """The children that come into consideration and were never taken: progressive widening, the most promising first.

    Args:
        hidden: the children that were never taken, some of which may be dead ends.
        shown: how many were taken before and have something left.
        visits: of the node.
        promise: what a child promises.
        leads_on: whether a child has something left. Only those that would come into consideration are asked about, as to
            answer takes long.
    """
    room = max(math.floor(visits**settings.widening), 1) - shown
    if room <= 0:
        return []
    return list(islice(filter(leads_on, sorted(hidden, key=lambda name: (-promise(name), name))), room))


def best(taken: Mapping[str, Visits], visits: int, shared: Mapping[str, Rewards], settings: MctsSettings, draws: Draws) -> str:
    """The child to descend to, of those taken before: UCB1-tuned, less virtual losses; the published score where no trial is
    outstanding.

    `shared` gives the rewards to judge a child by where they are not those of its own visits.
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


class Taken(NamedTuple):
    """A step that was taken before, known without the tree: it is not the last of a path that is new."""

    kind: str
    id: str
    node: Hashable
    operator: None = None


@dataclass(frozen=True)
class Place:
    """A node as a selection sees it.

    Attributes:
        is_open: whether a node is not known to have nothing left.
    """

    statistics: Statistics
    tree: Tree
    node: Hashable
    is_open: Callable[[Hashable], bool]
    settings: MctsSettings
    draws: Draws

    @cached_property
    def here(self) -> NodeStatistics:
        """What is known at the node."""
        return self.statistics.at(self.node)

    @cached_property
    def rave(self) -> Rave:
        """What operators above the node say of their steps further up."""
        return rave_at(self.statistics, self.node)

    @cached_property
    def drafts(self) -> Mapping[str, Mapping[str, Draft]]:
        """What may be a step, by kind and id."""
        found: dict[str, dict[str, Draft]] = {}
        for draft in self.tree.drafts(self.node):
            found.setdefault(draft.kind, {})[draft.id] = draft
        return found

    @cached_property
    def kinds(self) -> list[str]:
        """Kinds of steps that were taken before and of which any has something left, taken or not."""
        return [kind for kind in self.here.kinds if self._taken(kind) or self._any_leads_on(kind)]

    def new_kinds(self) -> list[str]:
        """Kinds of steps that come into consideration and of which none was ever taken."""

        def promise(kind: str) -> float:
            return self._promise(self.rave.kinds.get(kind), self.statistics.kinds.promise(kind), f"kind {kind}")

        return reveal(self._hidden_kinds(), len(self.kinds), self.here.visits.count, promise, self._any_leads_on, self.settings)

    def new_steps(self, kind: str) -> list[Step]:
        """Steps of this kind that come into consideration and were never taken."""
        known, looked = self.here.kinds.get(kind, NO_STEPS), dict[str, Step]()

        def promise(id_: str) -> float:
            return self._promise(self.rave.operations.get(id_), self.statistics.operations.promise(id_), f"step {id_}")

        def leads_on(id_: str) -> bool:
            step = self.drafts[kind][id_].look()
            if step is None or not self.is_open(step.node):
                return False
            looked[id_] = step
            return True

        ids = reveal(self._hidden_steps(kind), len(self._taken(kind)), known.visits.count, promise, leads_on, self.settings)
        return [looked[id_] for id_ in ids]

    def best_kind(self) -> str:
        """The kind of step to descend by, of those taken before."""
        kinds = {kind: self.here.kinds[kind].visits for kind in self.kinds}
        return best(kinds, self.here.visits.count, {}, self.settings, self.draws)

    def best_step(self, kind: str) -> Step:
        """The step of this kind to descend by, of those taken before."""
        known, open_ = self.here.kinds[kind], self._taken(kind)
        shared = {id_: self.statistics.at(node).visits.rewards for id_, node in open_.items()}
        taken = {id_: known.steps[id_] for id_ in open_}
        chosen = best(taken, known.visits.count, shared if self.settings.share_values else {}, self.settings, self.draws)
        return Taken(kind, chosen, open_[chosen])

    def _hidden_kinds(self) -> Iterator[str]:  # a generator, as drafts are not always needed
        yield from (kind for kind in self.drafts if kind not in self.here.kinds)

    def _hidden_steps(self, kind: str) -> Iterator[str]:
        known = self.here.kinds.get(kind, NO_STEPS).steps
        yield from (id_ for id_ in self.drafts.get(kind, {}) if id_ not in known)

    def _taken(self, kind: str) -> dict[str, Hashable]:
        """Where steps of this kind lead that were taken before, by id, if that has something left."""
        children = self.here.kinds.get(kind, NO_STEPS).children
        return {id_: node for id_, node in children.items() if self.is_open(node)}

    def _any_leads_on(self, kind: str) -> bool:
        """Whether any step of this kind has something left."""
        looked = (draft.look() for draft in self.drafts.get(kind, {}).values())
        return any(step is not None and self.is_open(step.node) for step in looked)

    def _promise(self, local: Rewards | None, everywhere: float, name: str) -> float:
        """How early a child comes into consideration: RAVE, and a share of chance."""
        settings, known = self.settings, local or NO_REWARDS
        weight = settings.local_rave + known.count
        share = settings.local_rave / weight if weight else 1.0
        rave = (1 - share) * known.promise + share * everywhere
        return (1 - settings.reveal_noise) * rave + settings.reveal_noise * self.draws.of(name)
