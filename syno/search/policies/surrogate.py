"""Search by a model: it learns which operators are good, and proposes those from which it expects an improvement."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from heapq import nlargest, nsmallest
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from syno.search.policies.contract import POLICIES, Candidate, Policy, PolicySettings
from syno.search.policies.descriptions import Descriptions
from syno.search.policies.surrogate_model import Model, expected_improvement
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action, TreeStep, actions
from syno.search.walks import SHORT, Draws

OUTSTANDING = 16  # how many of the trials begun last lessen what is expected from operators like them
GROWTH = 1.1  # the model is fitted again when so many times as many operators are evaluated
PER_ROUND = 8  # outstanding trials from which on fewer candidates are drawn for each proposal
LEAST = 2  # candidates of each kind for a proposal


class SurrogateSettings(PolicySettings):
    """Constants of the search by a model."""

    beginners: Annotated[int, Field(ge=1)] = 4
    """how many random operators are evaluated before the model is asked"""
    walks: Annotated[int, Field(ge=1)] = 16
    """random operators among which the model chooses; fewer where many trials run at once"""
    mutations: Annotated[int, Field(ge=0)] = 8
    """mutations of the best operators among which the model chooses, too"""
    parents: Annotated[int, Field(ge=1)] = 8
    """how many of the best operators are mutated"""
    most_rows: Annotated[int, Field(ge=16)] = 256
    """how many evaluated operators the model learns from: a quarter the best, the others a random sample"""


class Evaluated(NamedTuple):
    """An evaluated operator: its path, its reward (0 after a failure), and its place in the random order of the sample."""

    path: tuple[Action, ...]
    reward: float
    place: str


@POLICIES.register("surrogate")
class Surrogate(Policy):
    """Expected improvement, under extremely randomized trees over the features of operators, among random walks and mutations
    of the best operators. The more an outstanding trial is like an operator for the model, the less is expected.

    Source: sequential model-based optimization (Hutter et al., 2011).
    """

    name = "surrogate"
    Settings = SurrogateSettings

    settings: SurrogateSettings

    def _prepare(self) -> None:
        self._descriptions = Descriptions(self.tree)
        self._evaluated: list[Evaluated] = []
        self._model: tuple[int, Model] | None = None  # with how many evaluated operators it was due

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        if len(self._evaluated) < self.settings.beginners:
            return self.walks.anywhere(draws)
        paths = list(self._candidates(draws))
        if not paths:
            return self.walks.anywhere(draws)
        model = self._fitted()
        rows = np.array([self._descriptions.of(actions(path), path[-1].operator) for path in paths])
        means, deviations = model.predict(rows)
        gains = expected_improvement(means.tolist(), deviations.tolist(), max(one.reward for one in self._evaluated))
        if running := list(self._outstanding.values())[-OUTSTANDING:]:
            others = np.array([self._descriptions.of(one.path) for one in running])
            gains = (gains * (1 - model.alike(rows, others)).prod(axis=1)).tolist()
        return paths[max(range(len(paths)), key=lambda index: (gains[index], -index))]

    # ---- candidates -----------------------------------------------------------------------------------------------

    def _candidates(self, draws: Draws) -> Iterator[tuple[TreeStep, ...]]:
        """Yield paths to operators that are not taken: random ones, then mutations of the best."""
        rounds = 1 + len(self._outstanding) // PER_ROUND
        for number in range(max(self.settings.walks // rounds, LEAST)):
            path = self.walks.complete(self.tree.root, draws.below(f"walk {number}"), SHORT)
            if path is not None:
                yield path
        best = nlargest(self.settings.parents, self._evaluated, key=lambda one: one.reward)
        for number in range(max(self.settings.mutations // rounds, min(LEAST, self.settings.mutations))):
            own = draws.below(f"mutation {number}")
            random = own.generator()
            parent = random.choice(best).path
            path = self._mutated(parent[: -random.randint(1, len(parent))], own)
            if path is not None:
                yield path

    def _mutated(self, kept: Sequence[Action], draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return a path to an operator that begins with these actions; None if there is none."""
        taken: list[TreeStep] = []
        node: Hashable = self.tree.root
        for action in kept:
            step = self.tree.step(node, *action)
            if step is None:
                return None
            taken.append(step)
            node = step.node
        rest = self.walks.complete(node, draws, SHORT)
        return None if rest is None else (*taken, *rest)

    # ---- the model ------------------------------------------------------------------------------------------------

    def _fitted(self) -> Model:
        """Return the model of the operators that were evaluated when it was due for the last time."""
        due = 1
        while (following := max(due + 1, int(due * GROWTH))) <= len(self._evaluated):
            due = following
        if self._model is None or self._model[0] != due:
            known = self._sample(self._evaluated[:due])
            model = Model(self.seed)
            model.fit(np.array([self._descriptions.of(one.path) for one in known]), np.array([one.reward for one in known]))
            self._model = (due, model)
        return self._model[1]

    def _sample(self, evaluated: list[Evaluated]) -> list[Evaluated]:
        """Return what the model learns from. With a few more evaluations it hardly changes, so few are described anew."""
        if len(evaluated) <= self.settings.most_rows:
            return evaluated
        best = nlargest(self.settings.most_rows // 4, evaluated, key=lambda one: (one.reward, one.place))
        places = {one.place for one in best}
        others = (one for one in evaluated if one.place not in places)
        return [*best, *nsmallest(self.settings.most_rows - len(best), others, key=lambda one: one.place)]

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:
        reward = 0.0 if isinstance(outcome, Failure) else float(outcome)
        self._evaluated.append(Evaluated(candidate.path, reward, candidate.fingerprint))
