"""The model behind the policy `surrogate`: an ensemble of trees that predicts rewards, with its uncertainty."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syno.base.errors import SpecError

Numbers = NDArray[np.float64]

SPLITS_FROM = 0.5  # share of the columns among which each split is chosen
LEAST_DEVIATION = 0.02  # of a reward in [0, 1]: trainings with other seeds differ by as much


class Model:
    """Extremely randomized trees. The mean over trees is the prediction, their standard deviation its uncertainty.

    Equal data and seeds give equal predictions: one thread fits and predicts.

    Source: Geurts et al., 2006. Chosen over random forests, gradient boosting and Gaussian processes by their predictions for
    operators that they had not seen (docs/measured/surrogate.md).
    """

    def __init__(self, trees: int, seed: int) -> None:
        self.trees = trees
        self.seed = seed
        self._trees: list[Any] = []

    def fit(self, rows: Numbers, rewards: Numbers) -> None:
        """Learn from rows of shape [operators, columns] and their rewards. Raises SpecError without scikit-learn."""
        try:
            from sklearn.tree import ExtraTreeRegressor  # takes a second
        except ImportError:
            raise SpecError('the policy "surrogate" needs scikit-learn: pip install "scikit-learn>=1.7,<2"') from None
        given = rows.astype(np.float32)
        trees = (ExtraTreeRegressor(max_features=SPLITS_FROM, random_state=self.seed + number) for number in range(self.trees))
        self._trees = [tree.fit(given, rewards, check_input=False).tree_ for tree in trees]

    def predict(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Return the means and the standard deviations for rows of numbers."""
        given = rows.astype(np.float32)
        found = np.array([tree.predict(given)[:, 0] for tree in self._trees])
        return found.mean(axis=0), np.sqrt(found.var(axis=0) + LEAST_DEVIATION**2)

    def alike(self, rows: Numbers, others: Numbers) -> Numbers:
        """Return for each row and each other row the share of the trees that predict both from the same leaf."""
        one, other = ([tree.apply(given.astype(np.float32)) for tree in self._trees] for given in (rows, others))
        shares: Numbers = np.mean([here[:, None] == there for here, there in zip(one, other, strict=True)], axis=0)
        return shares


def expected_improvement(means: Numbers, deviations: Numbers, best: float) -> Numbers:
    """Return by how much each reward is expected to be above `best`, rewards below it counting as 0."""
    from scipy.special import ndtr

    z = (means - best) / deviations
    gains: Numbers = deviations * (z * ndtr(z) + np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
    return gains
