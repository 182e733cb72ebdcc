"""The reports of a training: its score after every round, and its recent loss there and at looks between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

from syno.train.progress import EpochReport, TrainingProgress

Tell: TypeAlias = Callable[[float, float], object]


class Reports:
    """The reports of one training, in the order of its steps. Each is made once.

    Args:
        report: called after every round with its number and score.
        recent_loss: called before that with the number and the mean loss of the last quarter of the round's steps.
        looks: parts of rounds, such as 0.5, after which `recent_loss` is called, too.
    """

    def __init__(self, report: EpochReport | None, recent_loss: Tell | None, looks: Sequence[float]) -> None:
        self._report, self._recent_loss = report, recent_loss
        self._looks = sorted(looks) if recent_loss is not None else []  # that are not over
        self._told = 0  # rounds

    def is_due(self, step: int, length: int) -> bool:
        """Return whether there is a look after this step, where a round has `length` steps."""
        return bool(self._looks) and step == _step(self._looks[0], length)

    def due(self, progress: TrainingProgress, length: int) -> Iterator[tuple[Tell, float, float]]:
        """Yield what is to be reported up to now and was not: the function to call, and its two arguments."""
        for number, score in enumerate(progress.scores[self._told :], self._told + 1):
            self._told = number
            yield from self._due_looks(progress, length, progress.ends[number - 1])
            if self._recent_loss is not None:
                yield self._recent_loss, number, progress.recent_loss(number)
            if self._report is not None:
                yield cast(Tell, self._report), number, score
        yield from self._due_looks(progress, length, progress.steps)

    def _due_looks(self, progress: TrainingProgress, length: int, last: int) -> Iterator[tuple[Tell, float, float]]:
        while self._looks and (step := _step(self._looks[0], length)) <= last:
            assert self._recent_loss is not None  # there are no looks without it
            yield self._recent_loss, self._looks.pop(0), progress.loss_before(step, length)


def _step(look: float, length: int) -> int:
    return max(1, round(look * length))
