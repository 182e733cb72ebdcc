"""A policy and a reward as a user writes them, and wrong ones. Their paths are `own_search:NAME`."""

from __future__ import annotations

import random
from typing import Annotated

from pydantic import Field

from syno.search.policies import Policy, PolicySettings
from syno.search.reward import Metrics, Outcome, Reward
from syno.search.tree import TreeStep
from syno.search.walks import Draws


class DraftsSettings(PolicySettings):
    """Constants of `BestOfDrafts`."""

    drafts: Annotated[int, Field(ge=1)] = 3
    """how many random operators to draw for each proposal"""


class BestOfDrafts(Policy):
    """Draws some random operators and proposes the one with the shortest path."""

    Settings = DraftsSettings
    settings: DraftsSettings

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        paths = [self.walks.anywhere(draws.below(str(number))) for number in range(self.settings.drafts)]
        return min((path for path in paths if path is not None), key=len, default=None)


class Forgetful(Policy):
    """A wrong policy: its proposals depend on how often it was asked."""

    def _prepare(self) -> None:
        self.asked = 0

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        self.asked += 1
        return self.walks.anywhere(draws.below(str(self.asked)))


class Unseeded(Policy):
    """A wrong policy: its proposals do not follow from the seed."""

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        return self.walks.anywhere(Draws(random.random()))


class WithoutChoice(Policy):
    """A wrong policy: it has no `_choose`."""


class FewWeights(Reward):
    """1 / (1 + parameters / scale)."""

    needs = ("parameters",)
    scale: Annotated[float, Field(gt=0)] = 100.0
    """number of parameters of reward 1/2"""

    def of(self, metrics: Metrics) -> Outcome:
        return 1 / (1 + metrics["parameters"] / self.scale)


class NoNumber(Reward):
    """A wrong reward: it is NaN."""

    def of(self, metrics: Metrics) -> Outcome:
        return float("nan")


def no_class() -> None:
    """Neither a policy nor a reward."""
