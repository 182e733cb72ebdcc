"""Random search: the smallest policy, and an example for users' own."""

from __future__ import annotations

from syno.search.policies.contract import POLICIES, Policy
from syno.search.tree import TreeStep
from syno.search.walks import Draws


@POLICIES.register("random")
class RandomWalk(Policy):
    """Independent random walks from the root: at each node a random kind of step, then a random step of this kind."""

    name = "random"

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        return self.walks.anywhere(draws)
