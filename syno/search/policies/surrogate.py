"""Search by a model: it learns which operators are good, and proposes those from which it expects an improvement."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest, nsmallest
from itertools import chain
from typing import Any

import numpy as np

from syno.base.errors import SpecError
from syno.search.policies.contract import POLICIES, STOPPED, Candidate, Policy, Proposal
from syno.search.policies.descriptions import Descriptions
from syno.search.policies.earlier import read_earlier
from syno.search.policies.evaluated import Evaluated, rewards
from syno.search.policies.surrogate_goal import LIKELY, GoalModels, log_speedup
from syno.search.policies.surrogate_model import Model, expected_improvement
from syno.search.policies.surrogate_settings import SurrogateSettings
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action, TreeStep, actions
from syno.search.walks import SHORT, Draws

__all__ = ["Surrogate", "SurrogateSettings"]

OUTSTANDING = 16  # how many of the trials begun last lessen what is expected from operators like them
PER_ROUND = 8  # outstanding trials from which on fewer candidates are drawn for each proposal
LEAST = 2  # candidates of each kind for a proposal
GROWTH = 1.1  # the model is fitted again when so many times as many operators are proposed
FIRST = ("twice: overlap", "twice: share", "FLOPs")  # columns by which the first operators are chosen


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
        self._descriptions = Descriptions(self.tree, timed=self.goal is not None and self.goal.measures)
        self._evaluated: dict[str, Evaluated] = {}  # by fingerprint, in the order of proposals
        self._running: dict[str, Candidate] = {}  # those of which nothing is known yet
        self._earlier = [self._learnt(given) for given in self.settings.learn_from]
        self._events = 0
        self._due = (0, 0, list[Evaluated]())  # a number of proposals and of events, and what was known then
        self._model: tuple[int, Model] | None = None  # with how many events it was fitted
        self._of_goal: tuple[int, GoalModels] | None = None

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        out = sum(one.is_screened for one in self._evaluated.values())
        known = len(self._evaluated) - len(self._running) - out + sum(map(len, self._earlier))
        if known < self.settings.beginners:
            return self._beginner(draws)
        paths = [*self._walks(draws, self.settings.walks), *self._mutations(draws)]
        if not paths:
            return self.walks.anywhere(draws)
        model = self._fitted()
        rows = self._rows(paths)
        models = self._fitted_to_goal()
        best = max((one.reward for one in self._ended() or chain(*self._earlier) if one.reward is not None), default=0.0)
        improvement = partial(expected_improvement, *model.predict(rows), best)
        gains = improvement() if models is None else models.gains(rows, improvement)
        if running := list(self._running.values())[-OUTSTANDING:]:
            others = np.array([(0.0, *self._descriptions.of(one)) for one in running])
            gains = gains * (1 - model.alike(rows, others)).prod(axis=1)
        return paths[int(gains.argmax())]

    def _beginner(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return the path to an operator that reads much of its input; a random one where that is not known."""
        features, models = self._descriptions.features, self._fitted_to_goal()
        paths = self._walks(draws, self.settings.beginner_walks) if features is not None or models is not None else []
        if not paths:
            return self.walks.anywhere(draws)
        columns, rows = [] if features is None else [1 + features.columns.index(name) for name in FIRST], self._rows(paths)
        keys = [tuple(row[columns]) for row in rows]
        if models is not None:  # among those that are about as likely to be fast enough as the likeliest
            chances = models.chances(rows)
            keys = [(float(chance >= LIKELY * chances.max()), *key) for chance, key in zip(chances, keys, strict=True)]
        return paths[keys.index(max(keys))]

    # ---- candidates -----------------------------------------------------------------------------------------------

    def _walks(self, draws: Draws, count: int) -> list[tuple[TreeStep, ...]]:
        """Return random paths to operators that are not taken."""
        count = max(count // self._rounds, LEAST)
        found = (self.walks.complete(self.tree.root, draws.below(f"walk {number}"), SHORT) for number in range(count))
        return [path for path in found if path is not None]

    def _mutations(self, draws: Draws) -> Iterator[tuple[TreeStep, ...]]:
        """Yield paths to operators that are not taken, which begin as the best ones do."""
        best = self._parents()
        count = max(self.settings.mutations // self._rounds, min(LEAST, self.settings.mutations))
        for number in range(count if best else 0):
            own = draws.below(f"mutation {number}")
            random = own.generator()
            candidate = random.choice(best).candidate
            assert candidate is not None, "it is of this study"
            parent = candidate.path
            path = self._completed(parent[: -random.randint(1, len(parent))], own)
            if path is not None:
                yield path

    def _parents(self) -> list[Evaluated]:
        """Return the operators that are mutated: the best, and while these are few, the fastest of those that were too slow."""
        best = nlargest(self.settings.parents, self._ended(), key=lambda one: one.reward or 0.0)
        slow = [one for one in self._evaluated.values() if one.is_screened and log_speedup(one) is not None]
        return [*best, *nlargest(self.settings.parents - len(best), slow, key=lambda one: log_speedup(one) or 0.0)]

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
        return 1 + len(self._running) // PER_ROUND

    def _rows(self, paths: Sequence[Sequence[TreeStep]]) -> np.ndarray:
        """Return the numbers of operators of this study, the study's own number in the first column."""
        rows = []
        for path in paths:
            operator = path[-1].operator
            assert operator is not None, "a path ends in a Finalize"
            rows.append((0.0, *self._descriptions.of(Proposal(actions(path), self.walks.fingerprint(path[-1]), operator))))
        return np.array(rows)

    # ---- the model ------------------------------------------------------------------------------------------------

    def _fitted(self) -> Model:
        """Return the model of what was known when it was due for the last time."""
        events, evaluated = self._snapshot()
        if self._model is None or self._model[0] != events:
            own = [one for one in evaluated if one.is_informed]
            studies = [self._sample(list(zip(study, rewards(study), strict=True))) for study in (own, *self._earlier)]
            known = [(number, *one) for number, study in enumerate(studies) for one in study]
            rows = np.array([(float(number), *self._row(one)) for number, one, _ in known])
            model = Model(self.settings.trees, self.seed)
            model.fit(rows, np.array([reward for *_, reward in known]))
            self._model = (events, model)
        return self._model[1]

    def _fitted_to_goal(self) -> GoalModels | None:
        """Return the models of the goal, of what was known when they were due; None without a goal."""
        if self.goal is None:
            return None
        events, known = self._snapshot()
        if self._of_goal is None or self._of_goal[0] != events:
            new, timed = partial(Model, self.settings.trees, self.seed), self._descriptions.is_timed
            self._of_goal = (events, GoalModels.fit(self.goal, new, known, self._row, self._sample, timed))
        return self._of_goal[1]

    def _snapshot(self) -> tuple[int, list[Evaluated]]:
        """Return what was known when a model was due for the last time, and the number of events until then."""
        due, events, known = self._due
        if due < _due(self._proposed) or sum(one.is_informed for one in known) < self.settings.beginners:
            return self._events, self._informed()
        return events, known

    def _row(self, one: Evaluated) -> tuple[float, ...]:
        if one.row is not None:
            return one.row
        assert one.candidate is not None, "it is of this study"
        return self._descriptions.of(one.candidate)

    def _sample(self, evaluated: list[tuple[Evaluated, float]]) -> list[tuple[Evaluated, float]]:
        """Return what the model learns from. With a few more evaluations it hardly changes, so few are described anew."""
        if len(evaluated) <= self.settings.most_rows:
            return evaluated
        best = nlargest(self.settings.most_rows // 4, evaluated, key=lambda pair: (pair[1], pair[0].place))
        places = {one.place for one, _ in best}
        others = (pair for pair in evaluated if pair[0].place not in places)
        return [*best, *nsmallest(self.settings.most_rows - len(best), others, key=lambda pair: pair[0].place)]

    def _informed(self) -> list[Evaluated]:
        return [one for one in self._evaluated.values() if one.is_informed or one.is_screened or one.metrics]

    def _ended(self) -> list[Evaluated]:
        return [one for one in self._evaluated.values() if one.reward is not None]

    def _learnt(self, given: str) -> list[Evaluated]:
        """Return the trials of an earlier study whose operators fit the layers of this one."""
        if self._descriptions.features is None:
            raise SpecError(
                "policy: learn_from needs a space with a spec, by which its operators are compared with earlier ones"
            )
        trials = read_earlier(given)
        described = [(trial, self._descriptions.of_operator(trial.operator)) for trial in trials]
        found = [Evaluated(trial.operator.id, trial.reward, row=row) for trial, row in described if row is not None]
        if not found:
            raise SpecError(
                f'policy: none of the {len(trials)} operators of "{given}" in learn_from fits the layers of this search; '
                "name a search of a similar space"
            )
        return found

    # ---- events ---------------------------------------------------------------------------------------------------

    def _adopted(self, candidate: Candidate) -> None:
        before = self._proposed - 1
        if self._due[0] < _due(before):  # the next proposals are made with what is known now
            self._due = (before, self._events, self._informed())
        self._evaluated[candidate.fingerprint] = Evaluated(candidate.fingerprint, candidate=candidate)
        self._running[candidate.fingerprint] = candidate

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:
        self._learn(candidate, reward=0.0 if isinstance(outcome, Failure) else float(outcome))

    def _measured(self, candidate: Candidate, metrics: Mapping[str, float]) -> None:
        if self.goal is not None:
            self._evaluated[candidate.fingerprint] = self._evaluated[candidate.fingerprint]._replace(metrics=metrics)

    def _screened(self, candidate: Candidate) -> None:
        self._learn(candidate, is_screened=True)

    def _reported(self, candidate: Candidate, step: float, value: float) -> None:
        values = dict(self._evaluated[candidate.fingerprint].values) | {step: value}
        self._learn(candidate, values=tuple(sorted(values.items())))

    def _stopped(self, candidate: Candidate) -> None:
        if not self._evaluated[candidate.fingerprint].values:
            self._told(candidate, STOPPED)

    def _learn(self, candidate: Candidate, **known: Any) -> None:
        self._events += 1
        self._running.pop(candidate.fingerprint, None)
        self._evaluated[candidate.fingerprint] = self._evaluated[candidate.fingerprint]._replace(**known)


def _due(proposed: int) -> int:
    """Return with how many proposals, of those that were made, the model was due for the last time."""
    due = min(proposed, 1)
    while due and (following := max(due + 1, int(due * GROWTH))) <= proposed:
        due = following
    return due
