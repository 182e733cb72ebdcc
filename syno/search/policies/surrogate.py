"""Search by a model: it learns which operators are good, and proposes those from which it expects an improvement."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import chain
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, computed_field

from syno.base.errors import SpecError
from syno.search.policies.contract import POLICIES, Candidate, Policy, PolicySettings
from syno.search.policies.descriptions import Descriptions
from syno.search.policies.earlier import content, read_earlier
from syno.search.policies.surrogate_model import Model, expected_improvement
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action, TreeStep, actions
from syno.search.walks import SHORT, Draws

OUTSTANDING = 16  # how many of the trials begun last lessen what is expected from operators like them
PER_ROUND = 8  # outstanding trials from which on fewer candidates are drawn for each proposal
LEAST = 2  # candidates of each kind for a proposal
GROWTH = 1.1  # the model is fitted again when so many times as many operators are evaluated
FIRST = ("twice: overlap", "twice: share", "FLOPs")  # columns by which the first operators are chosen


class SurrogateSettings(PolicySettings):
    """Constants of the search by a model."""

    beginners: Annotated[int, Field(ge=1)] = 4
    """how many operators are evaluated before the model is asked; those of `learn_from` count"""
    beginner_walks: Annotated[int, Field(ge=1)] = 8
    """each of the first operators is, of so many random ones, the one that reads, applied twice, most nearly the positions that a
    convolution with a window of 3 reads; of these the one that reads most, with the most FLOPs"""
    walks: Annotated[int, Field(ge=1)] = 16
    """random operators among which the model chooses; fewer where many trials run at once"""
    mutations: Annotated[int, Field(ge=0)] = 8
    """mutations of the best operators among which the model chooses, too"""
    parents: Annotated[int, Field(ge=1)] = 8
    """how many of the best operators are mutated"""
    trees: Annotated[int, Field(ge=2)] = 32
    """how many trees the model has"""
    most_rows: Annotated[int, Field(ge=16)] = 256
    """how many operators of a study the model learns from at most: a quarter are the best, the others a random sample"""
    learn_from: tuple[str, ...] = ()
    """folders of earlier searches, such as results/quickstart, whose trials the model learns from, too. Their rewards are taken
    as they are, so the reward should be alike. The study remembers what they hold and is not resumed with other trials"""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def learnt(self) -> dict[str, str]:
        """Checksums of the trials of `learn_from`."""
        return {given: content(given) for given in self.learn_from}


class Evaluated(NamedTuple):
    """An evaluated operator, as the model learns from it.

    Attributes:
        path: its path; () in an earlier study.
        reward: 0 after a failure.
        place: its fingerprint or id, which gives its place in the order of the random sample.
        row: its numbers, if they are known; see `Descriptions`.
    """

    path: tuple[Action, ...]
    reward: float
    place: str
    row: tuple[float, ...] | None = None


@POLICIES.register("surrogate")
class Surrogate(Policy):
    """Expected improvement, under extremely randomized trees over the features of operators, among random walks and mutations
    of the best operators. The more an outstanding trial is like an operator for the model, the less is expected from it.

    Source: sequential model-based optimization (Hutter et al., 2011).
    """

    name = "surrogate"
    Settings = SurrogateSettings

    settings: SurrogateSettings

    def _prepare(self) -> None:
        self._descriptions = Descriptions(self.tree)
        self._evaluated: list[Evaluated] = []
        self._earlier = [self._learnt(given) for given in self.settings.learn_from]
        self._model: tuple[int, Model] | None = None  # with how many evaluated operators it was due

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        if len(self._evaluated) + sum(map(len, self._earlier)) < self.settings.beginners:
            return self._beginner(draws)
        paths = [*self._walks(draws, self.settings.walks), *self._mutations(draws)]
        if not paths:
            return self.walks.anywhere(draws)
        model = self._fitted()
        rows = self._rows(paths)
        best = max(one.reward for one in self._evaluated or chain(*self._earlier))
        gains = expected_improvement(*model.predict(rows), best)
        if running := list(self._outstanding.values())[-OUTSTANDING:]:
            others = np.array([(0.0, *self._descriptions.of(one.path)) for one in running])
            gains = gains * (1 - model.alike(rows, others)).prod(axis=1)
        return paths[int(gains.argmax())]

    def _beginner(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return the path to an operator that reads much of its input; a random one where that is not known."""
        features = self._descriptions.features
        paths = self._walks(draws, self.settings.beginner_walks) if features is not None else []
        if features is None or not paths:
            return self.walks.anywhere(draws)
        columns = [1 + features.columns.index(name) for name in FIRST]
        keys = [tuple(row[columns]) for row in self._rows(paths)]
        return paths[keys.index(max(keys))]

    # ---- candidates -----------------------------------------------------------------------------------------------

    def _walks(self, draws: Draws, count: int) -> list[tuple[TreeStep, ...]]:
        """Return random paths to operators that are not taken."""
        count = max(count // self._rounds, LEAST)
        found = (self.walks.complete(self.tree.root, draws.below(f"walk {number}"), SHORT) for number in range(count))
        return [path for path in found if path is not None]

    def _mutations(self, draws: Draws) -> Iterator[tuple[TreeStep, ...]]:
        """Yield paths to operators that are not taken, which begin as the best ones do."""
        best = nlargest(self.settings.parents, self._evaluated, key=lambda one: one.reward)
        count = max(self.settings.mutations // self._rounds, min(LEAST, self.settings.mutations))
        for number in range(count if best else 0):
            own = draws.below(f"mutation {number}")
            random = own.generator()
            parent = random.choice(best).path
            path = self._completed(parent[: -random.randint(1, len(parent))], own)
            if path is not None:
                yield path

    def _completed(self, kept: Sequence[Action], draws: Draws) -> tuple[TreeStep, ...] | None:
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

    @property
    def _rounds(self) -> int:
        """By how much the number of candidates is divided: many workers share the work, and none waits long for an answer."""
        return 1 + len(self._outstanding) // PER_ROUND

    def _rows(self, paths: Sequence[Sequence[TreeStep]]) -> np.ndarray:
        """Return the numbers of operators of this study, the study's own number in the first column."""
        return np.array([(0.0, *self._descriptions.of(actions(path), path[-1].operator)) for path in paths])

    # ---- the model ------------------------------------------------------------------------------------------------

    def _fitted(self) -> Model:
        """Return the model of the operators that were evaluated when it was due for the last time."""
        due = min(len(self._evaluated), 1)
        while due and (following := max(due + 1, int(due * GROWTH))) <= len(self._evaluated):
            due = following
        if self._model is None or self._model[0] != due:
            known = [
                (number, one)
                for number, study in enumerate((self._evaluated[:due], *self._earlier))
                for one in self._sample(study)
            ]
            rows = np.array([(float(number), *(one.row or self._descriptions.of(one.path))) for number, one in known])
            model = Model(self.settings.trees, self.seed)
            model.fit(rows, np.array([one.reward for _, one in known]))
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

    def _learnt(self, given: str) -> list[Evaluated]:
        """Return the trials of an earlier study whose operators fit the layers of this one."""
        if self._descriptions.features is None:
            raise SpecError(
                "policy: learn_from needs a space with a spec, by which its operators are compared with earlier ones"
            )
        trials = read_earlier(given)
        described = [(trial, self._descriptions.of_operator(trial.operator)) for trial in trials]
        found = [Evaluated((), trial.reward, trial.operator.id, row) for trial, row in described if row is not None]
        if not found:
            raise SpecError(
                f'policy: none of the {len(trials)} operators of "{given}" in learn_from fits the layers of this search; '
                "name a search of a similar space"
            )
        return found

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:
        reward = 0.0 if isinstance(outcome, Failure) else float(outcome)
        self._evaluated.append(Evaluated(candidate.path, reward, candidate.fingerprint))
