"""The best of several networks: its intervals and its verdict count that it was chosen, as simulated choices show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from result_tables import verdict_of
from scipy.stats import t

from syno.base.interval import Interval
from syno.measure.timing import interval_of_median
from syno.run.rivals import best_of
from syno.run.values import Score
from syno.search.goal import Goal
from syno.train.metric import ACCURACY

MOST_LOST, FAST = 0.01, 2.0
RUNS, SEEDS, ROUNDS = 300, 3, 20
ACCURATE, FASTEST = (Goal(speedup=FAST, lose_at_most=MOST_LOST, find=find) for find in ("most_accurate", "fastest"))
SPREAD, JITTER = 0.002, 0.02  # of scores, and of the logarithms of speedups


def simulated(
    losses: Sequence[float], spreads: Sequence[float], speed: float, rng: np.random.Generator
) -> Iterator[list[Score]]:
    """Yield the networks of an experiment, each trained with three seeds, timed in 20 rounds and judged by itself.

    The original is the last one.
    """
    seeds = rng.normal(size=(RUNS, len(losses) + 1, SEEDS)) * np.array([*spreads, SPREAD])[:, None]
    seeds += 0.9 - np.array([*losses, 0.0])[:, None]
    means, spreads_found = seeds.mean(-1), seeds.std(-1, ddof=1)
    squares = spreads_found**2 / SEEDS
    errors = squares + squares[:, -1:]
    half = t.ppf(0.975, errors**2 * (SEEDS - 1) / (squares**2 + squares[:, -1:] ** 2)) * np.sqrt(errors)  # Welch
    apart = (means - means[:, -1:])[..., None] + half[..., None] * np.array([0, -1, 1])
    ratios = np.sort(speed * np.exp(JITTER * rng.normal(size=(RUNS, len(losses), ROUNDS))))
    speeds = np.stack([np.median(ratios, -1), *np.moveaxis(ratios[..., list(interval_of_median(range(ROUNDS)))], -1, 0)], -1)
    low, high = apart[:, :-1, 1], apart[:, :-1, 2]
    are_met = (low >= -MOST_LOST) & (speeds[..., 1] >= FAST)
    are_missed = (high < -MOST_LOST) | (speeds[..., 2] < FAST)
    verdicts = np.select([are_met, are_missed], ["meets", "misses"], "may meet")
    for run in range(RUNS):
        own = [
            Score(
                str(place), "rival", str(place), "accuracy", means[run, place], spreads_found[run, place], SEEDS,
                Interval(*apart[run, place]), speedup=Interval(*speeds[run, place]),
                verdict=verdict_of(str(verdicts[run, place])),
            )
            for place in range(len(losses))
        ]  # fmt: skip
        yield [*own, Score("original", "original", "", "accuracy", means[run, -1], spreads_found[run, -1], SEEDS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("goal", "losses", "spreads"),
    [
        *((goal, [MOST_LOST] * count, [SPREAD] * count) for count in (2, 4, 8, 16) for goal in (ACCURATE, FASTEST)),
        (ACCURATE, np.linspace(MOST_LOST, 3 * MOST_LOST, 16), [SPREAD] * 16),
        (ACCURATE, [MOST_LOST] * 16, [5 * SPREAD, *[SPREAD] * 15]),
        (ACCURATE, [MOST_LOST] * 16, [SPREAD / 10] * 8 + [SPREAD] * 8),
    ],
)
def test_the_intervals_of_the_best_hold_and_it_seldom_meets_a_goal_falsely(
    goal: Goal, losses: Sequence[float], spreads: Sequence[float]
) -> None:
    """What decides is on the limit of the goal or beyond it in truth, so that the best one meets the goal by luck alone.

    With the intervals of single networks, the best of 16 equal ones has a coverage of 0.87 by its score and, where the fastest
    is looked for, of 0.69 by its speed, and meets the goal in 0.13 and 0.31 of all cases; that of 8 in 0.09 and 0.14.
    """
    speed = FAST if goal == FASTEST else 1.5 * FAST
    lost = np.array(losses) - (MOST_LOST if goal == FASTEST else 0)
    held, alone, meets = np.zeros(2), np.zeros(2), 0
    for networks in simulated(lost, spreads, speed, np.random.default_rng(len(losses))):
        best = best_of(networks, goal, ACCURACY)
        assert best is not None and best.among == len(losses)
        truth = (-lost[int(best.key)], speed)
        for one, count in ((best, held), (networks[int(best.key)], alone)):
            count += [low <= true <= high for (_, low, high), true in zip((one.difference, one.speedup), truth, strict=True)]
        meets += best.state == "meets"
    assert min(held) >= 0.95 * RUNS and meets <= 0.05 * RUNS
    if len(losses) == 16 and len({*losses, *spreads}) == 2:  # equal ones: the simulation finds what the other intervals lack
        assert min(alone) < 0.9 * RUNS
