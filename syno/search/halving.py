"""Early stopping by successive halving: which trials go on after some steps, and which pause.

A trial is measured at a few steps of its evaluation, its rungs: after half an epoch, one, and two of four, say. The best
share of all trials goes on at each rung. The others pause, and keep a checkpoint of their training. As the study grows, a
paused trial may come to belong to the best; it is then resumed from its checkpoint, by any worker. A trial that so many others
have overtaken that this is no longer likely is stopped for good.

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

DEVIATIONS = 2.0  # a trial that is so many standard deviations outside of the share that goes on is stopped for good
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

OF_FIT = 0  # the step of a fit, before those of a training; trials are compared by its error

Share = Annotated[float, Field(gt=0, le=1)]
Step: TypeAlias = float  # epochs or rounds of an evaluation; whole numbers are kept as int


def as_step(epochs: float | str) -> Step:
    """Return a number of epochs, whole numbers as int. Raises ValueError for a text that is no number."""
    step = float(epochs)
    return int(step) if step.is_integer() else step


class HalvingSettings(Settings):
    """Early stopping of trials that can be resumed: which share of all trials goes on after which epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    keep: Literal["auto"] | Mapping[int | float, Share] = "auto"
    """share of all trials that goes on, by epoch, as in {0.5: 0.8, 1: 0.5, 2: 0.3}; `auto`: shares after an eighth up to three
    quarters of the epochs of `workload: training` that lose few of the best, see docs/measured/stopping.md. Epoch 0 is the end
    of the fit (`training: {initialization: fit}`), where operators are compared by its error, as in {0: 0.8, 1: 0.5}"""
    by: Literal["loss", "score"] = "loss"
    """what trials are compared by: `loss`, the mean over the epoch's last quarter of training steps; `score`, of the test"""

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
        """Return the share that goes on at each rung.

        Args:
            rounds: how often an evaluation reports, such as the number of epochs; None if that is not known.

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
        found: dict[Step, float] = {}
        for part, share in SHARES:
            step = as_step(part * rounds) if self.by == "loss" else math.ceil(part * rounds)
            if step < rounds:
                found[step] = share
        if not found:
            raise SpecError(
                "study: stopping: a training of one epoch cannot be stopped early by its score; give more epochs, or by: loss"
            )
        return found

    def part_of_training(self, rounds: int) -> float:
        """Return the part of all trials' rounds that a large study trains."""
        rungs = self.rungs(rounds)
        ends, shares = [*rungs, rounds], [1.0, *rungs.values()]
        return sum(share * (end - first) for share, first, end in zip(shares, [0, *ends], ends, strict=False)) / rounds


class Rungs:
    """The values of trials at the rungs. Trials are numbers of the caller's choice.

    At each rung, the best `share * n` trials go on, rounded up, where n is the number of trials at the first rung.

    Attributes:
        keep: the share that goes on, by step.
    """

    def __init__(self, keep: Mapping[Step, float]) -> None:
        self.keep = dict(sorted(keep.items()))
        self._entries: dict[Step, dict[int, tuple[float, int]]] = {step: {} for step in self.keep}  # keys by trial, best first
        self._order: dict[Step, list[tuple[float, int]]] = {step: [] for step in self.keep}  # sorted keys
        self._within: dict[Step, list[tuple[float, int]]] = {step: [] for step in self.keep}  # those not overtaken
        self._overtaken: dict[Step, set[int]] = {step: set() for step in self.keep}

    def enter(self, trial: int, step: Step, value: float) -> None:
        """Add the value of a trial at a rung; more is better, NaN the worst. A second value of the same trial is ignored."""
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
        """Return the place of a trial at a rung, from 1 for the best; of equal ones the earlier is the better."""
        return bisect_left(self._order[step], self._entries[step][trial]) + 1

    def places(self, step: Step) -> int:
        """Return the number of trials that go on at a rung as it is now."""
        return math.ceil(self.keep[step] * self.trials - ROUNDING)

    @property
    def trials(self) -> int:
        """The number of trials at the first rung that the evaluation reports; it may not report parts of epochs."""
        return max(map(len, self._order.values()), default=0)

    def goes_on(self, trial: int, step: Step) -> bool:
        """Return whether a trial belongs to those that go on at a rung as it is now."""
        return self.place(trial, step) <= self.places(step)

    def is_overtaken(self, trial: int, step: Step) -> bool:
        """Return whether a trial was once so far behind at a rung that it is stopped for good."""
        return trial in self._overtaken[step]

    def best(self, paused: Mapping[int, Step]) -> list[int]:
        """Return the paused trials to resume: the highest rung first, and the best first.

        Args:
            paused: the rung at which each paused trial waits.
        """
        found: list[int] = []
        for step in reversed(self.keep):
            ahead = (trial for _, trial in self._order[step][: self.places(step)])
            found += [trial for trial in ahead if paused.get(trial) == step and trial not in self._overtaken[step]]
        return found

    def _bound(self, step: Step) -> float:
        """Return the place behind which a trial is overtaken: two standard deviations behind the last to go on."""
        share, count = self.keep[step], self.trials
        return math.ceil(share * count - ROUNDING) + DEVIATIONS * math.sqrt(count * share * (1 - share))
