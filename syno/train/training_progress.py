"""What has happened in a training so far, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from syno.train.settings import Metric

TAIL = 0.2  # share of a training's steps, the last ones, whose mean loss is the score "tail"


@dataclass(frozen=True)
class TrainingResult:
    """How training went. Equal for equal arguments on one machine and thread: times do not count.

    Attributes:
        metric: what the scores are: "accuracy", a fraction of the test pictures, or "loss" on the test text, in nats per token.
        score: of the trained network; 0 (a loss: infinite) if training broke.
        scores: after each round.
        losses: the mean cross-entropy over each round's steps, in nats.
        steps: how many there were.
        stopped: why the report, a limit or a broken loss ended it; None if it went through.
        broken: whether it made numbers that are none.
        step_seconds: of wall time, in steps: testing left out.
        data_seconds: of these, waiting for batches.
        seconds: of wall time, testing included, those before an interruption too.
        cpu_seconds: of this process.
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
class Progress:
    """What has happened so far.

    Attributes:
        steps: taken.
        losses: of every step.
        ends: after how many steps each round ended.
        scores: after each round.
        seconds, cpu_seconds: before this process went on with it.
        waited, stepping: seconds of waiting for batches; and of steps with that, tests left out.
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
        """The mean over each round's steps."""
        pairs = zip([0, *self.ends], self.ends, strict=False)
        return tuple(sum(self.losses[first:end]) / (end - first) for first, end in pairs)

    @property
    def tail(self) -> float:
        """The mean over the last steps."""
        last = self.losses[-max(1, round(TAIL * len(self.losses))) :]
        return sum(last) / len(last)
