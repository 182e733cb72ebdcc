"""Timing in turns: a drift of the machine cancels in the ratio, is noticed, and leads to other rounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from syno.measure.timing import LatencySettings
from syno.measure.turns import MOST_ATTEMPTS, Turns, drift_of, in_turns, take_turns

SHORT = LatencySettings(warm_up_ms=0, least_repeats=9, least_ms=0)


def slower(ms: float, pace: Callable[[], float]) -> Callable[[int, int], list[float]]:
    return lambda calls, repeats: [ms * pace()] * repeats


def test_a_drift_cancels_in_the_ratio_and_is_measured() -> None:
    paces = [1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2, 1.5, 1.5, 1.5] * 100  # the machine gets slower and slower
    rounds = [(6.0 * pace, 3.0 * pace) for pace in paces[1:10]]
    turns = Turns.of(rounds)
    assert (turns.speedups[0].low, turns.speedups[0].value, turns.speedups[0].high) == pytest.approx((2.0, 2.0, 2.0))
    assert turns.drift == pytest.approx((1.5 - 1.0) / 1.2)
    assert not turns.is_steady and "changed by 42 % over the rounds, more than 10 %" in turns.unsteady


def test_rounds_are_timed_again_until_the_original_is_steady() -> None:
    begun = 0

    def restless_at_first(calls: int, repeats: int) -> list[float]:
        nonlocal begun
        begun += 1
        return [4.0 if begun > 11 or begun % 2 else 8.0 + begun] * repeats

    turns = take_turns([restless_at_first, slower(2.0, lambda: 1.0)], SHORT)
    assert (turns.attempts, turns.drift, turns.speedups[0].value, turns.unsteady) == (2, 0.0, 2.0, "")


def test_the_steadiest_of_restless_attempts_is_kept_and_says_so() -> None:
    times = iter(float(number) for number in range(1, 1000))
    turns = take_turns([lambda calls, repeats: [next(times)] * repeats, slower(2.0, lambda: 1.0)], SHORT)
    assert turns.attempts == MOST_ATTEMPTS and turns.rounds[0][0] > 18  # the last: the same steps are small by then
    assert f"in each of {MOST_ATTEMPTS} attempts" in turns.unsteady


def test_every_second_round_is_in_reversed_order() -> None:
    order: list[int] = []
    in_turns([lambda: order.append(0), lambda: order.append(1)], SHORT, lambda work: work() or 1.0)  # type: ignore[func-returns-value]
    assert order[-8:] == [1, 0, 0, 1, 1, 0, 0, 1]


def test_sums_over_layers_are_combined_in_each_round() -> None:
    calls = [slower(ms, lambda: 1.0) for ms in (1.0, 2.0, 0.5, 1.0)]
    turns = take_turns(calls, SHORT, lambda times: (times[0] + times[1], times[2] + times[3]))
    assert [one.value for one in turns.latencies] == [3.0, 1.5] and turns.speedups[0].value == 2.0
    assert turns.rounds[0] == (1.0, 2.0, 0.5, 1.0)


def test_the_drift_is_between_thirds() -> None:
    assert drift_of([1, 1, 1, 2, 2, 2, 1, 1, 1]) == 1.0
    assert drift_of([1, 9, 1, 1, 1, 9, 1, 1, 9]) == 0.0  # single disturbances are none
