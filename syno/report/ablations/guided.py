"""Ablation of the shape distance: how many operators random walks find with it and without.

A trial is one walk of the sampler, which builds an operator step by step and remembers dead ends and found operators. Both
sides have the same memory, rules and budget. With the distance a walk enters no state that is farther from an operator
than the depth left, and looks two steps ahead for dead ends; without it, only the bound on FLOPs is checked. Operators are
counted once for each meaning (fingerprint). Time is the CPU time of one process, including the construction of the space.

Paper: the ablation of shape distance (no valid operator in 500 million trials without it).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from syno.report.ablations.sampling import Show, silent
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec


@dataclass
class Run:
    """The walks of one side of the comparison: with the distance or without.

    Attributes:
        name: "with distance" or "without".
        trials, seconds: at which each operator was found, in order.
        walks, dead_ends, duplicates: their total numbers.
        used: CPU-seconds in total.
        is_exhausted: whether it found all operators of the space, and stopped.
    """

    name: str
    trials: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    walks: int = 0
    dead_ends: int = 0
    duplicates: int = 0
    used: float = 0.0
    is_exhausted: bool = False

    @property
    def valid_share(self) -> float | None:
        """The share of walks that ended in an operator; None before the first."""
        return 1 - self.dead_ends / self.walks if self.walks else None

    def after_trials(self, trials: int) -> int | None:
        """Return how many operators the first `trials` trials found; None if there were fewer trials."""
        return bisect_right(self.trials, trials) if trials <= self.walks or self.is_exhausted else None

    def after_seconds(self, seconds: float) -> int | None:
        """Return how many operators were found in the first CPU-seconds; None if the run was shorter."""
        return bisect_right(self.seconds, seconds) if seconds <= self.used or self.is_exhausted else None


def run(
    spec: OperatorSpec,
    *,
    use_distance: bool,
    trials: int | None = None,
    seconds: float,
    seed: int = 0,
    show: Show = silent,
    clock: Callable[[], float] = time.process_time,
) -> Run:
    """Walk until the CPU-seconds are used up, the number of trials is reached, or nothing is left to find.

    The time is checked before each step of a walk. `clock` returns CPU-seconds.
    """
    found = Run("with distance" if use_distance else "without")
    title, whole, begin = f"walks {found.name}", max(1, round(seconds)), clock()

    def is_over() -> bool:
        found.used = clock() - begin
        show(title, min(int(found.used), whole), whole)
        return found.used >= seconds

    show(title, 0, whole)
    sampler = Sampler(Space(spec, use_distance=use_distance), Random(seed))
    while not sampler.is_exhausted and (trials is None or sampler.walks < trials) and not is_over():
        operator = sampler.draw(is_over)
        found.used = clock() - begin
        if operator is not None:
            found.trials.append(sampler.walks)
            found.seconds.append(round(found.used, 4))
    found.walks, found.dead_ends, found.duplicates = sampler.walks, sampler.dead_ends, sampler.duplicates
    found.is_exhausted = sampler.is_exhausted
    return found


def comparison(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return rows of operators found on each side at equal trials and in equal CPU time; None where a run was shorter."""
    rows: list[dict[str, object]] = []
    for trials in marks(max(run.walks for run in runs)):
        rows.append({"equal": "trials", "at": int(trials), **{run.name: run.after_trials(int(trials)) for run in runs}})
    for seconds in marks(max(run.used for run in runs)):
        rows.append({"equal": "CPU-seconds", "at": seconds, **{run.name: run.after_seconds(seconds) for run in runs}})
    return rows


def totals(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return a row of totals for each side."""
    return [
        {
            "side": run.name,
            "trials": run.walks,
            "CPU-seconds": round(run.used, 2),
            "valid_trials": run.walks - run.dead_ends,
            "valid_share": run.valid_share,
            "operators": len(run.trials),
            "duplicates": run.duplicates,
        }
        for run in runs
    ]


def marks(most: float) -> list[float]:
    """Return 1, 2, 5, 10, 20, 50 ... up to `most`."""
    found, power = [], 1
    while power <= most:
        found += [float(step * power) for step in (1, 2, 5) if step * power <= most]
        power *= 10
    return found
