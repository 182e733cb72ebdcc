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
from syno.measure.prediction.kernels import DENSE, Kernel, Kind, kernels

MILLION = 1e6
OF_PYTORCH = tuple(kind for kind in Kind if kind is not Kind.NEST)
FEW = 8  # elements side by side, below which a copy cannot move whole vectors
NAMES = (
    *("FLOPs of convolutions", "FLOPs of 1x1 convolutions", "FLOPs of grouped convolutions", "FLOPs of depthwise convolutions"),
    "FLOPs of products",
    *(f"{kind}s" for kind in OF_PYTORCH),
    *(f"moved by {kind}s" for kind in OF_PYTORCH),
    *(f"scattered by {kind}s" for kind in OF_PYTORCH if kind not in DENSE),
)
FLOPS = [number for number, name in enumerate(NAMES) if name.startswith("FLOPs")]
RIDGE = 0.006  # of the linear model, relative to the largest value of each column


def features(operator: PGraph, layers: Sequence[Mapping[str, int]]) -> Mapping[str, float]:
    """Return sums over the kernels that an operator runs in all layers, without those on weights alone.

    In millions: FLOPs of convolutions (plain, with a window of 1, grouped, depthwise) and products of matrices; elements that
    convolutions, products, copies and element-wise kernels move. Copies that change the order of axes count again as scattered.
    Also the numbers of kernels of each kind.

    Args:
        operator: the operator.
        layers: the sizes of each layer, with the batch.

    Raises:
        ValuationError, SizeError, LoweringError: the operator does not fit a layer.
    """
    found = dict.fromkeys(NAMES, 0.0)
    for layer in layers:
        values = {name: value for name, value in layer.items() if name in operator.variables}
        for kernel in kernels(operator, values):
            if not kernel.of_weights:
                for name, number in _parts(kernel):
                    found[name] += number
    return found


def _parts(kernel: Kernel) -> list[tuple[str, float]]:
    moved = (kernel.read + kernel.written) / MILLION
    parts = [(f"{kernel.kind}s", 1.0), (f"moved by {kernel.kind}s", moved)]
    if kernel.kind in DENSE:
        parts.append((_flops(kernel), kernel.flops / MILLION))
    elif kernel.run < FEW:
        parts.append((f"scattered by {kernel.kind}s", moved))
    return parts


def _flops(kernel: Kernel) -> str:
    if kernel.kind is Kind.PRODUCT:
        return "FLOPs of products"
    if kernel.groups > 1:
        return "FLOPs of depthwise convolutions" if kernel.channels == 1 else "FLOPs of grouped convolutions"
    return "FLOPs of convolutions" if kernel.taps > 1 else "FLOPs of 1x1 convolutions"


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
