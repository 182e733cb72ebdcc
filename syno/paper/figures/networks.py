"""The tables of Figures 5, 6 and 8, which compare networks with operators and the original networks.

All functions take the table of measurements (`syno.results.table`). Its rows may be own measurements, the published artifact's
and the paper's (`syno.paper.figures.mixture`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import pandas

from syno.base.files import ORIGINAL
from syno.paper.figures.mixture import TARGET, ordered, ready, scored, timed
from syno.paper.figures.titles import operator_title
from syno.paper.joined import FINAL, PROXY
from syno.paper.numbers import CASE_STUDY, COMPILERS, DEVICES, MODELS, NAS_PTE, STACKED
from syno.results.measurement import INT8
from syno.results.metric import front

MOST_LOST = 0.01  # of accuracy on the data of the search
CASE_OPERATOR = "operator_1"  # of the paper's case study
CANDIDATES = (ORIGINAL, INT8, STACKED)
CASE_COLUMNS = (
    "model", "device", "compiler", "batch", "threads", "place", "candidate", "operator", "latency_ms", "original_ms", "speedup",
    "accuracy", "latency_origin", "accuracy_origin", "experiment", "is_wrong",
)  # fmt: skip


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of ratios. ValueError if there are none."""
    if not len(values):
        raise ValueError("the geometric mean of no value")
    return exp(sum(map(log, values)) / len(values))


# ---- Figure 5 -------------------------------------------------------------------------------------------------------


def fastest(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """Return the fastest operator whose accuracy is less than `most_lost` below the original network's.

    Columns: as in `timed` and `scored`. A row for each network, device and compiler (batch, threads and origin of latencies)
    for which there is such an operator; networks in the paper's order.
    """
    passing = timed(rows).merge(accurate_enough(rows, most_lost), on=["model", "operator"]).dropna(subset=["speedup"])
    best = passing.sort_values(["speedup", "operator"], ascending=[False, True]).drop_duplicates(["model", *TARGET])
    return ordered(best, compiler=COMPILERS, device=DEVICES, model=MODELS)


def accurate_enough(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """Return the operators whose accuracy on the proxy data set is less than `most_lost` below the original network's.

    Columns: model, operator, data, accuracy_origin, accuracy, original_accuracy, original_origin.
    """
    both = scored(rows, PROXY, borrow=True)
    both = both[(both["operator"] != ORIGINAL) & ~both["is_baseline"]].drop(columns="is_baseline")
    return both[both["accuracy"] > both["original_accuracy"] - most_lost]


def means(best: pandas.DataFrame) -> pandas.DataFrame:
    """Return geometric means over the networks.

    Columns: device, place, compiler, latency_origin, speedup, models (how many).
    """
    keys = ["device", "place", "compiler", "latency_origin"]
    groups = [
        (*key, geometric_mean(list(group["speedup"])), len(group))
        for key, group in best.groupby(keys, sort=False, dropna=False)
    ]
    return pandas.DataFrame(groups, columns=[*keys, "speedup", "models"])


# ---- Figure 6 -------------------------------------------------------------------------------------------------------


def trade_offs(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return every network whose accuracy on the final data set and latency are both known, with operators and without.

    Columns: as in `timed` and `scored`, and lost (of accuracy), on_front: whether the row is on the Pareto front of its
    network, device and compiler. Networks without any operator there are left out, and so are the accuracies of baselines in
    the paper's case study; own ones are not.
    """
    scores = scored(rows, FINAL).dropna(subset=["original_accuracy"]).drop(columns="is_baseline")
    points = timed(rows).merge(scores, on=["model", "operator"]).dropna(subset=["speedup"]).sort_values("operator")
    points = ordered(points, compiler=COMPILERS, device=DEVICES, model=MODELS)
    alone = (points["operator"] != ORIGINAL).groupby([points[name] for name in ("model", *TARGET)], dropna=False)
    points = points[alone.transform("any")].reset_index(drop=True)
    points = points.assign(lost=points["original_accuracy"] - points["accuracy"], on_front=False)
    for _, group in points.groupby(["model", *TARGET], dropna=False):
        ahead = front(list(zip(group["latency_ms"], group["accuracy"], strict=True)))
        points.loc[group.index[ahead], "on_front"] = True
    return points


def largest(points: pandas.DataFrame, compiler: str, most_lost: float) -> pandas.Series | None:
    """Return the row with the largest speedup among operators that lose at most `most_lost`; None if there is none."""
    found = points[(points["compiler"] == compiler) & (points["lost"] <= most_lost)]
    found = found[(found["operator"] != ORIGINAL) & ~found["is_baseline"]]
    return None if found.empty else found.sort_values("speedup").iloc[-1]


# ---- Figure 8 -------------------------------------------------------------------------------------------------------


def case_study(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return, where baselines were measured: the original network, the baselines, and Operator 1.

    A network without Operator 1 has the fastest of its operators in its place, of those that are accurate enough if any is.
    Columns: `CASE_COLUMNS`; the accuracy is on the final data set, as the paper's case study prints it where it was not
    measured here.
    """
    times, chosen = timed(rows), []
    enough = accurate_enough(rows)
    passing = set(zip(enough["model"], enough["operator"], strict=True))
    times = times.assign(passes=[key in passing for key in zip(times["model"], times["operator"], strict=True)])
    for _, group in times.groupby(["model", *TARGET], sort=False, dropna=False):
        names, ours = set(group["operator"]), group[(group["operator"] != ORIGINAL) & ~group["is_baseline"]]
        if ORIGINAL not in names or not group["is_baseline"].any():
            continue
        best = [CASE_OPERATOR]
        if CASE_OPERATOR not in names:
            best = list(ours.sort_values(["passes", "speedup"], ascending=False)["operator"][:1])
        chosen.append(group[(group["operator"] == ORIGINAL) | group["is_baseline"] | group["operator"].isin(best)])
    if not chosen:
        return pandas.DataFrame(columns=list(CASE_COLUMNS))
    both = pandas.concat(chosen, ignore_index=True).merge(_case_scores(rows), on=["model", "operator"], how="left")
    both = both.assign(candidate=both["operator"].map(operator_title), last=~both["is_baseline"])
    both.loc[both["operator"] == ORIGINAL, "last"] = False
    both = both.sort_values("last", kind="stable")
    order = {"model": MODELS, "compiler": COMPILERS, "device": DEVICES, "operator": (*CANDIDATES, *NAS_PTE)}
    return ordered(both, **order)[list(CASE_COLUMNS)]


def _case_scores(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return accuracies for the case study: measured here, else as the case study prints them, else any other.

    Columns: model, operator, accuracy, accuracy_origin.
    """
    columns = ["model", "operator", "accuracy", "accuracy_origin"]
    known = scored(rows, FINAL)[columns]
    is_measured = known["accuracy_origin"] == "measured"
    rows = ready(rows)
    told = rows[(rows["source"] == CASE_STUDY) & (rows["metric"] == "accuracy")]
    told = told.rename(columns={"value": "accuracy", "origin": "accuracy_origin"})[columns]
    every = pandas.concat([known[is_measured], told, known[~is_measured]], ignore_index=True)
    return every.drop_duplicates(["model", "operator"])
