"""Models of latency from one row of numbers for each operator, to compare with the process over kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.optimize import nnls
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.preprocessing import StandardScaler

from syno.ir.graph import PGraph
from syno.measure.prediction.predictor import NAMES, features

FLOPS = [number for number, name in enumerate(NAMES) if name.startswith("FLOPs")]
RIDGE = 0.006  # of the linear model, relative to the largest value of each column


def rows_of(operators: Sequence[PGraph], layers: Sequence[Mapping[str, int]]) -> np.ndarray:
    """The features of operators, of shape [operators, features]."""
    return np.array([list(features(operator, layers).values()) for operator in operators])


def linear(rows: np.ndarray, times: np.ndarray, others: np.ndarray) -> np.ndarray:
    """A sum of features with coefficients that are not negative (a roofline); least relative errors."""
    inputs, asked = (np.column_stack([np.ones(len(given)), given]) for given in (rows, others))
    scale, weights = inputs.max(axis=0) + 1e-9, np.exp(-times)
    ridge = RIDGE * len(times) ** 0.5 * np.eye(inputs.shape[1])
    left = np.vstack([inputs / scale * weights[:, None], ridge])
    found, _ = nnls(left, np.concatenate([np.ones(len(times)), np.zeros(len(ridge))]))
    return np.log(np.maximum(asked / scale @ found, 0.02))


def extra_trees(rows: np.ndarray, times: np.ndarray, others: np.ndarray) -> np.ndarray:
    return ExtraTreesRegressor(100, max_features=0.5, random_state=0).fit(rows, times).predict(others)


def gradient_boosting(rows: np.ndarray, times: np.ndarray, others: np.ndarray) -> np.ndarray:
    model = GradientBoostingRegressor(n_estimators=150, learning_rate=0.08, subsample=0.7, max_features=0.5, random_state=0)
    return model.fit(rows, times).predict(others)


def gaussian_process(rows: np.ndarray, times: np.ndarray, others: np.ndarray) -> np.ndarray:
    given, asked = np.log1p(20 * rows), np.log1p(20 * others)
    scale = StandardScaler().fit(given)
    kernel = ConstantKernel() * Matern(5.0, (1, 100), nu=2.5) + WhiteKernel(0.05, (1e-4, 1))
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(scale.transform(given), times)
    return model.predict(scale.transform(asked))


def on_residuals(model: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The linear model, and `model` of what it leaves."""

    def both(rows: np.ndarray, times: np.ndarray, others: np.ndarray) -> np.ndarray:
        before, after = linear(rows, times, rows), linear(rows, times, others)
        return after + model(np.column_stack([rows, np.exp(before)]), times - before, np.column_stack([others, np.exp(after)]))

    return both


MODELS: Mapping[str, Callable[..., np.ndarray]] = {
    "linear": linear,
    "extra trees": extra_trees,
    "gradient boosting": gradient_boosting,
    "Gaussian process": gaussian_process,
    "linear, then extra trees": on_residuals(extra_trees),
    "linear, then gradient boosting": on_residuals(gradient_boosting),
    "linear, then Gaussian process": on_residuals(gaussian_process),
}
