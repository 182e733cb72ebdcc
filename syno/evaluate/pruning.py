"""Giving up training early.

A report is called after every epoch with the number of epochs done and the accuracy so far. It stops the training by
returning False or by raising `Pruned`; any other exception goes through to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

EpochReport = Callable[[int, float], bool | None]


class Pruned(Exception):  # noqa: N818  (a decision, no error)
    """Training goes no further; the message says why."""


class Milestones:
    """A report that asks for a least accuracy after some of the epochs.

    >>> Milestones({2: 0.35})(2, 0.2)
    Traceback (most recent call last):
    syno.evaluate.pruning.Pruned: accuracy 0.2000 after epoch 2 is below 0.35
    """

    def __init__(self, least: Mapping[int, float], then: EpochReport | None = None) -> None:
        for epoch, accuracy in least.items():
            if epoch < 1 or not 0 <= accuracy <= 1:
                raise ValueError(
                    f"milestone {epoch}: {accuracy:g} means nothing; epochs count from 1, and accuracies are from 0 to 1"
                )
        self.least = dict(least)
        self.then = then

    def __call__(self, epoch: int, accuracy: float) -> bool | None:
        """Raises Pruned below the milestone of this epoch; otherwise asks `then`."""
        if accuracy < self.least.get(epoch, 0.0):
            raise Pruned(f"accuracy {accuracy:.4f} after epoch {epoch} is below {self.least[epoch]:g}")
        return None if self.then is None else self.then(epoch, accuracy)
