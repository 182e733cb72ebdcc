"""The tables of Figure 9 and of `alpha-nas`: layers compared with NAS-PTE's, savings compared with αNAS's."""

from __future__ import annotations

import pandas

from syno.base.files import ORIGINAL
from syno.paper.figures.mixture import ordered, ready, scored, timed
from syno.paper.figures.networks import MOST_LOST, accurate_enough, geometric_mean
from syno.paper.figures.titles import model_title
from syno.paper.joined import FINAL, PROXY
from syno.paper.numbers import ALPHA_NAS, ALPHA_NAS_TOLD, COMPILERS, COSTS, DEVICES, MODELS
from syno.results.layers import LAYERS
from syno.results.measurement import OK

OURS, NAS_PTE_NAME, BASELINE, ALPHA_NAS_NAME = "Syno", "NAS-PTE", "baseline", "αNAS"
OF_NAS_PTE = "nas_pte_"  # the beginning of the names of its operators
KEYS = ["model", "place", "compiler", "layer"]
LAYER_COLUMNS = (
    "model", "device", "compiler", "batch", "threads", "place", "layer", "label", "family", "operator", "latency_ms",
    "original_ms", "speedup", "is_best", "latency_origin", "experiment", "is_wrong",
)  # fmt: skip
MOST_LOST_FINALLY = 0.02  # of accuracy on the final data set
ON_PROXY, ON_FINAL = f"{MOST_LOST:g} on the proxy data set", f"{MOST_LOST_FINALLY:g} on the final data set"
SAVINGS_COLUMNS = (
    "system", "network", "model", "operator", "within", "data", "fewer_flops", "fewer_parameters", "lost_proxy", "lost_final",
    "least_speedup", "largest_speedup", "cost_origin", "accuracy_origin", "latency_origin", "is_wrong",
)  # fmt: skip


# ---- Figure 9: layers -----------------------------------------------------------------------------------------------


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
    """Return how many times as fast as NAS-PTE's best operators ours are: geometric means over the layers that both have.

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


# ---- beside αNAS ----------------------------------------------------------------------------------------------------


def savings(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """Return the savings of αNAS, then for each network the accurate enough operators that leave it the fewest FLOPs.

    Accurate enough is, first, what loses less than `most_lost` on the proxy data set; second, what loses at most 0.02 on the
    final data set, if that is another operator.

    Columns: system, network (its name in print), model, operator, within (what it may lose), data (that the FLOPs are of),
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
    """Return, of each network, the candidate with the fewest FLOPs (`shares`)."""
    both = candidates.drop(columns="data").merge(costs, on=["model", "operator"])
    return both.sort_values(["fewer_flops", "operator"], ascending=[False, True]).drop_duplicates("model")


def shares(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the shares of FLOPs and parameters that operators save in their networks.

    They are of costs measured here, else of published ones and those of the original networks in `COSTS`, on the first data set
    there for which they are known. Columns: model, operator, data, fewer_flops, fewer_parameters, cost_origin.
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
