"""Evolutionary search: good operators, changed at their top."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Annotated, NamedTuple

from pydantic import Field

from syno.search.draws import Draws
from syno.search.policies.contract import Candidate, Policy, PolicySettings
from syno.search.policies.registry import POLICIES
from syno.search.reward import Failure, Outcome
from syno.search.tree import Arc, Step


class EvolutionSettings(PolicySettings):
    """Constants of the evolutionary search.

    Attributes:
        population: how many of the operators evaluated last are parents; the oldest goes when another comes.
        tournament: of how many random ones the best becomes the parent.
        beginners: how many random operators are evaluated before the first parent is chosen.
        fresh: the share of proposals that have no parent even then.
    """

    population: Annotated[int, Field(ge=1)] = 64
    tournament: Annotated[int, Field(ge=1)] = 8
    beginners: Annotated[int, Field(ge=0)] = 16
    fresh: Annotated[float, Field(ge=0, le=1)] = 0.05


class Member(NamedTuple):
    """An evaluated operator: its path, and its reward."""

    path: tuple[Arc, ...]
    reward: float


@POLICIES.register("evolution")
class Evolution(Policy):
    """Tournament selection in an ageing population. A child is its parent without a random number of its last steps,
    completed again at random. Operators given as a warm start join the population as everything that is evaluated.

    Source: regularized evolution (Real et al., AAAI 2019), with the mutation that the tree allows.
    """

    name = "evolution"
    Settings = EvolutionSettings

    settings: EvolutionSettings

    def _prepare(self) -> None:
        self._population: deque[Member] = deque(maxlen=self.settings.population)
        self._evaluated = 0

    def _choose(self, draws: Draws) -> tuple[Step, ...] | None:
        settings, random = self.settings, draws.generator()
        parents = self._population
        if not parents or self._evaluated < settings.beginners or random.random() < settings.fresh:
            return self.walks.anywhere(draws)
        rivals = random.sample(range(len(parents)), min(settings.tournament, len(parents)))
        parent = parents[max(rivals, key=lambda index: (parents[index].reward, index))]
        cut = random.randint(1, len(parent.path))
        return self._completed(parent.path[:-cut], draws) or self.walks.anywhere(draws)

    def _completed(self, kept: tuple[Arc, ...], draws: Draws) -> tuple[Step, ...] | None:
        """An operator that begins with these steps, or with the most of them that are possible."""
        taken: list[Step] = []
        node: Hashable = self.tree.root
        for arc in kept:
            step = self.tree.step(node, *arc)
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

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:
        self._evaluated += 1
        if not isinstance(outcome, Failure):
            self._population.append(Member(candidate.path, outcome))
