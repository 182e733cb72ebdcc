"""Compare models that predict an operator's reward from its features, on the operators of the table of truth.

    python benchmarks/surrogate.py --splits 10

For each part of the table and number of operators that a model learns from: Spearman's rank correlation and the median
log-likelihood of the other operators' rewards; means over splits with 95 % intervals.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import reports
from scipy.stats import norm, spearmanr
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.preprocessing import StandardScaler

from syno.paper.replay import REWARD, OperatorTable, Subset
from syno.paper.replay.table import FOLDER
from syno.search.policies.surrogate import LEAST_DEVIATION, Model
from syno.space.features import OperatorFeatures

LEARNT = (10, 20, 50, 100, 200)  # operators
Predicted = tuple[np.ndarray, np.ndarray]  # means and standard deviations


def extra_trees(rows: np.ndarray, rewards: np.ndarray, others: np.ndarray) -> Predicted:
    model = Model(32, 0)
    model.fit(rows, rewards)
    return model.predict(others)


def random_forest(rows: np.ndarray, rewards: np.ndarray, others: np.ndarray) -> Predicted:
    model = RandomForestRegressor(32, max_features=0.5, random_state=0).fit(rows, rewards)
    found = np.array([tree.predict(others) for tree in model.estimators_])
    return found.mean(axis=0), np.sqrt(found.var(axis=0) + LEAST_DEVIATION**2)


def gradient_boosting(rows: np.ndarray, rewards: np.ndarray, others: np.ndarray) -> Predicted:
    low, middle, high = (
        GradientBoostingRegressor(n_estimators=60, loss="quantile", alpha=share, random_state=0)
        .fit(rows, rewards)
        .predict(others)
        for share in (0.16, 0.5, 0.84)
    )
    return middle, np.maximum((high - low) / 2, LEAST_DEVIATION)


def gaussian_process(rows: np.ndarray, rewards: np.ndarray, others: np.ndarray) -> Predicted:
    scale = StandardScaler().fit(rows)
    kernel = ConstantKernel() * Matern(5.0, (1, 100), nu=1.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(scale.transform(rows), rewards)
    mean, deviation = model.predict(scale.transform(others), return_std=True)
    return mean, np.maximum(deviation, LEAST_DEVIATION)


MODELS: tuple[Callable[..., Predicted], ...] = (extra_trees, random_forest, gradient_boosting, gaussian_process)


def interval(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f} ± {1.96 * stdev(values) / len(values) ** 0.5:.3f}"


def rows_of(table: OperatorTable, part: Subset, splits: int) -> list[list[str]]:
    """Return a row for each number of operators and model."""
    assert table.spec is not None
    features, entries = OperatorFeatures(table.spec), list(table.subset(part).values())
    numbers = np.array([features(entry.operator) for entry in entries])
    rewards = np.array([float(REWARD(table.metrics(entry, 0))) for entry in entries])  # type: ignore[arg-type]
    found = []
    for count in (count for count in LEARNT if count <= 0.7 * len(entries)):
        for model in MODELS:
            ranks, likelihoods = list[float](), list[float]()
            for split in range(splits):
                order = np.random.default_rng(split).permutation(len(entries))
                learnt, others = order[:count], order[count:]
                means, deviations = model(numbers[learnt], rewards[learnt], numbers[others])
                rank = spearmanr(means, rewards[others]).statistic
                ranks.append(0.0 if np.isnan(rank) else float(rank))
                likelihoods.append(float(np.median(norm.logpdf(rewards[others], means, deviations))))
            row = [f"{part} ({len(entries)})", str(count), model.__name__.replace("_", " ")]
            found.append([*row, interval(ranks), interval(likelihoods)])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--table", type=Path, default=FOLDER)
    options = reports.parse(parser, arguments)
    warnings.filterwarnings("ignore")  # constant predictions, and kernels at the bounds of their parameters
    table = OperatorTable.read(options.table)
    lines = reports.heading("Models of what is good", f"benchmarks/surrogate.py --splits {options.splits}")
    columns = ["operators", "learnt", "model", "rank correlation", "log-likelihood"]
    lines += ["", *reports.table(columns, [row for part in Subset for row in rows_of(table, part, options.splits)])]
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
