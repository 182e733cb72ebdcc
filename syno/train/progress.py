"""The progress of a training: what has happened so far, its result, and the reports that may end it early.

A report is called after every round, which is an epoch unless the settings say otherwise, with the number of rounds done and
the score so far. It stops the training by returning False or by raising `Pruned`. Other exceptions pass through to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from syno.train.settings import Metric

TAIL = 0.2  # share of the last steps, whose mean loss is the score "tail"

EpochReport = Callable[[int, float], bool | None]


class Pruned(Exception):  # noqa: N818  (a decision, no error)
    """The training was stopped by a report; the message says why."""


class Broken(Exception):  # noqa: N818  (a result, no error)
    """Training produced NaN or infinity; the message says where."""


class Milestones:
    """A report that requires a least accuracy, or a greatest loss, after some of the rounds.

    >>> Milestones({2: 0.35})(2, 0.2)
    Traceback (most recent call last):
    syno.train.progress.Pruned: accuracy 0.2000 after epoch 2 is below 0.35
    """

    def __init__(
        self,
        bounds: Mapping[int, float],
        then: EpochReport | None = None,
        *,
        metric: Metric = "accuracy",
        rounds: str = "epoch",
    ) -> None:
        """Create the report.

        Args:
            bounds: by round.
            then: a report that is called if the bound of the round is met.
            metric: of the bounds.
            rounds: name of a round in messages.

        Raises ValueError for a bound that is out of range.
        """
        for number, bound in bounds.items():
            if number < 1 or bound < 0 or (metric == "accuracy" and bound > 1):
                raise ValueError(
                    f"milestone {number}: {bound:g} means nothing; {rounds}s count from 1, and accuracies are from 0 to 1, "
                    "losses at least 0"
                )
        self.bounds, self.then, self.metric, self.rounds = dict(bounds), then, metric, rounds

    def __call__(self, number: int, score: float) -> bool | None:
        """Raise Pruned if the score misses this round's milestone; otherwise call `then`."""
        bound = self.bounds.get(number)
        if bound is not None and (score < bound if self.metric == "accuracy" else score > bound):
            side = "below" if self.metric == "accuracy" else "above"
            raise Pruned(f"{self.metric} {score:.4f} after {self.rounds} {number} is {side} {bound:g}")
        return None if self.then is None else self.then(number, score)


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training. Results are equal for equal arguments on one machine and thread: times do not count.

    Attributes:
        metric: of the scores: "accuracy", a fraction of the test pictures, or "loss" on the test text, in nats per token.
        score: of the trained network; if training broke, 0 for an accuracy and infinity for a loss.
        scores: after each round.
        losses: mean cross-entropy over each round's steps, in nats.
        steps: number of steps taken.
        stopped: why a report, a limit or a broken loss ended the training early; None if it went through.
        broken: whether it produced NaN or infinity.
        step_seconds: wall time of the steps, without tests.
        data_seconds: the part of `step_seconds` spent waiting for batches.
        seconds: wall time with tests, including the time before an interruption.
        cpu_seconds: processor time of this process, likewise.
    """

    metric: Metric
    score: float
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    steps: int
    stopped: str | None
    broken: bool = False
    step_seconds: float = field(default=0.0, compare=False)
    data_seconds: float = field(default=0.0, compare=False)
    seconds: float = field(default=0.0, compare=False)
    cpu_seconds: float = field(default=0.0, compare=False)


@dataclass
class TrainingProgress:
    """The progress of a training so far. Checkpoints store it under these names.

    Attributes:
        steps: number of steps taken.
        losses: of every step.
        ends: number of steps after which each round ended.
        scores: after each round.
        seconds, cpu_seconds: before this process resumed the training.
        waited: seconds of waiting for batches.
        stepping: seconds of steps, waiting included, tests not.
    """

    steps: int = 0
    losses: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    waited: float = 0.0
    stepping: float = 0.0

    @property
    def losses_of_rounds(self) -> tuple[float, ...]:
        """The mean loss over each round's steps."""
        pairs = zip([0, *self.ends], self.ends, strict=False)
        return tuple(sum(self.losses[first:end]) / (end - first) for first, end in pairs)

    def score(self, metric: Metric, which: str) -> float:
        """Return the score of the whole training, as the setting `score` chooses it: "last", "best" or "tail"."""
        if which == "tail" and metric == "loss":
            last = self.losses[-max(1, round(TAIL * len(self.losses))) :]
            return sum(last) / len(last)
        if which == "best":
            return (max if metric == "accuracy" else min)(self.scores)
        return self.scores[-1]
