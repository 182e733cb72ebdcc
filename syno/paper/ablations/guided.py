"""Ablation of the shape distance: how many operators random walks find with each distance and with none, and how many it loses.

A trial is one walk of the sampler, which builds an operator step by step and remembers dead ends and found operators. All
sides have the same memory, rules and budget. With a distance a walk enters no state that is farther from an operator
than the depth left, and looks two steps ahead for dead ends; without one, only the bound on FLOPs is checked. Operators are
counted once for each meaning (fingerprint). Time is the CPU time of one process, including the construction of the space.

An operator is lost if a distance rejects every order of its steps. Losses are counted among all operators of up to n
primitives, with the depth limit n, and among random operators of the whole space. Both sets come from the `exact` distance,
which loses none (`tests/property/test_distance.py` enumerates small spaces without it).

Paper: the ablation of shape distance (no valid operator in 500 million trials without it).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from syno.base.collection import seldom_collected
from syno.base.errors import UnreachableError
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.report.operators.folder import Show, silent
from syno.space.options import DistanceKind
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec

FEW = 50  # operators that are kept of a run


@dataclass
class Run:
    """The random walks with one distance.

    Attributes:
        name: the distance that guides the walks.
        trials, seconds: for each operator in order, the number of walks and the CPU-seconds after which it was found.
        walks, dead_ends, duplicates: total numbers of walks, of dead ends, and of operators found again.
        used: total CPU-seconds.
        is_exhausted: whether the walks found all operators of the space, and stopped.
        operators: the texts of the first `FEW` operators.
    """

    name: str
    trials: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    walks: int = 0
    dead_ends: int = 0
    duplicates: int = 0
    used: float = 0.0
    is_exhausted: bool = False
    operators: list[str] = field(default_factory=list)

    @property
    def valid_share(self) -> float | None:
        """The share of walks that ended in an operator; None before the first."""
        return 1 - self.dead_ends / self.walks if self.walks else None

    def after_trials(self, trials: int) -> int | None:
        """Return the number of operators found within the first `trials` walks; None if there were fewer walks."""
        return bisect_right(self.trials, trials) if trials <= self.walks or self.is_exhausted else None

    def after_seconds(self, seconds: float) -> int | None:
        """Return the number of operators found within the first `seconds` CPU-seconds; None if the run was shorter."""
        return bisect_right(self.seconds, seconds) if seconds <= self.used or self.is_exhausted else None


@seldom_collected()
def run(
    spec: OperatorSpec,
    *,
    distance: DistanceKind = "exact",
    trials: int | None = None,
    seconds: float,
    seed: int = 0,
    show: Show = silent,
    clock: Callable[[], float] = time.process_time,
) -> Run:
    """Walk until the CPU-seconds are used up, the number of walks is reached, or all operators are found.

    The time is checked before each step of a walk. `clock` returns CPU-seconds.
    """
    found = Run(distance)
    title, whole, begin = f"walks, distance {distance}", max(1, round(seconds)), clock()

    def is_over() -> bool:
        found.used = clock() - begin
        show(title, min(int(found.used), whole), whole)
        return found.used >= seconds

    show(title, 0, whole)
    sampler = Sampler(Space(spec.with_(distance=distance)), Random(seed))
    while not sampler.is_exhausted and (trials is None or sampler.walks < trials) and not is_over():
        operator = sampler.draw(is_over)
        found.used = clock() - begin
        if operator is not None:
            found.trials.append(sampler.walks)
            found.seconds.append(round(found.used, 4))
            if len(found.operators) < FEW:
                found.operators.append(str(operator))
    found.walks, found.dead_ends, found.duplicates = sampler.walks, sampler.dead_ends, sampler.duplicates
    found.is_exhausted = sampler.is_exhausted
    return found


class Loss(NamedTuple):
    """The number of operators that a distance loses.

    Attributes:
        distance: the distance.
        depth: the depth limit.
        primitives: the size of the operators; None for random operators of any size.
        operators: number of operators that were checked.
        lost: number of operators that no order of their steps reaches with this distance.
    """

    distance: str
    depth: int
    primitives: int | None
    operators: int
    lost: int


def losses(spec: OperatorSpec, distance: DistanceKind, complete: int, *, show: Show = silent) -> list[Loss]:
    """Return the losses of a distance among all operators of up to `complete` primitives, the depth limit, by size."""
    limited = spec.with_(depth=min(complete, spec.depth))
    operators = list(Space(limited).enumerate())
    space, counts = Space(limited.with_(distance=distance)), dict[int, list[bool]]()
    for number, (size, operator) in enumerate(operators):
        show(f"operators that the distance {distance} loses", number, len(operators))
        counts.setdefault(size, []).append(is_lost(space, operator))
    return [Loss(distance, limited.depth, size, len(found), sum(found)) for size, found in sorted(counts.items())]


def sampled_losses(spec: OperatorSpec, distance: DistanceKind, operators: Sequence[str], *, show: Show = silent) -> Loss:
    """Return the losses of a distance among random operators, given as operator texts."""
    space, lost = Space(spec.with_(distance=distance)), 0
    for number, text in enumerate(operators):
        show(f"random operators that the distance {distance} loses", number, len(operators))
        lost += is_lost(space, parse(text))
    return Loss(distance, spec.depth, None, len(operators), lost)


def is_lost(space: Space, operator: PGraph) -> bool:
    """Return whether no order of an operator's steps reaches it in a space with the space's distance."""
    try:
        space.path(operator)
    except UnreachableError:
        return True
    return False


def comparison(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return rows: operators found with each distance after equal walks and equal CPU time; None where a run was shorter."""
    rows: list[dict[str, object]] = []
    for trials in marks(max(run.walks for run in runs)):
        rows.append({"equal": "trials", "at": int(trials), **{run.name: run.after_trials(int(trials)) for run in runs}})
    for seconds in marks(max(run.used for run in runs)):
        rows.append({"equal": "CPU-seconds", "at": seconds, **{run.name: run.after_seconds(seconds) for run in runs}})
    return rows


def totals(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return a row for each distance: total walks, dead ends, operators, and time."""
    return [
        {
            "distance": run.name,
            "trials": run.walks,
            "CPU-seconds": round(run.used, 2),
            "valid_trials": run.walks - run.dead_ends,
            "valid_share": run.valid_share,
            "operators": len(run.trials),
            "operators_per_CPU-second": round(len(run.trials) / run.used, 4) if run.used else None,
            "duplicates": run.duplicates,
        }
        for run in runs
    ]


def marks(most: float) -> list[float]:
    """Return the numbers 1, 2, 5, 10, 20, 50 ... up to `most`, at which searches are compared."""
    found, power = [], 1
    while power <= most:
        found += [float(step * power) for step in (1, 2, 5) if step * power <= most]
        power *= 10
    return found
