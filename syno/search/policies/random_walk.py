"""Random search."""

from __future__ import annotations

from syno.search.draws import Draws
from syno.search.policies.contract import Policy
from syno.search.policies.registry import POLICIES
from syno.search.tree import Step


@POLICIES.register("random")
class RandomWalk(Policy):
    """Independent random walks from the root: at each node a random kind of step, then a random step of that kind."""

    name = "random"

    def _choose(self, draws: Draws) -> tuple[Step, ...] | None:
        return self.walks.anywhere(draws)
