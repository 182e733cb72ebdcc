"""Differences of means and their intervals, against published values and another implementation."""

from __future__ import annotations

import doctest
from math import inf, isnan, nan

import numpy as np
import pytest
from scipy.stats import ttest_ind

from syno.run import metric
from syno.run.metric import difference, spread
from syno.train.metric import ACCURACY, LOSS, score_of

# Hours of sleep gained with two drugs (Student, 1908); R's documentation prints the Welch interval of this table.
FIRST = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SECOND = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


def test_the_examples_of_the_module_run() -> None:
    assert doctest.testmod(metric).failed == 0


def test_the_interval_of_a_published_example() -> None:
    assert difference(FIRST, SECOND) == pytest.approx((-1.58, -3.3654832, 0.2054832), abs=1e-7)


@pytest.mark.parametrize(("ours", "theirs"), [(2, 2), (3, 3), (2, 7), (10, 3)])
def test_scipy_gives_the_same(ours: int, theirs: int) -> None:
    random = np.random.default_rng(ours + 10 * theirs)
    sample, reference = random.normal(0.9, 0.02, ours).tolist(), random.normal(0.95, 0.005, theirs).tolist()
    low, high = ttest_ind(sample, reference, equal_var=False).confidence_interval(0.95)
    assert difference(sample, reference)[1:] == pytest.approx((low, high), rel=1e-9)


def test_the_interval_turns_with_the_samples() -> None:
    value, low, high = difference(FIRST, SECOND)
    assert difference(SECOND, FIRST) == pytest.approx((-value, -high, -low))


def test_one_sample_may_not_scatter() -> None:
    found = difference([0.5, 0.5, 0.5], [0.75, 0.875, 0.625])
    half = 4.302652729911275 * 0.125 / 3**0.5  # Student's quantile for two degrees of freedom
    assert found == pytest.approx((-0.25, -0.25 - half, -0.25 + half))


@pytest.mark.slow
def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    pairs = [(random.normal(1, 3, 5).tolist(), random.normal(0, 1, 12).tolist()) for _ in range(2000)]
    held = sum(low <= 1 <= high for _, low, high in (difference(*pair) for pair in pairs))
    assert held / len(pairs) == pytest.approx(0.95, abs=0.015)  # one that takes the samples to scatter alike: 0.83


@pytest.mark.parametrize(
    ("sample", "reference", "value"),
    [
        ([0.5], [0.75, 0.875], -0.3125),
        ([0.5, 0.75], [0.75], -0.125),
        ([0.5, 0.5], [0.75, 0.75], -0.25),  # nothing scatters
        ([inf, 2.0], [2.0, 2.25], inf),
        ([2.0, 2.25], [inf, 2.0], -inf),
        ([inf, inf], [inf, 2.0], nan),
    ],
)
def test_too_few_or_infinite_scores_have_no_interval(sample: list[float], reference: list[float], value: float) -> None:
    found = difference(sample, reference)
    assert found.value == pytest.approx(value, nan_ok=True)
    assert isnan(found.low) and isnan(found.high)


def test_the_spread_is_the_standard_deviation() -> None:
    assert spread([0.5, 0.75, 1.0]) == 0.25
    assert all(isnan(spread(sample)) for sample in ([0.5], [inf, 1.0], [inf, inf], [nan, 1.0]))


class TestWords:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ((-0.009, -0.016, -0.002), "-0.9 points (95 %: -1.6 to -0.2)"),
            ((0.0004, -0.0111, 0.0119), "+0.0 points (95 %: -1.1 to +1.2)"),
            ((-0.0004, -0.0111, 0.0103), "+0.0 points (95 %: -1.1 to +1.0)"),  # no minus before nothing
        ],
    )
    def test_a_difference_of_accuracies_in_points(self, given: tuple[float, float, float], expected: str) -> None:
        assert ACCURACY.difference_text(*given) == expected

    def test_a_difference_of_losses_in_words(self) -> None:
        assert LOSS.difference_text(0.0312, 0.0104, 0.052) == "+0.031 nats (95 %: +0.010 to +0.052)"

    @pytest.mark.parametrize("given", [(-0.1, nan, nan), (nan, nan, nan), (inf, nan, nan), (0.1, -inf, inf)])
    def test_a_difference_without_an_interval_has_no_words(self, given: tuple[float, float, float]) -> None:
        assert ACCURACY.difference_text(*given) is None

    def test_a_score_in_words(self) -> None:
        assert LOSS.text(2.5) == "2.5000"
        assert LOSS.text(2.5, 0.25) == "2.5000 ± 0.2500"

    def test_trials_have_the_score_of_their_metrics(self) -> None:
        assert score_of(["flops", "loss"]) == LOSS.key
        assert score_of(["loss", "accuracy"]) == ACCURACY.key
        assert score_of(["flops"]) is None
