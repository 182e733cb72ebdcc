"""The progress of a training: what has happened so far, its result, and the reports that may end it early.

A report is called after every round, which is an epoch unless the settings say otherwise, with the number of rounds done and
the score so far. It stops the training by returning False or by raising `Pruned`. Other exceptions pass through to the caller;
if it is `Paused`, the training's state is kept, and the training can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from syno.train.metric import ACCURACY, LOSS, METRICS, Metric

RECENT = 0.25  # share of a round's last steps, whose mean loss compares trainings that are not at their end
TAIL = 0.2  # share of the last steps, whose mean loss is the score "tail"
MOST_POINTS = 500  # of a loss curve
LOSS_DIGITS, MINUTE_DIGITS = 6, 4  # after the decimal point, of a loss curve's numbers

EpochReport = Callable[[int, float], bool | None]


class CurvePoint(NamedTuple):
    """A point of a loss curve.

    Attributes:
        step: the last step of the point, counted from 1.
        minutes: minutes of training up to then: of steps, without tests, and without the time in which an interrupted training
            stood still.
        loss: mean loss of the steps since the point before, in nats.
    """

    step: int
    minutes: float
    loss: float


class Pruned(Exception):  # noqa: N818  (a decision, no error)
    """The training was stopped by a report; the message says why."""


class Paused(Exception):  # noqa: N818  (a decision, no error)
    """The training was paused by a report after a round, and may be resumed from its checkpoint; the message says why.

    Attributes:
        step: number of rounds done, which need not be whole.
    """

    def __init__(self, message: str, step: float) -> None:
        super().__init__(message)
        self.step = step


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
        metric: str = ACCURACY.key,
        rounds: str = "epoch",
    ) -> None:
        """Create the report.

        Args:
            bounds: by round.
            then: a report that is called if the bound of the round is met.
            metric: the key of the bounds' metric.
            rounds: name of a round in messages.

        Raises ValueError for a bound that is out of range.
        """
        self.metric = METRICS[metric]
        for number, bound in bounds.items():
            if number < 1 or not self.metric.lowest <= bound <= self.metric.highest:
                raise ValueError(
                    f"milestone {number}: {bound:g} means nothing; {rounds}s count from 1, and accuracies are from 0 to 1, "
                    "losses at least 0"
                )
        self.bounds, self.then, self.rounds = dict(bounds), then, rounds

    def __call__(self, number: int, score: float) -> bool | None:
        """Raise Pruned if the score misses this round's milestone; otherwise call `then`."""
        bound = self.bounds.get(number)
        if bound is not None and self.metric.quality(score) < self.metric.quality(bound):
            side = "below" if self.metric.more_is_better else "above"
            raise Pruned(f"{self.metric.name} {self.metric.number(score)} after {self.rounds} {number} is {side} {bound:g}")
        return None if self.then is None else self.then(number, score)


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training. Results are equal for equal arguments on one machine and thread: times do not count.

    Attributes:
        metric: the key of the scores' metric: "accuracy", a fraction of the test pictures, "loss" on the test text, in nats per
            token, or that of a task of one's own (`syno.train.metric`).
        score: of the trained network; if training broke, 0 for an accuracy, and else the worst: infinity for a loss.
        scores: after each round.
        losses: mean loss over each round's steps, of the cross-entropy in nats.
        curve: the loss over all steps, in at most 500 points.
        steps: number of steps taken.
        micro_batch: samples that went through the network at once at the end; None if the setting `micro_batch` was not given.
        stopped: why a report, a limit or a broken loss ended the training early; None if it went through.
        broken: whether it produced NaN or infinity.
        step_seconds: wall time of the steps, without tests.
        data_seconds: the part of `step_seconds` spent waiting for batches.
        seconds: wall time with tests, including the time before an interruption.
        cpu_seconds: processor time of this process, likewise.
    """

    metric: str
    score: float
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    steps: int
    stopped: str | None
    broken: bool = False
    micro_batch: int | None = None
    curve: tuple[CurvePoint, ...] = field(default=(), compare=False)
    step_seconds: float = field(default=0.0, compare=False)
    data_seconds: float = field(default=0.0, compare=False)
    seconds: float = field(default=0.0, compare=False)
    cpu_seconds: float = field(default=0.0, compare=False)


@dataclass
class TrainingProgress:
    """The progress of a training so far. Checkpoints store it under these names.

    Attributes:
        steps: number of steps taken.
        micro_batch: samples that go through the network at once; None where that is not known yet, or not asked for.
        losses: of every step.
        times: seconds of training at the end of every step, as in `stepping`.
        ends: number of steps after which each round ended.
        scores: after each round.
        seconds, cpu_seconds: before this process resumed the training.
        waited: seconds of waiting for batches.
        stepping: seconds of steps, waiting included, tests not.
    """

    steps: int = 0
    micro_batch: int | None = None
    losses: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
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

    def recent_loss(self, number: int) -> float:
        """The mean loss over the last quarter of the steps of a round, in nats."""
        first, end = [0, *self.ends][number - 1 : number + 1]
        return self.loss_before(end, end - first)

    def loss_before(self, step: int, length: int) -> float:
        """The mean loss before a step, over a quarter of a round of this many steps, in nats."""
        losses = self.losses[max(0, step - max(1, round(RECENT * length))) : step]
        return sum(losses) / len(losses)

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The loss curve: means over equally many steps, the last one over fewer. Losses that are not finite are left out."""
        losses = [loss for loss in self.losses if abs(loss) < inf]
        times = self.times[: len(losses)]
        size = -(-len(losses) // MOST_POINTS) or 1
        ends = [min(first + size, len(losses)) for first in range(0, len(losses), size)]
        return tuple(
            CurvePoint(
                end,
                round(times[end - 1] / 60, MINUTE_DIGITS),
                round(sum(losses[first:end]) / (end - first), LOSS_DIGITS),
            )
            for first, end in zip(range(0, len(losses), size), ends, strict=True)
        )

    def add(self, losses: Iterable[float], seconds: float) -> None:
        """Add the losses of the latest steps, up to the first that is not finite.

        Args:
            losses: one of each step.
            seconds: of training up to the last of these steps, as in `stepping`; they are spread evenly over the steps.
        """
        given, last = list(losses), self.times[-1] if self.times else 0.0
        for number, loss in enumerate(given, 1):
            self.losses.append(loss)
            self.times.append(last + (seconds - last) * number / len(given))
            if not abs(loss) < inf:
                return

    def result(
        self, metric: Metric, which: str, stopped: str | None, *, broken: bool, seconds: float, cpu_seconds: float
    ) -> TrainingResult:
        """Return the result of a training that ends here, with its score as in `score`."""
        return TrainingResult(
            metric=metric.key,
            score=metric.of_broken if broken else self.score(metric, which),
            scores=tuple(self.scores),
            losses=self.losses_of_rounds,
            curve=self.curve,
            steps=self.steps,
            stopped=stopped,
            broken=broken,
            micro_batch=self.micro_batch,
            step_seconds=self.stepping,
            data_seconds=self.waited,
            seconds=seconds,
            cpu_seconds=cpu_seconds,
        )

    def scored_round(self, metric: Metric, which: str) -> int:
        """Return the round, counted from 1, whose network the score is of: the best one, or the last."""
        if which != "best":
            return len(self.scores)
        return self.scores.index(self.score(metric, which)) + 1

    def score(self, metric: Metric, which: str) -> float:
        """Return the score of the whole training, as the setting `score` chooses it: "last", "best" or "tail"."""
        if which == "tail" and metric == LOSS:
            last = self.losses[-max(1, round(TAIL * len(self.losses))) :]
            return sum(last) / len(last)
        if which == "best":
            return (max if metric.more_is_better else min)(self.scores)
        return self.scores[-1]
