"""Evolutionary search: mutations replace the last steps of good operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Annotated, NamedTuple

from pydantic import Field

from syno.search.policies.contract import POLICIES, Candidate, Policy, PolicySettings
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action, TreeStep
from syno.search.walks import Draws


class EvolutionSettings(PolicySettings):
    """Constants of the evolutionary search."""

    population: Annotated[int, Field(ge=1)] = 64
    """number of most recently evaluated operators that may be parents; a new operator replaces the oldest"""
    tournament: Annotated[int, Field(ge=1)] = 8
    """size of the random sample whose best operator becomes the parent"""
    beginners: Annotated[int, Field(ge=0)] = 16
    """number of random operators that are evaluated before the first parent is chosen"""
    fresh: Annotated[float, Field(ge=0, le=1)] = 0.05
    """share of later proposals that are random operators without a parent"""


class Individual(NamedTuple):
    """An evaluated operator: its path and its reward."""

    path: tuple[Action, ...]
    reward: float


@POLICIES.register("evolution")
class Evolution(Policy):
    """Tournament selection in an ageing population. A child keeps the first steps of its parent; a random number of its last
    steps is replaced by a random completion. Evaluated operators of the warm start join the population.

    Source: regularized evolution (Real et al., AAAI 2019), with the mutation that the tree allows.
    """

    name = "evolution"
    Settings = EvolutionSettings

    settings: EvolutionSettings

    def _prepare(self) -> None:
        self._population: deque[Individual] = deque(maxlen=self.settings.population)
        self._evaluated = 0

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        settings, random = self.settings, draws.generator()
        parents = self._population
        if not parents or self._evaluated < settings.beginners or random.random() < settings.fresh:
            return self.walks.anywhere(draws)
        rivals = random.sample(range(len(parents)), min(settings.tournament, len(parents)))
        parent = parents[max(rivals, key=lambda index: (parents[index].reward, index))]
        cut = random.randint(1, len(parent.path))
        return self._completed(parent.path[:-cut], draws) or self.walks.anywhere(draws)

    def _completed(self, kept: tuple[Action, ...], draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return a path to an operator that begins with these actions, or with the longest possible prefix of them."""
        taken: list[TreeStep] = []
        node: Hashable = self.tree.root
        for action in kept:
            step = self.tree.step(node, *action)
            if step is None:
                break
            taken.append(step)
            node = step.node
        while True:
            rest = self.walks.complete(node, draws.below(str(len(taken))))
            if rest is not None:
                return (*taken, *rest)
            if not taken:
                return None
            taken.pop()
            node = taken[-1].node if taken else self.tree.root

    def _screened(self, candidate: Candidate) -> None:
        """Do not add screened-out operators to the population: in a search with a goal, they may be the majority."""

    def _observe(self, candidate: Candidate, outcome: Outcome) -> None:
        self._evaluated += 1
        if not isinstance(outcome, Failure):
            self._population.append(Individual(candidate.path, outcome))
