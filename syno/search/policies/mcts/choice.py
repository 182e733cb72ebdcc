"""The two decisions at a node of a Monte Carlo tree search: which children come into consideration, and which is the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from syno.search.draws import Draws
from syno.search.policies.mcts.rave import rave_at
from syno.search.policies.mcts.settings import MctsSettings
from syno.search.policies.mcts.statistics import NO_REWARDS, NO_STEPS, NodeStatistics, Rave, Rewards, Statistics, Visits
from syno.search.tree import Step


def reveal(
    names: Sequence[str], taken: Container[str], visits: int, promise: Callable[[str], float], settings: MctsSettings
) -> list[str]:
    """The children that come into consideration and were never taken: progressive widening, the most promising first.

    `names` are the children with something left, `taken` those that were taken before.
    """
    hidden = [name for name in names if name not in taken]
    room = max(math.floor(visits**settings.widening), 1) - (len(names) - len(hidden))
    return sorted(hidden, key=lambda name: (-promise(name), name))[:room] if room > 0 else []


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


@dataclass(frozen=True)
class Place:
    """A node as a selection sees it.

    Attributes:
        steps: those from the node that are not known to have nothing left.
    """

    statistics: Statistics
    node: Hashable
    steps: Sequence[Step]
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

    def new_kinds(self) -> list[str]:
        """Kinds of steps that come into consideration and of which none was ever taken."""

        def promise(kind: str) -> float:
            return self._promise(self.rave.kinds.get(kind), self.statistics.kinds.promise(kind), f"kind {kind}")

        kinds = list(dict.fromkeys(step.kind for step in self.steps))
        return reveal(kinds, self.here.kinds, self.here.visits.count, promise, self.settings)

    def new_steps(self, kind: str) -> list[Step]:
        """Steps of this kind that come into consideration and were never taken."""

        def promise(id_: str) -> float:
            return self._promise(self.rave.operations.get(id_), self.statistics.operations.promise(id_), f"step {id_}")

        steps = {step.id: step for step in self.steps if step.kind == kind}
        known = self.here.kinds.get(kind, NO_STEPS)
        return [steps[id_] for id_ in reveal(list(steps), known.steps, known.visits.count, promise, self.settings)]

    def best_kind(self) -> str:
        """The kind of step to descend by, of those taken before."""
        kinds = {step.kind: self.here.kinds[step.kind].visits for step in self.steps if step.kind in self.here.kinds}
        return best(kinds, self.here.visits.count, {}, self.settings, self.draws)

    def best_step(self, kind: str) -> Step:
        """The step of this kind to descend by, of those taken before."""
        known = self.here.kinds[kind]
        steps = {step.id: step for step in self.steps if step.kind == kind and step.id in known.steps}
        shared = {id_: self.statistics.at(step.node).visits.rewards for id_, step in steps.items()}
        taken = {id_: known.steps[id_] for id_ in steps}
        judged = shared if self.settings.share_values else {}
        return steps[best(taken, known.visits.count, judged, self.settings, self.draws)]

    def _promise(self, local: Rewards | None, everywhere: float, name: str) -> float:
        """How early a child comes into consideration: RAVE, and a share of chance."""
        settings, known = self.settings, local or NO_REWARDS
        weight = settings.local_rave + known.count
        share = settings.local_rave / weight if weight else 1.0
        rave = (1 - share) * known.promise + share * everywhere
        return (1 - settings.reveal_noise) * rave + settings.reveal_noise * self.draws.of(name)
