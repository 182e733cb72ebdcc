"""Giving up training early.

A report is called after every round, which is an epoch unless the settings say otherwise, with the number of rounds done and
the score so far. It stops the training by returning False or by raising `Pruned`; any other exception goes through to the
caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syno.train.settings import Metric

EpochReport = Callable[[int, float], bool | None]


class Pruned(Exception):  # noqa: N818  (a decision, no error)
    """Training goes no further; the message says why."""


class Milestones:
    """A report that asks for a least accuracy, or a loss below a bound, after some of the rounds.

    >>> Milestones({2: 0.35})(2, 0.2)
    Traceback (most recent call last):
    syno.train.pruning.Pruned: accuracy 0.2000 after epoch 2 is below 0.35
    """

    def __init__(
        self,
        bounds: Mapping[int, float],
        then: EpochReport | None = None,
        *,
        metric: Metric = "accuracy",
        rounds: str = "epoch",
    ) -> None:
        """Make it.

        Args:
            bounds: by round.
            then: is asked where the bound is kept.
            metric: of the bounds.
            rounds: what a round is called.

        Raises ValueError for a bound that means nothing.
        """
        for number, bound in bounds.items():
            if number < 1 or bound < 0 or (metric == "accuracy" and bound > 1):
                raise ValueError(
                    f"milestone {number}: {bound:g} means nothing; {rounds}s count from 1, and accuracies are from 0 to 1, "
                    "losses at least 0"
                )
        self.bounds, self.then, self.metric, self.rounds = dict(bounds), then, metric, rounds

    def __call__(self, number: int, score: float) -> bool | None:
        """Raises Pruned beyond the milestone of this round; otherwise asks `then`."""
        bound = self.bounds.get(number)
        if bound is not None and (score < bound if self.metric == "accuracy" else score > bound):
            side = "below" if self.metric == "accuracy" else "above"
            raise Pruned(f"{self.metric} {score:.4f} after {self.rounds} {number} is {side} {bound:g}")
        return None if self.then is None else self.then(number, score)
