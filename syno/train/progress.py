"""The progress of a training: its state, its result, and the reports that may end it early.

A report is called after every round (an epoch by default) with the number of finished rounds and the latest score. It stops the
training by returning False or by raising `Pruned`. Other exceptions propagate to the caller; after `Paused`, the checkpoint is
kept, and the training can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from syno.train.metric import ACCURACY, LOSS, METRICS, Metric

RECENT = 0.25  # share of a round's last steps whose mean loss is the recent loss
TAIL = 0.2  # share of the last steps, whose mean loss is the score "tail"
MOST_POINTS = 500  # most points of a loss curve
LOSS_DIGITS, MINUTE_DIGITS = 6, 4  # after the decimal point, of a loss curve's numbers

EpochReport = Callable[[int, float], bool | None]


class CurvePoint(NamedTuple):
    """A point of a loss curve.

    Attributes:
        step: the last step of the point, counted from 1.
        minutes: training time up to this step in minutes, without tests and interruptions.
        loss: mean loss of the steps since the previous point, in nats.
    """

    step: int
    minutes: float
    loss: float


class Pruned(Exception):  # noqa: N818  (a decision, no error)
    """Raised if a report stopped the training; the message says why."""


class Paused(Exception):  # noqa: N818  (a decision, no error)
    """Raised if a report paused the training, which may be resumed from its checkpoint; the message says why.

    Attributes:
        step: number of finished rounds, possibly fractional.
    """

    def __init__(self, message: str, step: float) -> None:
        super().__init__(message)
        self.step = step


class Broken(Exception):  # noqa: N818  (a result, no error)
    """Raised if the training produced NaN or infinity (diverged); the message says where."""


class Milestones:
    """A report that stops a training whose score misses the required bound after a round.

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
            bounds: required scores, by round.
            then: a report that is called if the round's bound is met.
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
    """The result of a training. Results compare equal for equal arguments on one machine with one thread; times are ignored.

    Attributes:
        metric: key of the scores' metric: "accuracy", a fraction of the test pictures; "loss" on the test text, in nats per
            token; or that of a user's own task (`syno.train.metric`).
        score: score of the trained network; if the training diverged, 0 for an accuracy, otherwise the worst score, such as
            infinity.
        scores: scores after each round.
        losses: mean loss over each round's steps, of the cross-entropy in nats.
        curve: the loss over all steps, in at most 500 points.
        steps: number of steps taken.
        micro_batch: final size of a micro-batch; None if the setting `micro_batch` was not given.
        stopped: reason why a report, a limit or divergence ended the training early; None if it completed.
        broken: whether it diverged (NaN or infinity).
        step_seconds: wall time of the steps, without tests.
        data_seconds: the part of `step_seconds` spent waiting for batches.
        seconds: wall time including tests and the time before interruptions.
        cpu_seconds: processor time of this process, also including tests and the time before interruptions.
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
    """The progress of a training. Checkpoints store it under these names.

    Attributes:
        steps: number of steps taken.
        micro_batch: size of a micro-batch; None if not determined yet, or not given.
        losses: loss of every step.
        times: seconds of training at the end of every step, as in `stepping`.
        ends: number of steps at the end of each round.
        scores: scores after each round.
        seconds, cpu_seconds: times before this process resumed the training.
        waited: seconds spent waiting for batches.
        stepping: seconds of steps, including waiting for batches, without tests.
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
        """Mean loss over the steps of each round."""
        pairs = zip([0, *self.ends], self.ends, strict=False)
        return tuple(sum(self.losses[first:end]) / (end - first) for first, end in pairs)

    def recent_loss(self, number: int) -> float:
        """Return the mean loss over the last quarter of the steps of round `number`, in nats."""
        first, end = [0, *self.ends][number - 1 : number + 1]
        return self.loss_before(end, end - first)

    def loss_before(self, step: int, length: int) -> float:
        """Return the mean loss over the steps before `step`: a quarter of a round of `length` steps, in nats."""
        losses = self.losses[max(0, step - max(1, round(RECENT * length))) : step]
        return sum(losses) / len(losses)

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The loss curve: means over equally many steps (fewer for the last point). Losses that are not finite are omitted."""
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
        """Append the losses of the latest steps, up to the first that is not finite.

        Args:
            losses: one loss per step.
            seconds: training time at the last of these steps, as in `stepping`; it is distributed evenly over the steps.
        """
        values, last = list(losses), self.times[-1] if self.times else 0.0
        for number, loss in enumerate(values, 1):
            self.losses.append(loss)
            self.times.append(last + (seconds - last) * number / len(values))
            if not abs(loss) < inf:
                return

    def result(
        self, metric: Metric, selection: str, stopped: str | None, *, broken: bool, seconds: float, cpu_seconds: float
    ) -> TrainingResult:
        """Return the result of a training that ends here; `selection` is the setting `score`."""
        return TrainingResult(
            metric=metric.key,
            score=metric.of_broken if broken else self.score(metric, selection),
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

    def scored_round(self, metric: Metric, selection: str) -> int:
        """Return the round (from 1) whose network and score count: the best or the last, as the setting `score` selects."""
        if selection != "best":
            return len(self.scores)
        return self.scores.index(self.score(metric, selection)) + 1

    def score(self, metric: Metric, selection: str) -> float:
        """Return the score of the training, as the setting `score` selects it: "last", "best" or "tail"."""
        if selection == "tail" and metric == LOSS:
            last = self.losses[-max(1, round(TAIL * len(self.losses))) :]
            return sum(last) / len(last)
        if selection == "best":
            return (max if metric.more_is_better else min)(self.scores)
        return self.scores[-1]
