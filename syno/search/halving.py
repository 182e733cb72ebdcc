"""Early stopping by successive halving: which trials continue after some steps, and which pause.

Trials are compared at a few steps of their evaluation, the rungs: for instance after 0.5, 1 and 2 of 4 epochs. At each rung,
the best share of all trials continues. The others pause, with a checkpoint of their training. As the study grows, a paused
trial may enter the best share; any worker then resumes it from its checkpoint (a promotion). A trial is stopped for good once
so many others are better that its promotion has become unlikely.

>>> rungs = Rungs({1: 0.5})
>>> for trial, value in enumerate([0.3, 0.1, 0.2, 0.4]): rungs.enter(trial, 1, value)
>>> [rungs.goes_on(trial, 1) for trial in range(4)]
[True, False, False, True]

Source: asynchronous successive halving (Li et al., MLSys 2020), with a share of all trials at each rung in place of a factor.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field, field_validator, model_validator

from syno.base.errors import SpecError
from syno.base.validation import Settings

DEVIATIONS = 2.0  # standard deviations outside of the continuing share at which a trial is stopped for good
SHARES = (  # parts of a training, and shares of all trials; docs/measured/stopping.md
    (1 / 8, 0.9),
    (3 / 16, 0.6),
    (5 / 16, 0.5),
    (3 / 8, 0.42),
    (9 / 16, 0.32),
    (11 / 16, 0.25),
    (13 / 16, 0.2),
)
ROUNDING = 1e-9  # 0.15 * 20 is 3.0000000000000004

OF_FIT = 0  # the step of the initial fit, before those of the training; trials are compared by the fit error

Share = Annotated[float, Field(gt=0, le=1)]
Step: TypeAlias = float  # epochs or rounds of an evaluation; whole numbers are kept as int


def as_step(epochs: float | str) -> Step:
    """Return a number of epochs as an int if it is whole, else as a float. Raises ValueError for a text that is no number."""
    step = float(epochs)
    return int(step) if step.is_integer() else step


class HalvingSettings(Settings):
    """Early stopping of resumable trials: the share of all trials that continues after each epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    keep: Literal["auto"] | Mapping[int | float, Share] = "auto"
    """share of all trials that continues, by epoch, as in {0.5: 0.8, 1: 0.5, 2: 0.3}; `auto`: shares after an eighth up to
    three quarters of the epochs of `workload: training` that lose few of the best trials, see docs/measured/stopping.md. Epoch
    0 is the end of the initial fit (`training: {initialization: fit}`), where operators are compared by their fit error, as in
    {0: 0.8, 1: 0.5}
    """
    by: Literal["loss", "score"] = "loss"
    """the value that trials are compared by: `loss`, the mean training loss over the last quarter of the epoch; `score`, the
    test score
    """

    @field_validator("keep", mode="after")
    @classmethod
    def _is_halving(cls, shares: Literal["auto"] | Mapping[float, float]) -> Literal["auto"] | Mapping[float, float]:
        if shares == "auto":
            return shares
        shares = {as_step(step): share for step, share in shares.items()}
        steps = sorted(shares)
        if not steps or steps[0] < 0:
            raise ValueError(f"keep: {shares}: give at least one epoch or part of one, 0 or above, as in {{0.5: 0.7, 1: 0.4}}")
        for step, later in pairwise(steps):
            if shares[later] > shares[step]:
                raise ValueError(
                    f"keep: {shares[later]:g} of all trials go on after epoch {later}, but only {shares[step]:g} after epoch "
                    f"{step}; shares of all trials cannot grow"
                )
        return {step: shares[step] for step in steps}

    @model_validator(mode="after")
    def _has_scores(self) -> Self:
        if self.by == "score" and self.keep != "auto" and not all(isinstance(step, int) for step in self.keep):
            raise ValueError(f"keep: {dict(self.keep)}: a network is tested after whole epochs only; give these, or by: loss")
        return self

    def rungs(self, rounds: int | None = None) -> dict[Step, float]:
        """Return the share of trials that continues at each rung.

        Args:
            rounds: number of reports of an evaluation, such as the number of epochs; None if unknown.

        Raises SpecError if there is no rung before the last round, or if a rung is not before it.
        """
        if self.keep != "auto":
            last = max(self.keep)
            if rounds is not None and last >= rounds:
                raise SpecError(
                    f"study: stopping: keep has {last:g}, and a training ends after {rounds}; give numbers below {rounds}"
                )
            return dict(self.keep)
        if rounds is None:
            raise SpecError(
                "study: stopping: keep: auto needs the number of epochs of a workload's training, without round_steps; give "
                "the shares, as in {keep: {1: 0.5, 2: 0.25}}"
            )
        rungs: dict[Step, float] = {}
        for part, share in SHARES:
            step = as_step(part * rounds) if self.by == "loss" else math.ceil(part * rounds)
            if step < rounds:
                rungs[step] = share
        if not rungs:
            raise SpecError(
                "study: stopping: a training of one epoch cannot be stopped early by its score; give more epochs, or by: loss"
            )
        return rungs

    def part_of_training(self, rounds: int) -> float:
        """Return the fraction of all trials' rounds that a large study with this early stopping trains."""
        rungs = self.rungs(rounds)
        ends, shares = [*rungs, rounds], [1.0, *rungs.values()]
        return sum(share * (end - first) for share, first, end in zip(shares, [0, *ends], ends, strict=False)) / rounds


class Rungs:
    """The values of trials at the rungs. Trials are integers chosen by the caller.

    At each rung, the best `share * n` trials continue, rounded up, where n is the number of trials at the first rung.

    Attributes:
        keep: the share of trials that continues, by step.
    """

    def __init__(self, keep: Mapping[Step, float]) -> None:
        self.keep = dict(sorted(keep.items()))
        self._entries: dict[Step, dict[int, tuple[float, int]]] = {step: {} for step in self.keep}  # keys by trial, best first
        self._order: dict[Step, list[tuple[float, int]]] = {step: [] for step in self.keep}  # sorted keys
        self._within: dict[Step, list[tuple[float, int]]] = {
            step: [] for step in self.keep
        }  # sorted keys of trials that are not stopped for good
        self._overtaken: dict[Step, set[int]] = {step: set() for step in self.keep}

    def enter(self, trial: int, step: Step, value: float) -> None:
        """Add the value of a trial at a rung (higher is better, NaN is worst). A second value of the same trial is ignored."""
        entries = self._entries[step]
        if trial in entries:
            return
        entries[trial] = key = (-value if value == value else math.inf, trial)
        insort(self._order[step], key)
        insort(self._within[step], key)
        within, bound = self._within[step], self._bound(step)
        while within and self.place(within[-1][1], step) > bound:
            self._overtaken[step].add(within.pop()[1])

    def has(self, trial: int, step: Step) -> bool:
        """Return whether the trial has a value at the rung."""
        return trial in self._entries[step]

    def value(self, trial: int, step: Step) -> float:
        """Return the value of a trial at a rung; -inf for NaN."""
        return -self._entries[step][trial][0]

    def place(self, trial: int, step: Step) -> int:
        """Return the rank of a trial at a rung, 1 for the best; among equal values, the earlier trial ranks better."""
        return bisect_left(self._order[step], self._entries[step][trial]) + 1

    def places(self, step: Step) -> int:
        """Return the number of trials that may continue at a rung with the values so far."""
        return math.ceil(self.keep[step] * self.trials - ROUNDING)

    @property
    def trials(self) -> int:
        """The number of trials at the first rung with values. (Some evaluations do not report fractions of epochs.)"""
        return max(map(len, self._order.values()), default=0)

    def goes_on(self, trial: int, step: Step) -> bool:
        """Return whether a trial is among those that continue at a rung, with the values so far."""
        return self.place(trial, step) <= self.places(step)

    def is_overtaken(self, trial: int, step: Step) -> bool:
        """Return whether a trial has been so far behind at a rung that it is stopped for good."""
        return trial in self._overtaken[step]

    def best(self, paused: Mapping[int, Step]) -> list[int]:
        """Return the paused trials to promote: those at the highest rung first, then by rank.

        Args:
            paused: the rung at which each paused trial waits.
        """
        promoted: list[int] = []
        for step in reversed(self.keep):
            ahead = (trial for _, trial in self._order[step][: self.places(step)])
            promoted += [trial for trial in ahead if paused.get(trial) == step and trial not in self._overtaken[step]]
        return promoted

    def _bound(self, step: Step) -> float:
        """Return the rank beyond which a trial is stopped for good: two standard deviations behind the last one to continue."""
        share, count = self.keep[step], self.trials
        return math.ceil(share * count - ROUNDING) + DEVIATIONS * math.sqrt(count * share * (1 - share))
