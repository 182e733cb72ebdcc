"""The tables of Figures 5, 6 and 8, which compare networks with operators and the original networks.

All functions take the table of measurements (`syno.results.table`). Its rows may be own measurements, the published artifact's
and the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log

import pandas

from syno.base.files import ORIGINAL
from syno.results.metric import front
from syno.results.paper import (
    BASELINES,
    CASE,
    CASE_STUDY,
    COMPILERS,
    DEVICES,
    INT8,
    MODELS,
    SEARCH_DATA,
    SEARCHED_AS,
    STACKED,
    TEST_DATA,
)

MOST_LOST = 0.01  # of accuracy on the data of the search
CANDIDATES = {  # of the case study, and their names in the paper
    ORIGINAL: "original",
    INT8: "INT8",
    STACKED: "stacked convolution",
    "operator_1": "Operator 1",
}
CASE_COMPILER = "tvm"


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of ratios. ValueError if there are none."""
    if not len(values):
        raise ValueError("the geometric mean of no value")
    return exp(sum(map(log, values)) / len(values))


def ordered(rows: pandas.DataFrame, **names: Iterable[str]) -> pandas.DataFrame:
    """Return the rows sorted by columns, each in the order of the names given for it; other names come last."""
    places = {column: {name: place for place, name in enumerate(known)} for column, known in names.items()}

    def place(column: pandas.Series) -> pandas.Series:
        known = places[str(column.name)]
        return column.map(lambda name: known.get(name, len(known)))

    return rows.sort_values(list(names), key=place, kind="stable", ignore_index=True)


def timed(rows: pandas.DataFrame, *, layers: bool = False) -> pandas.DataFrame:
    """Return latencies of whole networks, or of their layers, with operators and without.

    Columns: model, layer, device, compiler, operator, latency_ms, original_ms (with the same compiler on the same device;
    missing where that was not measured), speedup.
    """
    keys = ["model", "layer", "device", "compiler"]
    found = rows[(rows["metric"] == "latency") & rows["model"].notna() & (rows["layer"].notna() == layers)]
    found = found[[*keys, "operator", "value"]].rename(columns={"value": "latency_ms"}).fillna({"layer": ""})
    originals = found[found["operator"] == ORIGINAL].drop_duplicates(keys).drop(columns="operator")
    both = found.merge(originals.rename(columns={"latency_ms": "original_ms"}), on=keys, how="left")
    return both.assign(speedup=both["original_ms"] / both["latency_ms"])


def accuracies(rows: pandas.DataFrame, data: str) -> pandas.DataFrame:
    """Return accuracies on a data set. Those of the case study are left out, since they are from other trainings.

    Columns: model, operator, accuracy (the mean, where there are several).
    """
    found = rows[(rows["metric"] == "accuracy") & (rows["data"] == data) & (rows["source"] != CASE_STUDY)]
    means = found.groupby(["model", "operator"], sort=False)["value"].mean()
    return means.rename("accuracy").reset_index()


def with_original(scores: pandas.DataFrame) -> pandas.DataFrame:
    """Return the accuracies in networks whose original accuracy is known, which is in the new column original_accuracy."""
    originals = scores[scores["operator"] == ORIGINAL].drop(columns="operator")
    return scores.merge(originals.rename(columns={"accuracy": "original_accuracy"}), on="model")


# ---- Figure 5 -------------------------------------------------------------------------------------------------------


def fastest(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """Return the fastest operator whose accuracy is less than `most_lost` below the original network's.

    Columns: as in `timed`, and accuracy, original_accuracy. A row for each model, device and compiler for which there is such
    an operator; models in the paper's order.
    """
    passing = timed(rows).merge(accurate_enough(rows, most_lost), on=["model", "operator"]).dropna(subset=["speedup"])
    best = passing.sort_values(["latency_ms", "operator"]).drop_duplicates(["model", "device", "compiler"])
    return ordered(best, compiler=COMPILERS, device=DEVICES, model=MODELS)


def accurate_enough(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """Return the operators whose accuracy is less than `most_lost` below the original network's.

    Columns: model, operator, accuracy, original_accuracy.
    """
    scores = accuracies(rows, SEARCH_DATA)
    borrowed = [
        scores[(scores["model"] == source) & (scores["operator"] != ORIGINAL)].assign(model=model)
        for model, source in SEARCHED_AS.items()
        if not ((scores["model"] == model) & (scores["operator"] != ORIGINAL)).any()
    ]
    both = with_original(pandas.concat([scores, *borrowed], ignore_index=True))
    both = both[~both["operator"].isin([ORIGINAL, *BASELINES])]
    return both[both["accuracy"] > both["original_accuracy"] - most_lost]


def means(best: pandas.DataFrame) -> pandas.DataFrame:
    """Return geometric means over the models. Columns: device, compiler, speedup, models (how many)."""
    groups = [
        (device, compiler, geometric_mean(list(group["speedup"])), len(group))
        for (device, compiler), group in best.groupby(["device", "compiler"], sort=False)
    ]
    return pandas.DataFrame(groups, columns=["device", "compiler", "speedup", "models"])


# ---- Figure 6 -------------------------------------------------------------------------------------------------------


def trade_offs(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return every operator, and the original network, whose accuracy on ImageNet and latency are both known.

    Columns: as in `timed`, and accuracy, original_accuracy, lost (of accuracy), on_front: whether the row is on the Pareto
    front of its network, device and compiler.
    """
    scores = with_original(accuracies(rows, TEST_DATA))
    points = timed(rows).merge(scores, on=["model", "operator"]).dropna(subset=["speedup"])
    points = points[~points["operator"].isin(BASELINES)].sort_values("operator")
    points = ordered(points, compiler=COMPILERS, device=DEVICES, model=MODELS)
    points = points.assign(lost=points["original_accuracy"] - points["accuracy"], on_front=False)
    for _, group in points.groupby(["model", "device", "compiler"]):
        ahead = front(list(zip(group["latency_ms"], group["accuracy"], strict=True)))
        points.loc[group.index[ahead], "on_front"] = True
    return points


def largest(points: pandas.DataFrame, compiler: str, most_lost: float) -> pandas.Series | None:
    """Return the row with the largest speedup among operators that lose at most `most_lost`; None if there is none."""
    found = points[(points["compiler"] == compiler) & (points["lost"] <= most_lost) & (points["operator"] != ORIGINAL)]
    return None if found.empty else found.sort_values("speedup").iloc[-1]


# ---- Figure 8 -------------------------------------------------------------------------------------------------------


def case_study(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the original ResNet-18, and ResNet-18 in 8-bit integers, with two convolutions in a row, and with Operator 1.

    Columns: device, candidate, operator, latency_ms, original_ms, speedup, accuracy (on ImageNet, as the paper prints it).
    """
    told = rows[(rows["source"] == CASE_STUDY) & (rows["metric"] == "accuracy")]
    scores = told[["operator", "value"]].rename(columns={"value": "accuracy"})
    times = timed(rows)
    times = times[(times["model"] == CASE) & (times["compiler"] == CASE_COMPILER) & times["operator"].isin(CANDIDATES)]
    both = times.merge(scores, on="operator", how="left").assign(candidate=lambda found: found["operator"].map(CANDIDATES))
    both = ordered(both, device=DEVICES, operator=CANDIDATES)
    return both[["device", "candidate", "operator", "latency_ms", "original_ms", "speedup", "accuracy"]]
