"""Search with a surrogate model, which predicts rewards from features; the policy proposes by expected improvement."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from heapq import nlargest, nsmallest
from itertools import chain
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, computed_field

from syno.base.errors import SpecError, SynoError
from syno.ir.graph import PGraph
from syno.lower.pytorch.statements import estimated_time
from syno.search.goal import Goal
from syno.search.policies.contract import POLICIES, STOPPED, Candidate, Policy, PolicySettings, Proposal
from syno.search.policies.earlier import Evaluated, content, read_earlier, rewards
from syno.search.reward import Failure, GainReward, Outcome, Reward, relative_score
from syno.search.tree import Action, Tree, TreeStep, actions
from syno.search.walks import SHORT, Draws
from syno.space.features import OperatorFeatures
from syno.space.spec import OperatorSpec
from syno.train.contract import FIT_ERROR
from syno.train.metric import CHANCE, OF_ORIGINAL, score_of

__all__ = ["Surrogate", "SurrogateSettings"]

Numbers = NDArray[np.float64]

SPLITS_FROM = 0.5  # share of the columns among which each split is chosen
LEAST_DEVIATION = 0.02  # of a reward in [0, 1]: the deviation between trainings with different seeds
FEWEST = 3  # least number of operators with a known speedup (or fit error) for which trees are fitted
LEAST_ERROR = 1e-6  # error of a fit that counts as exact


class Model:
    """Extremely randomized trees. The mean over trees is the prediction, their standard deviation its uncertainty.

    Equal data and seeds give equal predictions: fitting and prediction use one thread.

    A quantity that is measured only after the proposal, such as the fit error, may be a further column. For operators without
    this value, further trees predict it.

    Source: Geurts et al., 2006. Chosen over random forests, gradient boosting and Gaussian processes by prediction errors for
    unseen operators (docs/measured/surrogate.md).
    """

    def __init__(self, trees: int, seed: int) -> None:
        self.trees = trees
        self.seed = seed
        self._trees: list[Any] = []
        self._column: Model | None = None  # predicts the further column

    def fit(self, rows: Numbers, rewards: Numbers, measured: Numbers | None = None) -> None:
        """Fit the trees to operators' features and rewards. Raises SpecError without scikit-learn.

        Args:
            rows: features of operators, shape [operators, columns].
            rewards: rewards of the operators, shape [operators].
            measured: the further column, shape [operators], NaN if unknown; ignored if fewer than three values are known.
        """
        try:
            from sklearn.tree import ExtraTreeRegressor  # takes a second
        except ImportError:
            raise SpecError('the policy "surrogate" needs scikit-learn: pip install "scikit-learn>=1.7,<2"') from None
        known = np.zeros(len(rows), bool) if measured is None else np.isfinite(measured)
        if measured is not None and known.sum() >= FEWEST:
            self._column = Model(self.trees, self.seed)
            self._column.fit(rows[known], measured[known])
            rows = np.column_stack([rows, np.where(known, measured, self._column.predict(rows)[0])])
        features = rows.astype(np.float32)
        trees = (ExtraTreeRegressor(max_features=SPLITS_FROM, random_state=self.seed + number) for number in range(self.trees))
        self._trees = [tree.fit(features, rewards, check_input=False).tree_ for tree in trees]

    def predict(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Return means and standard deviations, shapes [operators], for rows of features, shape [operators, columns]."""
        features = self._described(rows)
        predictions = np.array([tree.predict(features)[:, 0] for tree in self._trees])
        return predictions.mean(axis=0), np.sqrt(predictions.var(axis=0) + LEAST_DEVIATION**2)

    def alike(self, rows: Numbers, others: Numbers) -> Numbers:
        """Return the similarity of each row to each other row, shape [rows, others]: the share of trees with both in one
        leaf.
        """
        leaves, other_leaves = ([tree.apply(self._described(group)) for tree in self._trees] for group in (rows, others))
        shares: Numbers = np.mean([here[:, None] == there for here, there in zip(leaves, other_leaves, strict=True)], axis=0)
        return shares

    def _described(self, rows: Numbers) -> NDArray[np.float32]:
        """Return rows of features, extended by the predicted further column, if there is one."""
        described = rows if self._column is None else np.column_stack([rows, self._column.predict(rows)[0]])
        return described.astype(np.float32)


def expected_improvement(means: Numbers, deviations: Numbers, best: float | Numbers) -> Numbers:
    """Return the expected improvement over `best`: the mean of max(reward - best, 0) for normally distributed rewards."""
    from scipy.special import ndtr

    z = (means - best) / deviations
    gains: Numbers = deviations * (z * ndtr(z) + np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
    return gains


EARLY_DEVIATION = 0.4  # of log(time / estimated time), before trees are fitted
UNCERTAIN = 0.1  # least deviation of a predicted log(speedup): that of operators with equal features
LIKELY = 0.5  # share of the highest probability to pass screening: operators above it count as equally likely
LEAST_CHANCE = 0.02  # least probability that an operator is small enough and compiles
SPEEDS = 8  # quantiles of an operator's speed, over which its gain is averaged
Sample = Callable[[list[tuple[Evaluated, float]]], list[tuple[Evaluated, float]]]
Point = tuple[float, float]


def log_speedup(evaluated: Evaluated) -> float | None:
    """Return the logarithm of an operator's measured speedup, else of the predicted one; None if neither is known."""
    speedup = evaluated.metrics.get("speedup", evaluated.metrics.get("predicted_speedup"))
    return None if speedup is None or speedup <= 0 else math.log(speedup)


def log_fit_errors(known: Sequence[Evaluated]) -> Numbers:
    """Return the logarithms of the operators' fit errors, shape [operators]; NaN for operators without a fit."""
    errors: Numbers = np.log(np.maximum([trial.metrics.get(FIT_ERROR, math.nan) for trial in known], LEAST_ERROR))
    return errors


def quality(evaluated: Evaluated) -> float:
    """Return a trained operator's relative score, 0 for chance and 1 for the original; its reward if the score is unknown."""
    score = relative_score(evaluated.metrics)
    return (evaluated.reward or 0.0) if score is None else max(score, 0.0)


class SpeedModel:
    """A model of log(speedup). It learns the residual: the measured log(speedup) minus the one from the estimated time.

    The first measurements determine the constant factor between estimated time and speedup. From the third one on, trees model
    the residual. Without estimated times, nothing is predicted before.

    Args:
        new: function that returns an empty model.
        timed: whether the last column of rows is the logarithm of the estimated time.
    """

    def __init__(self, new: Callable[[], Model], *, timed: bool) -> None:
        self._new = new
        self._timed = timed
        self._model: Model | None = None
        self._faster: float | None = None  # mean residual of log(speedup), before trees are fitted

    @property
    def is_fitted(self) -> bool:
        """Whether predictions are absolute values of log(speedup). Otherwise they can only be compared with each other."""
        return self._model is not None or self._faster is not None

    def learn(self, rows: Numbers, speeds: Numbers) -> Self:
        """Fit the model to operators, shape [operators, columns], and their log(speedup), shape [operators]."""
        if len(speeds) >= FEWEST:
            self._model = self._new()
            self._model.fit(rows, speeds - self._estimates(rows))
        elif len(speeds) and self._timed:
            self._faster = float((speeds - self._estimates(rows)).mean())
        return self

    def predict(self, rows: Numbers) -> tuple[Numbers, Numbers] | None:
        """Return means and standard deviations of log(speedup), shapes [operators]; None if nothing is known."""
        estimates = self._estimates(rows)
        if self._model is not None:
            means, deviations = self._model.predict(rows)
            return means + estimates, np.hypot(deviations, UNCERTAIN)
        return (estimates + (self._faster or 0.0), np.full(len(rows), EARLY_DEVIATION)) if self._timed else None

    def _estimates(self, rows: Numbers) -> Numbers:
        """Return the log(speedup) that follows from the estimated times, up to a constant."""
        return -rows[:, -1] if self._timed else np.zeros(len(rows))


@dataclass(frozen=True)
class GoalModels:
    """Models of the quantities that decide whether an operator meets a goal.

    Attributes:
        goal: the goal.
        speed: model of the speedup.
        passing: model of the probability that an operator is not screened out for reasons other than speed; None if no operator
            was.
        score: model of the relative score, as in `quality`; None before the first training, or if only the reward counts.
        least: the least relative score that the goal allows.
        points: (relative score, log(speedup)) of the trained operators.
        to_beat: with the reward `gain`, the function that returns the relative score to beat at a speedup; else None.
    """

    goal: Goal
    speed: SpeedModel
    passing: Model | None
    score: Model | None
    least: float
    points: tuple[Point, ...]
    to_beat: Callable[[float], float] | None = None

    @classmethod
    def fit(
        cls, goal: Goal, new: Callable[[], Model], known: Sequence[Evaluated], row: Callable[[Evaluated], tuple[float, ...]],
        sample: Sample, timed: bool = False, reward: Reward | None = None,
    ) -> GoalModels:  # fmt: skip
        """Return models that are fitted to the operators of a study.

        Args:
            goal: the goal.
            new: returns an empty model.
            known: the operators with trials, in the order of proposals.
            row: returns the features of an operator.
            sample: returns the subset of (operator, target) pairs that a model is fitted to.
            timed: whether the last feature is the logarithm of the estimated time.
            reward: the reward of the search.
        """

        def learnt(chosen: list[tuple[Evaluated, float]]) -> tuple[Numbers, Numbers]:
            return np.array([(0.0, *row(trial)) for trial, _ in chosen]), np.array([value for _, value in chosen])

        def fitted(pairs: list[tuple[Evaluated, float]], *, by_fit: bool = False) -> Model:
            model, chosen = new(), sample(pairs)
            model.fit(*learnt(chosen), log_fit_errors([trial for trial, _ in chosen]) if by_fit else None)
            return model

        speeds = [(trial, speed) for trial in known if (speed := log_speedup(trial)) is not None]
        others = [trial for trial in known if trial.is_screened and log_speedup(trial) is None]
        passed = [(trial, float(not trial.is_screened or log_speedup(trial) is not None)) for trial in known]
        trained = [trial for trial in known if trial.is_informed]
        scores = rewards([trial if trial.reward is None else trial._replace(reward=quality(trial)) for trial in trained])
        ended = [trial for trial in trained if trial.reward is not None]
        to_beat = next((function for trial in ended if (function := _score_to_beat(reward, trial)) is not None), None)
        needs_score = trained and (goal.find != "most_accurate" or to_beat is not None)
        return cls(
            goal,
            SpeedModel(new, timed=timed).learn(*learnt(sample(speeds))),
            fitted(passed) if others else None,
            fitted(list(zip(trained, scores, strict=True)), by_fit=True) if needs_score else None,
            max((_least(goal, trial) for trial in ended), default=0.0),
            tuple((quality(trial), speed) for trial in ended if (speed := log_speedup(trial)) is not None),
            to_beat,
        )

    def chances(self, rows: Numbers) -> Numbers:
        """Return for each row the probability that the operator passes screening: fast enough, small enough, and compiles."""
        from scipy.special import ndtr

        chances: Numbers = self._passing(rows)
        if self.goal.least_speedup is not None and (speeds := self.speed.predict(rows)) is not None:
            means, deviations = speeds
            least = math.log(self.goal.least_speedup) if self.speed.is_fitted else np.median(means)
            chances = chances * ndtr((means - least) / deviations)
        return chances

    def gains(self, rows: Numbers, rewards: Callable[[], Numbers]) -> Numbers:
        """Return the acquisition value of each row of features, shape [operators].

        Args:
            rows: features of operators, shape [operators, columns].
            rewards: function that returns the expected improvement of the reward for these rows.
        """
        speeds = self.speed.predict(rows)
        if self.score is None or speeds is None or not self.speed.is_fitted:
            return self.chances(rows) * rewards()
        least = math.log(self.goal.least_speedup or 1.0)
        scores = self.score.predict(rows)
        if self.to_beat is not None:
            fast = ((score, speed) for score, speed in self.points if speed >= least)
            best = max((score - self.to_beat(math.exp(speed)) for score, speed in fast), default=0.0)
            return self._passing(rows) * expected_gain(scores, speeds, self.to_beat, best, least)
        if self.goal.find == "front":
            return self._passing(rows) * expected_hypervolume(scores, speeds, self.points, (0.0, least))
        from scipy.special import ndtr

        enough = ndtr((scores[0] - self.least) / scores[1])
        best = max((speed for score, speed in self.points if score >= self.least), default=least)
        gains: Numbers = self._passing(rows) * enough * expected_improvement(*speeds, max(best, least))
        return gains

    def _passing(self, rows: Numbers) -> Numbers:
        return np.ones(len(rows)) if self.passing is None else np.clip(self.passing.predict(rows)[0], LEAST_CHANCE, 1.0)


def _least(goal: Goal, evaluated: Evaluated) -> float:
    """Return the least relative score that the goal allows, from the metrics of a trained operator."""
    metric = score_of(evaluated.metrics)
    scores = [evaluated.metrics.get(f"{prefix}{metric}") for prefix in (OF_ORIGINAL, CHANCE)]
    if goal.lose_at_most is None or scores[0] is None or scores[1] is None or scores[0] == scores[1]:
        return 0.0
    return max(0.0, 1 - goal.lose_at_most / abs(scores[0] - scores[1]))


def _score_to_beat(reward: Reward | None, evaluated: Evaluated) -> Callable[[float], float] | None:
    """Return the function of the relative score to beat at a speedup; None without the reward `gain` and a front.

    The scores of the original and of chance are taken from the metrics of a trained operator.
    """
    metric = score_of(evaluated.metrics)
    if not (isinstance(reward, GainReward) and reward.front) or metric is None or relative_score(evaluated.metrics) is None:
        return None
    original, chance = evaluated.metrics[f"{OF_ORIGINAL}{metric}"], evaluated.metrics[f"{CHANCE}{metric}"]
    return lambda speedup: (reward.score_to_beat(speedup, metric, original) - chance) / (original - chance)


def expected_gain(
    score: tuple[Numbers, Numbers], speed: tuple[Numbers, Numbers], to_beat: Callable[[float], float], best: float, least: float
) -> Numbers:
    """Return the expected improvement of the gain over the best known gain, for each operator.

    The gain is the score minus the score to beat at the operator's speed. Score and log(speedup) are independent and normal.
    Operators that are too slow gain nothing. The expectation over sufficient speeds is a mean over quantiles of equal
    probability.

    Args:
        score, speed: means and standard deviations of the score and of log(speedup), shapes [operators].
        to_beat: returns the score to beat at a speedup.
        best: gain of the best known operator.
        least: logarithm of the least speedup.
    """
    from scipy.special import ndtr, ndtri

    (means, deviations), likely = speed, ndtr((speed[0] - least) / speed[1])
    quantiles = (np.arange(SPEEDS) + 0.5) / SPEEDS
    speeds = np.exp(means[:, None] - deviations[:, None] * ndtri(likely[:, None] * quantiles))  # the upper tails
    beaten = best + np.array([[to_beat(speedup) for speedup in row] for row in speeds])
    gains: Numbers = likely * expected_improvement(score[0][:, None], score[1][:, None], beaten).mean(axis=1)
    return gains


def expected_hypervolume(
    first: tuple[Numbers, Numbers],
    second: tuple[Numbers, Numbers],
    points: Sequence[tuple[float, float]],
    worst: tuple[float, float],
) -> Numbers:
    """Return the expected hypervolume improvement of a front of two quantities (higher is better), for each operator.

    The area is a sum over the strips between the points of the front. In each strip, the two quantities, which are independent
    and normal, contribute a product of two expected improvements.

    Args:
        first, second: means and standard deviations of the quantities, shapes [operators].
        points: the known operators.
        worst: the reference point of the area.
    """
    ahead: list[Point] = []
    for point in sorted({(max(a, worst[0]), max(b, worst[1])) for a, b in points}, reverse=True):
        if not ahead or point[1] > ahead[-1][1]:
            ahead.append(point)
    front = ahead[::-1]  # the first quantity rises, the other falls
    total: Numbers = np.zeros(len(first[0]))
    begins = [worst[0], *(a for a, _ in front)]
    heights = [*(b for _, b in front), worst[1]]
    for place, (begin, height) in enumerate(zip(begins, heights, strict=True)):
        width = expected_improvement(*first, begin)
        if place + 1 < len(begins):
            width = width - expected_improvement(*first, begins[place + 1])
        total = total + np.maximum(width, 0.0) * expected_improvement(*second, height)
    return total


BUCKETS = 64  # into which the steps of a path are counted


class Descriptions:
    """Computes features of a tree's operators: `OperatorFeatures` if the tree has a spec, else counts of hashed steps.

    Attributes:
        features: the features for the tree's spec; None if the tree has no spec.
        is_timed: whether the last feature is the logarithm of the operator's estimated time in all layers of the spec. An
            estimate takes about 15 ms.
    """

    def __init__(self, tree: Tree, *, timed: bool = False) -> None:
        self.tree = tree
        spec = getattr(tree, "spec", None)
        self.features = OperatorFeatures(spec) if isinstance(spec, OperatorSpec) else None
        self.is_timed = timed and self.features is not None
        self._known: dict[tuple[Action, ...], tuple[float, ...]] = {}

    def of(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the features of an operator. A candidate without text is looked up in the tree by its path."""
        features = self._known.get(candidate.path)
        if features is None:
            features = self._known[candidate.path] = self._features_of(candidate)
        return features

    def of_operator(self, operator: PGraph) -> tuple[float, ...] | None:
        """Return the features of an operator of another study; None if it does not fit the layers of this study."""
        try:
            if self.features is None:
                return None
            features = self.features(operator)
            return (*features, math.log(estimated_time(operator, self.features.spec.valuations))) if self.is_timed else features
        except SynoError:
            return None

    def _features_of(self, candidate: Candidate) -> tuple[float, ...]:
        if self.features is None:
            return by_steps(candidate.path)
        operator = candidate.parsed() or self._operator_at(candidate.path)
        features = None if operator is None else self.of_operator(operator)
        return features or (0.0,) * (len(self.features.columns) + self.is_timed)

    def _operator_at(self, path: Sequence[Action]) -> PGraph | None:
        node: Hashable = self.tree.root
        operator = None
        for action in path:
            step = self.tree.step(node, *action)
            if step is None:
                return None
            node, operator = step.node, step.operator
        return operator


def by_steps(path: Sequence[Action]) -> tuple[float, ...]:
    """Return features of an operator without a spec: the number of its path's steps (except Finalize) in each hash bucket."""
    counts = [0.0] * BUCKETS
    for action in path[:-1]:
        counts[blake2b(action.id.encode(), digest_size=2).digest()[0] % BUCKETS] += 1
    return tuple(counts)


class SurrogateSettings(PolicySettings):
    """Settings of the policy `surrogate`: candidates, trees, refits and exploration."""

    beginners: Annotated[int, Field(ge=1)] = 4
    """number of operators that are evaluated before the model is used, including those of `learn_from`; 1 if candidates are
    fitted to a layer (`fits`)
    """
    beginner_walks: Annotated[int, Field(ge=1)] = 32
    """number of random walks from which each beginner is chosen: the operator whose positions read, applied twice, are closest
    to a convolution with the required window (or 3); among equals, the operator that reads most, with the most FLOPs
    """
    walks: Annotated[int, Field(ge=1)] = 16
    """number of random walks among which the model chooses; fewer if many trials run at once"""
    mutations: Annotated[int, Field(ge=0)] = 16
    """number of mutations of the best operators among which the model chooses"""
    fits: Annotated[int, Field(ge=1)] = 16
    """number of the most promising candidates that are fitted to a layer of the trained original; the candidate with the least
    fit error is proposed. Only with `training: {initialization: fit}`; fewer if many trials run at once
    """
    parents: Annotated[int, Field(ge=1)] = 8
    """number of the best operators that are mutated"""
    trees: Annotated[int, Field(ge=2)] = 32
    """number of trees in the model"""
    most_rows: Annotated[int, Field(ge=16)] = 256
    """largest number of operators of a study that the model is fitted to: a quarter are the best, the others a random sample"""
    learn_from: tuple[str, ...] = ()
    """folders of earlier searches, such as results/quickstart, whose trials the model is fitted to as well. Their rewards are
    used unchanged, so the reward should be comparable. The study stores a checksum of these trials and is not resumed with
    others
    """

    @computed_field  # type: ignore[prop-decorator]
    @property
    def learnt(self) -> dict[str, str]:
        """Checksums of the trials tables of `learn_from`, by folder."""
        return {folder: content(folder) for folder in self.learn_from}


OUTSTANDING = 16  # how many of the trials begun last lessen what is expected from operators like them
PER_ROUND = 8  # outstanding trials from which on fewer candidates are drawn for each proposal
LEAST = 2  # candidates of each kind for a proposal
GROWTH = 1.1  # the model is fitted again when so many times as many operators are proposed
FIRST = ("twice: overlap", "twice: share", "FLOPs")  # columns by which the first operators are chosen


@POLICIES.register("surrogate")
class Surrogate(Policy):
    """Expected improvement, under extremely randomized trees over features of operators, among random walks and mutations of
    the best operators. Outstanding trials lower the expected improvement of similar operators.

    Source: sequential model-based optimization (Hutter et al., 2011).
    """

    name = "surrogate"
    Settings = SurrogateSettings

    settings: SurrogateSettings

    def _prepare(self) -> None:
        self._descriptions = Descriptions(self.tree, timed=self.goal is not None and self.goal.measures)
        self._evaluated: dict[str, Evaluated] = {}  # by fingerprint, in the order of proposals
        self._running: dict[str, Candidate] = {}  # outstanding candidates without any value
        self._layer_errors: dict[str, float] = {}  # by id of operators
        self._earlier = [self._learnt(place) for place in self.settings.learn_from]
        self._events = 0
        self._due = (0, 0, list[Evaluated]())  # at the last refit: numbers of proposals and events, and the trials
        self._model: tuple[int, Model] | None = None  # with the number of events at its fit
        self._of_goal: tuple[int, GoalModels] | None = None

    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        out = sum(trial.is_screened for trial in self._evaluated.values())
        known = len(self._evaluated) - len(self._running) - out + sum(map(len, self._earlier))
        if known < self._beginners:
            return self._beginner(draws)
        paths = [*self._walks(draws, self.settings.walks), *self._mutations(draws)]
        if not paths:
            return self.walks.anywhere(draws)
        model = self._fitted()
        rows = self._rows(paths)
        models = self._fitted_to_goal()
        best = max((trial.reward for trial in self._ended() or chain(*self._earlier) if trial.reward is not None), default=0.0)
        improvement = partial(expected_improvement, *model.predict(rows), best)
        gains = improvement() if models is None else models.gains(rows, improvement)
        if running := list(self._running.values())[-OUTSTANDING:]:
            others = np.array([(0.0, *self._descriptions.of(trial)) for trial in running])
            gains = gains * (1 - model.alike(rows, others)).prod(axis=1)
        return self._best_fitted([paths[place] for place in np.argsort(-gains, kind="stable")])

    def _beginner(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return the path to one of the first operators, before the model is used: one that reads much of its input.

        It is a random operator if there are no features.
        """
        features, models = self._descriptions.features, self._fitted_to_goal()
        is_blind = features is None and models is None and self.layer_error is None
        paths = [] if is_blind else self._walks(draws, self.settings.beginner_walks)
        if not paths:
            return self.walks.anywhere(draws)
        rows, likely = self._rows(paths), np.ones(len(paths), bool)
        columns = [] if features is None else [1 + features.columns.index(name) for name in FIRST]
        if models is not None:  # only operators that are about as likely to pass screening as the likeliest
            chances = models.chances(rows)
            likely = chances >= LIKELY * chances.max()
        order = sorted(np.flatnonzero(likely).tolist(), key=lambda place: tuple(-rows[place, columns]))
        return self._best_fitted([paths[place] for place in order])

    @property
    def _beginners(self) -> int:
        return self.settings.beginners if self.layer_error is None else 1

    def _best_fitted(self, paths: Sequence[tuple[TreeStep, ...]]) -> tuple[TreeStep, ...]:
        """Return the path to the operator with the least layer error among the first paths; the first path without layer
        errors.
        """
        if self.layer_error is None:
            return paths[0]
        return min(paths[: max(self.settings.fits // self._rounds, LEAST)], key=self._layer_error_at)

    def _layer_error_at(self, path: Sequence[TreeStep]) -> float:
        operator = path[-1].operator
        assert operator is not None and self.layer_error is not None, "a path ends in a Finalize"
        if operator.id not in self._layer_errors:
            self._layer_errors[operator.id] = self.layer_error(operator)
        return self._layer_errors[operator.id]

    def _walks(self, draws: Draws, count: int) -> list[tuple[TreeStep, ...]]:
        """Return the paths of `count` random walks to operators that were not proposed yet."""
        count = max(count // self._rounds, LEAST)
        paths = (self.walks.complete(self.tree.root, draws.below(f"walk {number}"), SHORT) for number in range(count))
        return [path for path in paths if path is not None]

    def _mutations(self, draws: Draws) -> Iterator[tuple[TreeStep, ...]]:
        """Yield mutations: the path to one of the best operators, whose last steps are replaced at random."""
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
        """Return the parents of mutations: the best operators, and while these are few, the fastest of the too slow ones."""
        best = nlargest(self.settings.parents, self._ended(), key=lambda trial: trial.reward or 0.0)
        slow = [trial for trial in self._evaluated.values() if trial.is_screened and log_speedup(trial) is not None]
        return [*best, *nlargest(self.settings.parents - len(best), slow, key=lambda trial: log_speedup(trial) or 0.0)]

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
        """Divisor of the number of candidates: with many workers, each examines fewer candidates, so that none waits long."""
        return 1 + len(self._running) // PER_ROUND

    def _rows(self, paths: Sequence[Sequence[TreeStep]]) -> np.ndarray:
        """Return the features of operators of this study, shape [paths, columns].

        The first column is the number of the study, 0.
        """
        rows = []
        for path in paths:
            operator = path[-1].operator
            assert operator is not None, "a path ends in a Finalize"
            rows.append((0.0, *self._descriptions.of(Proposal(actions(path), self.walks.fingerprint(path[-1]), operator))))
        return np.array(rows)

    def _fitted(self) -> Model:
        """Return the model of rewards, fitted to the snapshot of trials at the last refit."""
        events, evaluated = self._snapshot()
        if self._model is None or self._model[0] != events:
            own = [trial for trial in evaluated if trial.is_informed]
            studies = [self._sample(list(zip(study, rewards(study), strict=True))) for study in (own, *self._earlier)]
            known = [(number, *pair) for number, study in enumerate(studies) for pair in study]
            rows = np.array([(float(number), *self._row(trial)) for number, trial, _ in known])
            model = Model(self.settings.trees, self.seed)
            model.fit(rows, np.array([reward for *_, reward in known]), log_fit_errors([trial for _, trial, _ in known]))
            self._model = (events, model)
        return self._model[1]

    def _fitted_to_goal(self) -> GoalModels | None:
        """Return the goal's models of score and speedup, fitted to the snapshot at the last refit; None without a goal."""
        if self.goal is None:
            return None
        events, known = self._snapshot()
        if self._of_goal is None or self._of_goal[0] != events:
            new, timed = partial(Model, self.settings.trees, self.seed), self._descriptions.is_timed
            self._of_goal = (events, GoalModels.fit(self.goal, new, known, self._row, self._sample, timed, self.reward))
        return self._of_goal[1]

    def _snapshot(self) -> tuple[int, list[Evaluated]]:
        """Return the snapshot for fitting: the number of events at the last refit, and the trials before it."""
        due, events, known = self._due
        if due < _due(self._proposed) or sum(trial.is_informed for trial in known) < self._beginners:
            return self._events, self._informed()
        return events, known

    def _row(self, evaluated: Evaluated) -> tuple[float, ...]:
        if evaluated.row is not None:
            return evaluated.row
        assert evaluated.candidate is not None, "it is of this study"
        return self._descriptions.of(evaluated.candidate)

    def _sample(self, evaluated: list[tuple[Evaluated, float]]) -> list[tuple[Evaluated, float]]:
        """Return the training data of the model: a subset of (operator, target) pairs.

        It changes little with new trials, so that features are computed anew for few operators.
        """
        if len(evaluated) <= self.settings.most_rows:
            return evaluated
        best = nlargest(self.settings.most_rows // 4, evaluated, key=lambda pair: (pair[1], pair[0].place))
        places = {trial.place for trial, _ in best}
        others = (pair for pair in evaluated if pair[0].place not in places)
        return [*best, *nsmallest(self.settings.most_rows - len(best), others, key=lambda pair: pair[0].place)]

    def _informed(self) -> list[Evaluated]:
        return [trial for trial in self._evaluated.values() if trial.is_informed or trial.is_screened or trial.metrics]

    def _ended(self) -> list[Evaluated]:
        return [trial for trial in self._evaluated.values() if trial.reward is not None]

    def _learnt(self, place: str) -> list[Evaluated]:
        """Return the trials of an earlier study whose operators fit the layers of this study."""
        if self._descriptions.features is None:
            raise SpecError(
                "policy: learn_from needs a space with a spec, by which its operators are compared with earlier ones"
            )
        trials = read_earlier(place)
        described = [(trial, self._descriptions.of_operator(trial.operator)) for trial in trials]
        learnt = [Evaluated(trial.operator.id, trial.reward, row=row) for trial, row in described if row is not None]
        if not learnt:
            raise SpecError(
                f'policy: none of the {len(trials)} operators of "{place}" in learn_from fits the layers of this search; '
                "name a search of a similar space"
            )
        return learnt

    def _adopt(self, candidate: Candidate) -> None:
        before = self._proposed - 1
        if self._due[0] < _due(before):  # a refit is due: the next proposals use the current trials
            self._due = (before, self._events, self._informed())
        self._evaluated[candidate.fingerprint] = Evaluated(candidate.fingerprint, candidate=candidate)
        self._running[candidate.fingerprint] = candidate

    def _observe(self, candidate: Candidate, outcome: Outcome) -> None:
        self._learn(candidate, reward=0.0 if isinstance(outcome, Failure) else float(outcome))

    def _measured(self, candidate: Candidate, metrics: Mapping[str, float]) -> None:
        self._evaluated[candidate.fingerprint] = self._evaluated[candidate.fingerprint]._replace(metrics=metrics)

    def _screened(self, candidate: Candidate) -> None:
        self._learn(candidate, is_screened=True)

    def _reported(self, candidate: Candidate, step: float, value: float) -> None:
        values = dict(self._evaluated[candidate.fingerprint].values) | {step: value}
        self._learn(candidate, values=tuple(sorted(values.items())))

    def _stopped(self, candidate: Candidate) -> None:
        if not self._evaluated[candidate.fingerprint].values:
            self._observe(candidate, STOPPED)

    def _learn(self, candidate: Candidate, **known: Any) -> None:
        self._events += 1
        self._running.pop(candidate.fingerprint, None)
        self._evaluated[candidate.fingerprint] = self._evaluated[candidate.fingerprint]._replace(**known)


def _due(proposed: int) -> int:
    """Return the number of proposals at the last refit, given the present number.

    The first refit is after 1 proposal, the others after each growth by the factor GROWTH.
    """
    due = min(proposed, 1)
    while due and (following := max(due + 1, int(due * GROWTH))) <= proposed:
        due = following
    return due
