"""Learning curves: means over seeds, and nothing beyond what every seed reached."""

from __future__ import annotations

from math import inf

import pytest

from syno.report.result_figures import learning_figure
from syno.run.values import Round

SCORES = {
    ("original", 1): (0.4, 0.8, 0.9),
    ("original", 2): (0.6, 0.9, 0.95),
    ("operator_1", 1): (0.2, 0.3),
    ("operator_1", 2): (0.4,),
}


def table(scores: dict[tuple[str, int], tuple[float, ...]], metric: str = "accuracy") -> list[Round]:
    return [Round(name, metric, seed, *one) for (name, seed), of in scores.items() for one in enumerate(of, 1)]


def test_each_network_has_a_line_of_means_as_far_as_all_its_seeds_went() -> None:
    (axes,) = learning_figure(table(SCORES)).axes
    drawn = {line.get_label(): (list(line.get_xdata()), pytest.approx(list(line.get_ydata()))) for line in axes.lines}
    assert drawn == {"original": ([1, 2, 3], [0.5, 0.85, 0.925]), "operator_1": ([1], [0.3])}
    assert axes.get_ylabel() == "accuracy on the test data"


def test_a_loss_that_is_infinite_is_left_out() -> None:
    (axes,) = learning_figure(table({("operator_1", 1): (3.0, inf), ("operator_1", 2): (2.0, 1.0)}, "loss")).axes
    assert list(axes.lines[0].get_ydata()) == [2.5]
    assert axes.get_ylabel() == "loss (nats per token) on the test data"


def test_without_trainings_the_figure_says_so() -> None:
    (axes,) = learning_figure(table({})).axes
    assert axes.texts[0].get_text() == "No network was trained with other seeds."
