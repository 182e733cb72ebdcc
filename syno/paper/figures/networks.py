"""The tables of Figures 5, 6 and 8, which compare networks with operators and the original networks.

All functions take the table of measurements (`syno.run.table`). Its rows may be own measurements, the published artifact's
and the paper's (`syno.paper.figures.mixture`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isnan, log, nan

import pandas

from syno.base.files import ORIGINAL
from syno.model.networks import INT8
from syno.paper.figures.mixture import TARGET, ordered, percent, ready, scored, timed
from syno.paper.figures.titles import model_title, operator_title
from syno.paper.joined import FINAL, PROXY
from syno.paper.numbers import ALPHA_NAS, ALPHA_NAS_TOLD, CASE_STUDY, COMPILERS, COSTS, DEVICES, MODELS, NAS_PTE, STACKED
from syno.paper.places import LAYERS
from syno.run.measurement import OK
from syno.run.metric import front

MOST_LOST = 0.01  # of accuracy on the data of the search
CASE_OPERATOR = "operator_1"  # of the paper's case study
CANDIDATES = (ORIGINAL, INT8, STACKED)
CASE_COLUMNS = (
    "model", "device", "compiler", "batch", "threads", "place", "candidate", "operator", "latency_ms", "original_ms", "speedup",
    "accuracy", "latency_origin", "accuracy_origin", "experiment", "is_wrong", "published_ms", "published_speedup",
    "difference",
)  # fmt: skip


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of ratios. ValueError if there are none."""
    if not len(values):
        raise ValueError("the geometric mean of no value")
    return exp(sum(map(log, values)) / len(values))


def fastest(rows: pandas.DataFrame, most_lost: float = MOST_LOST, *, synthesized: bool = True) -> pandas.DataFrame:
    """Return the fastest operators (or baselines) whose accuracy is less than `most_lost` below the original network's.

    Columns: as in `timed` and `scored`; the differences from published numbers are missing where the published row is of
    another operator. A row for each network, device and compiler (batch, threads and origin of latencies) for which there is
    such an operator; networks in the paper's order.
    """
    passing = (
        timed(rows)
        .merge(accurate_enough(rows, most_lost, synthesized=synthesized), on=["model", "operator"])
        .dropna(subset=["speedup"])
    )
    best = passing.sort_values(["speedup", "operator"], ascending=[False, True]).drop_duplicates(["model", *TARGET])
    keys = ["model", "device", "compiler"]
    published = best[best["latency_origin"] != "measured"].drop_duplicates(keys).set_index(keys)["operator"].to_dict()
    theirs = pandas.Series([published.get(key) for key in best[keys].itertuples(index=False, name=None)], best.index, object)
    for name in ("difference", "relative_difference"):
        best = best.assign(**{name: best[name].where(best["operator"] == theirs)})
    return ordered(best, compiler=COMPILERS, device=DEVICES, model=MODELS)


def accurate_enough(rows: pandas.DataFrame, most_lost: float = MOST_LOST, *, synthesized: bool = True) -> pandas.DataFrame:
    """Return the operators whose accuracy on the proxy data set is less than `most_lost` below the original network's.

    Args:
        rows: The table of measurements.
        most_lost: The limit of the lost accuracy, exclusive.
        synthesized: Whether to return synthesized operators, or baselines, which have accuracies in their own network only.

    Columns: model, operator, data, accuracy_origin, accuracy, original_accuracy, original_origin.
    """
    both = scored(rows, PROXY, borrow=synthesized)
    both = both[(both["operator"] != ORIGINAL) & (both["is_baseline"] != synthesized)].drop(columns="is_baseline")
    return both[both["accuracy"] > both["original_accuracy"] - most_lost]


def means(best: pandas.DataFrame) -> pandas.DataFrame:
    """Return geometric means of the speedups over the networks.

    Columns: device, place, compiler, latency_origin, speedup, relative (speedup over one compiler's original networks; missing
    if one is not known), reference (that compiler), models (how many), difference and relative_difference (from the published
    means of the same networks with the same operators, the latter over the same reference; in percent).
    """
    keys, published, rows = ["device", "place", "compiler", "latency_origin"], dict[object, tuple[float, float]](), []
    for key, group in best.groupby(keys, sort=False, dropna=False):
        references = list(group["reference"].unique())
        reference = references[0] if len(references) == 1 else None
        both = geometric_mean(list(group["speedup"])), _mean_of_all(list(group["relative"]))
        alike = (key[0], key[2], *sorted(zip(group["model"], group["operator"], strict=True)))
        rows.append((key, reference, len(group), both, alike))
        if key[3] != "measured":
            published.setdefault(alike, both)
            published.setdefault((reference, *alike), both)
    table = [
        (
            *key, *both, reference, count,
            *(percent(both[number], published[of][number]) if key[3] == "measured" and of in published else nan
              for number, of in enumerate((alike, (reference, *alike)))),
        )
        for key, reference, count, both, alike in rows
    ]  # fmt: skip
    columns = [*keys, "speedup", "relative", "reference", "models", "difference", "relative_difference"]
    return pandas.DataFrame(table, columns=columns)


def _mean_of_all(values: Sequence[float]) -> float:
    """Return the geometric mean of all values; NaN if one is missing."""
    return nan if any(map(isnan, values)) else geometric_mean(values)


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


def case_study(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows of the case study where baselines were measured: the original network, the baselines, Operator 1.

    A network without Operator 1 has its fastest operator instead, if possible among the accurate enough ones.
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


# The tables of Figure 9 and of `alpha-nas`: layers compared with NAS-PTE's, savings compared with αNAS's.


OURS, NAS_PTE_NAME, BASELINE, ALPHA_NAS_NAME = "Syno", "NAS-PTE", "baseline", "αNAS"
OF_NAS_PTE = "nas_pte_"  # the beginning of the names of its operators
KEYS = ["model", "place", "compiler", "layer"]
LAYER_COLUMNS = (
    "model", "device", "compiler", "batch", "threads", "place", "layer", "label", "family", "operator", "latency_ms",
    "original_ms", "speedup", "is_best", "latency_origin", "experiment", "is_wrong", "published_ms", "published_speedup",
    "difference", "reference", "relative", "relative_difference",
)  # fmt: skip
MOST_LOST_FINALLY = 0.02  # of accuracy on the final data set
ON_PROXY, ON_FINAL = f"{MOST_LOST:g} on the proxy data set", f"{MOST_LOST_FINALLY:g} on the final data set"
SAVINGS_COLUMNS = (
    "system", "network", "model", "operator", "within", "data", "fewer_flops", "fewer_parameters", "lost_proxy", "lost_final",
    "least_speedup", "largest_speedup", "cost_origin", "accuracy_origin", "latency_origin", "is_wrong",
)  # fmt: skip


def layers(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return every measured layer of a network.

    Columns: `LAYER_COLUMNS`. The label is the layer's number in the paper, else its own name; the family is NAS-PTE, baseline,
    Syno or original; is_best says whether it is the fastest of its family in this layer.
    """
    found = timed(rows, layers=True).reset_index(drop=True)
    found = found.assign(label=found["layer"].map(LAYERS).fillna(found["layer"]), family=OURS)
    found.loc[found["is_baseline"], "family"] = BASELINE
    found.loc[found["operator"].str.startswith(OF_NAS_PTE), "family"] = NAS_PTE_NAME
    found.loc[found["operator"] == ORIGINAL, "family"] = ORIGINAL
    best = found.groupby([*KEYS, "family"], dropna=False)["latency_ms"].idxmin()
    found = found.assign(is_best=found.index.isin(best)).sort_values(["layer", "operator"])
    order = {"model": MODELS, "compiler": COMPILERS, "device": DEVICES, "layer": LAYERS}
    return ordered(found, **order, family=(ORIGINAL, NAS_PTE_NAME, BASELINE, OURS))[list(LAYER_COLUMNS)]


def best_over_best(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the speedups of our best operators over NAS-PTE's: geometric means over the layers that both have.

    Columns: model, device, place, compiler, latency_origin, speedup; speedup_with_original (over the faster of NAS-PTE's best
    and the convolution itself); layers (their number).
    """
    places = {row["place"]: row for row in table.drop_duplicates("place").to_dict("records")}
    best = table[table["is_best"]].pivot(index=KEYS, columns="family", values="latency_ms")
    best = best.reindex(columns=[ORIGINAL, NAS_PTE_NAME, OURS]).dropna(subset=[NAS_PTE_NAME, OURS]).reset_index()
    best = best.assign(
        ratio=best[NAS_PTE_NAME] / best[OURS],
        guarded=best[[NAS_PTE_NAME, ORIGINAL]].min(axis="columns") / best[OURS],
    )
    means = [
        (model, places[place]["device"], place, compiler, places[place]["latency_origin"],
         geometric_mean(list(group["ratio"])), geometric_mean(list(group["guarded"])), len(group))
        for (model, place, compiler), group in best.groupby(["model", "place", "compiler"], sort=False)
    ]  # fmt: skip
    columns = ["model", "device", "place", "compiler", "latency_origin", "speedup", "speedup_with_original", "layers"]
    return ordered(pandas.DataFrame(means, columns=columns), model=MODELS, compiler=COMPILERS, device=DEVICES)


def savings(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """Return the savings of αNAS, then for each network the accurate enough operators that leave it the fewest FLOPs.

    An operator is accurate enough if it loses less than `most_lost` on the proxy data set; a second row has the best operator
    that loses at most 0.02 on the final data set, if it is another operator.

    Columns: system, network (its name in print), model, operator, within (the allowed loss), data (the data set of the FLOPs),
    fewer_flops and fewer_parameters (shares of the original network's, at most 1), lost_proxy and lost_final (of accuracy;
    missing where unknown), least_speedup and largest_speedup (of all devices and compilers), the origins of all three, and
    is_wrong as in `timed`.
    """
    theirs = pandas.DataFrame(
        [(ALPHA_NAS_NAME, network, *savings) for network, savings in {**ALPHA_NAS, **ALPHA_NAS_TOLD}.items()],
        columns=["system", "network", "fewer_flops", "fewer_parameters"],
    )
    on_final = scored(rows, FINAL)
    on_final = on_final[(on_final["operator"] != ORIGINAL) & ~on_final["is_baseline"]].drop(columns="is_baseline")
    finally_enough = on_final[on_final["original_accuracy"] - on_final["accuracy"] <= MOST_LOST_FINALLY]
    costs, keys = shares(rows), ["model", "operator"]
    chosen = [
        fewest(candidates, costs).assign(within=within)
        for candidates, within in ((accurate_enough(rows, most_lost), ON_PROXY), (finally_enough, ON_FINAL))
    ]
    ours = pandas.concat(chosen, ignore_index=True).drop_duplicates(keys)[[*keys, *COST_COLUMNS, "within", "accuracy_origin"]]
    for column, scores in (("lost_proxy", scored(rows, PROXY, borrow=True)), ("lost_final", on_final)):
        lost = scores.assign(**{column: scores["original_accuracy"] - scores["accuracy"]})
        ours = ours.merge(lost[[*keys, column]], on=keys, how="left")
    speeds = (
        timed(rows)
        .groupby(keys)
        .agg(
            least_speedup=("speedup", "min"),
            largest_speedup=("speedup", "max"),
            latency_origin=("latency_origin", _joined),
            is_wrong=("is_wrong", "any"),
        )
    )
    ours = ours.merge(speeds.reset_index(), on=keys, how="left").assign(system=OURS, network=ours["model"].map(model_title))
    both = pandas.concat([theirs, ordered(ours, model=MODELS)], ignore_index=True)
    return both.reindex(columns=list(SAVINGS_COLUMNS))


COST_COLUMNS = ["data", "fewer_flops", "fewer_parameters", "cost_origin"]


def fewest(candidates: pandas.DataFrame, costs: pandas.DataFrame) -> pandas.DataFrame:
    """Return for each network the candidate with the fewest FLOPs by the table `costs` (of `shares`)."""
    both = candidates.drop(columns="data").merge(costs, on=["model", "operator"])
    return both.sort_values(["fewer_flops", "operator"], ascending=[False, True]).drop_duplicates("model")


def shares(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the shares of FLOPs and parameters that operators save in their networks.

    Costs are the measured ones, else the published ones with the original networks' costs in `COSTS`, on the first data set for
    which they are known. Columns: model, operator, data, fewer_flops, fewer_parameters, cost_origin.
    """
    counted = pandas.DataFrame(
        [(data, model, *cost) for data, models in COSTS.items() for model, cost in models.items()],
        columns=["data", "model", "original_flops", "original_parameters"],
    )
    rows = ready(rows)
    known = rows[rows["metric"].isin(["flops", "parameters"]) & rows["layer"].isna() & (rows["status"] == OK)]
    known = known.rename(columns={"origin": "cost_origin"}).fillna({"data": "", "experiment": ""})
    keys = ["cost_origin", "experiment", "model", "data", "operator"]
    known = known.pivot_table(index=keys, columns="metric", values="value", aggfunc="last")
    known = known.reindex(columns=["flops", "parameters"]).reset_index()
    own = known[known["cost_origin"] == "measured"]
    originals = own[own["operator"] == ORIGINAL].drop(columns="operator")
    originals = originals.rename(columns={"flops": "original_flops", "parameters": "original_parameters"})
    measured = own.merge(originals, on=["cost_origin", "experiment", "model", "data"])
    published = counted.merge(known[known["cost_origin"] != "measured"], on=["data", "model"])
    both = pandas.concat([measured, published], ignore_index=True)
    both = both[both["operator"] != ORIGINAL].drop_duplicates(["model", "operator"])
    return both.assign(
        fewer_flops=1 - both["flops"] / both["original_flops"],
        fewer_parameters=1 - both["parameters"] / both["original_parameters"],
    )[["model", "operator", *COST_COLUMNS]]


def _joined(origins: pandas.Series) -> str:
    return ", ".join(sorted(set(origins)))
