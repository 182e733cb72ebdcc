"""Figure 6: accuracy on ImageNet against latency."""

from __future__ import annotations

import pandas

from syno.artifact.places import BASELINES, COMPILERS, DEVICES, MODELS
from syno.base.names import ORIGINAL
from syno.report.paper.speedups import accuracies, ordered, timed, with_original
from syno.results.pareto import front

DATA = "imagenet"


def trade_offs(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Every operator, and the network as it is, whose accuracy and latency are both known.

    Columns: as in `timed`, and accuracy, original_accuracy, lost (of accuracy), on_front: whether no other of the same network,
    device and compiler is as fast and as accurate, and better in one of the two.
    """
    scores = with_original(accuracies(rows, DATA))
    points = timed(rows).merge(scores, on=["model", "operator"]).dropna(subset=["speedup"])
    points = points[~points["operator"].isin(BASELINES)].sort_values("operator")
    points = ordered(points, compiler=COMPILERS, device=DEVICES, model=MODELS)
    points = points.assign(lost=points["original_accuracy"] - points["accuracy"], on_front=False)
    for _, group in points.groupby(["model", "device", "compiler"]):
        ahead = front(list(zip(group["latency_ms"], group["accuracy"], strict=True)))
        points.loc[group.index[ahead], "on_front"] = True
    return points


def largest(points: pandas.DataFrame, compiler: str, most_lost: float) -> pandas.Series | None:
    """The row with the largest speedup, of operators that lose no more; None if there is none."""
    found = points[(points["compiler"] == compiler) & (points["lost"] <= most_lost) & (points["operator"] != ORIGINAL)]
    return None if found.empty else found.sort_values("speedup").iloc[-1]
