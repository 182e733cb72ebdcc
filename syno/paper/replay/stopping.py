"""Stopping rules, replayed on trainings that went to their end: which epochs would have been trained, in which order.

A rule takes the values of trials after each epoch, or part of one (more is better), in the order of the trials, and returns
the epochs that one worker trains. `halving` is `study: stopping`, decision by decision; the others are Optuna's pruners and
milestones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from syno.search.halving import Rungs, as_step

Curves: TypeAlias = Sequence[Sequence[float]]


@dataclass
class Work:
    """The epochs that were trained.

    Attributes:
        epochs: how many of each trial, or how many parts of epochs.
        order: the trial of each epoch, in the order of training.
        pruned: trials that a pruner ended after their last epoch. They are trained through, but a search has no result of them.
    """

    epochs: list[int]
    order: list[int] = field(default_factory=list)
    pruned: set[int] = field(default_factory=set)

    def train(self, trial: int) -> int:
        """Train the next epoch of a trial. Return its number, from 1."""
        self.epochs[trial] += 1
        self.order.append(trial)
        return self.epochs[trial]


Rule: TypeAlias = Callable[[Curves], Work]


def halving(keep: Mapping[float, float], parts: int = 1) -> Rule:
    """Return successive halving with resumption: trials pause at rungs, and go on when they belong to the best.

    Args:
        keep: share of all trials that goes on, by epoch, which may be a part of one.
        parts: number of values in an epoch.
    """
    return brackets([keep], parts)


def brackets(keeps: Sequence[Mapping[float, float]], parts: int = 1) -> Rule:
    """Return successive halving with resumption in several brackets, as in Hyperband; trials go to them in turn."""

    def work(curves: Curves) -> Work:
        scaled = [{as_step(step * parts): share for step, share in keep.items()} for keep in keeps]
        done, all_rungs = Work([0] * len(curves)), [Rungs(keep) for keep in scaled]
        paused: list[dict[int, float]] = [{} for _ in keeps]

        def run(trial: int, bracket: int) -> None:
            rungs = all_rungs[bracket]
            paused[bracket].pop(trial, None)
            while done.epochs[trial] < len(curves[trial]):
                epoch = done.train(trial)
                if epoch in rungs.keep:
                    rungs.enter(trial, epoch, curves[trial][epoch - 1])
                    if not rungs.goes_on(trial, epoch):
                        paused[bracket][trial] = epoch
                        return

        def resume() -> bool:
            for bracket, rungs in enumerate(all_rungs):
                if best := rungs.best(paused[bracket]):
                    run(best[0], bracket)
                    return True
            return False

        for trial in range(len(curves)):
            run(trial, trial % len(keeps))
            while resume():
                pass
        return done

    return work


def for_good(stops: Callable[[Sequence[float], Sequence[Sequence[float]]], bool]) -> Rule:
    """Return a rule that stops trials for good.

    Args:
        stops: called after each epoch but the last with the trial's values so far, and with those of the trials before it, each
            as far as it was trained; returns whether the trial stops.
    """

    def work(curves: Curves) -> Work:
        done = Work([0] * len(curves))
        before: list[Sequence[float]] = []
        for trial, curve in enumerate(curves):
            while (epoch := done.train(trial)) < len(curve) and not stops(curve[:epoch], before):
                pass
            before.append(curve[: done.epochs[trial]])
        return done

    return work


def milestones(bounds: Mapping[int, float]) -> Rule:
    """Return the rule that stops a trial whose value is below the bound of an epoch."""
    return for_good(lambda curve, before: curve[-1] < bounds.get(len(curve), -math.inf))


def percentile(share: float, startup: int = 5, bounds: Mapping[int, float] | None = None) -> Rule:
    """Return Optuna's PercentilePruner, from the first epoch on; with a share of 50 it is the MedianPruner.

    Args:
        share: percentage of the complete trials that a trial must belong to, with the best of its values so far.
        startup: number of complete trials from which on trials are pruned.
        bounds: milestones beside it. A trial that misses one ends without a report, and counts as complete.
    """
    milestone = bounds or {}

    def work(curves: Curves) -> Work:
        done, complete = Work([0] * len(curves)), list[Sequence[float]]()
        for trial, curve in enumerate(curves):
            ended = False
            while not ended and done.epochs[trial] < len(curve):
                epoch = done.train(trial)
                if curve[epoch - 1] < milestone.get(epoch, -math.inf):
                    complete.append(curve[: epoch - 1])
                    ended = True
                    continue
                if len(complete) < startup:
                    continue
                others = [other[epoch - 1] for other in complete if len(other) >= epoch]
                ended = bool(others) and bool(max(curve[:epoch]) < np.percentile(others, 100 - share))
            if not ended:
                complete.append(curve)
            elif done.epochs[trial] == len(curve):
                done.pruned.add(trial)
        return done

    return work


def promotion(factor: int, epochs: Sequence[int] = (1, 2)) -> Rule:
    """Return Optuna's SuccessiveHalvingPruner: at each rung, a trial that is not among the best 1 / factor stops for good."""

    def stops(curve: Sequence[float], before: Sequence[Sequence[float]]) -> bool:
        epoch = len(curve)
        if epoch not in epochs:
            return False
        here = sorted([curve[-1], *(other[epoch - 1] for other in before if len(other) >= epoch)], reverse=True)
        return curve[-1] < here[max(len(here) // factor, 1) - 1]

    return for_good(stops)
