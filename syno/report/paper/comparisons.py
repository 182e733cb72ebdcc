"""The tables of Figures 9 and 10 and of `alpha-nas`: layers compared with NAS-PTE, GPT-2's loss, savings compared with αNAS."""

from __future__ import annotations

from typing import NamedTuple

import pandas

from syno.base.files import ORIGINAL
from syno.report.paper.networks import MOST_LOST, accuracies, accurate_enough, geometric_mean, ordered, timed, with_original
from syno.results.paper import (
    ALPHA_NAS,
    COMPILERS,
    COSTS,
    DEVICES,
    LANGUAGE_MODEL,
    LAYERED,
    LAYERS,
    MODELS,
    NAS_PTE,
    NAS_PTE_MODULES,
    TEST_DATA,
)

OURS, NAS_PTE_NAME, ALPHA_NAS_NAME = "Syno", "NAS-PTE", "αNAS"
KEYS = ["device", "compiler", "layer"]
SAVINGS_COLUMNS = (
    "system", "network", "operator", "data", "fewer_flops", "fewer_parameters", "lost_cifar100", "lost_imagenet",
    "least_speedup", "largest_speedup",
)  # fmt: skip
MINUTES = 30.0  # of GPT-2's training in the search


# ---- Figure 9: layers of ResNet-34 ----------------------------------------------------------------------------------


def layers(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return every measured layer.

    Columns: device, compiler, layer, label (its number in the paper), family (NAS-PTE, Syno or original), operator,
    latency_ms, original_ms, speedup, is_best: whether it is the fastest of its family in this layer.
    """
    found = timed(rows, layers=True)
    found = found[(found["model"] == LAYERED) & found["layer"].isin(LAYERS)].reset_index(drop=True)
    found = found.assign(label=found["layer"].map(LAYERS), family=found["operator"].map(_family))
    best = found.groupby([*KEYS, "family"])["latency_ms"].idxmin()
    found = found.assign(is_best=found.index.isin(best)).sort_values("operator")
    found = ordered(found, compiler=COMPILERS, device=DEVICES, layer=LAYERS, family=(ORIGINAL, NAS_PTE_NAME, OURS))
    return found[
        ["device", "compiler", "layer", "label", "family", "operator", "latency_ms", "original_ms", "speedup", "is_best"]
    ]


def best_over_best(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how many times as fast as NAS-PTE's best operators ours are: geometric means over the layers that both have.

    Columns: device, compiler, speedup; speedup_with_original (over the faster of NAS-PTE's best and the convolution itself);
    layers (their number).
    """
    best = table[table["is_best"]].pivot(index=KEYS, columns="family", values="latency_ms")
    best = best.reindex(columns=[ORIGINAL, NAS_PTE_NAME, OURS]).dropna(subset=[NAS_PTE_NAME, OURS]).reset_index()
    best = best.assign(
        ratio=best[NAS_PTE_NAME] / best[OURS],
        guarded=best[[NAS_PTE_NAME, ORIGINAL]].min(axis="columns") / best[OURS],
    )
    means = [
        (device, compiler, geometric_mean(list(group["ratio"])), geometric_mean(list(group["guarded"])), len(group))
        for (device, compiler), group in best.groupby(["device", "compiler"], sort=False)
    ]
    return pandas.DataFrame(means, columns=["device", "compiler", "speedup", "speedup_with_original", "layers"])


def _family(operator: str) -> str:
    return ORIGINAL if operator == ORIGINAL else NAS_PTE_NAME if operator in (*NAS_PTE, *NAS_PTE_MODULES) else OURS


# ---- beside αNAS ----------------------------------------------------------------------------------------------------


def savings(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """Return the savings of αNAS, then for each network the accurate enough operator that leaves it the fewest FLOPs.

    Columns: system, network (its name in print), operator, data (that the FLOPs are of), fewer_flops and fewer_parameters
    (shares of the original network's, at most 1), lost_cifar100 and lost_imagenet (of accuracy; missing where unknown),
    least_speedup and largest_speedup (of all devices and compilers).
    """
    theirs = pandas.DataFrame(
        [(ALPHA_NAS_NAME, network, flops, parameters) for network, (flops, parameters) in ALPHA_NAS.items()],
        columns=["system", "network", "fewer_flops", "fewer_parameters"],
    )
    candidates = accurate_enough(rows, most_lost).merge(_costs(rows), on=["model", "operator"])
    candidates = candidates.sort_values(["fewer_flops", "operator"], ascending=[False, True]).drop_duplicates("model")
    on_imagenet = with_original(accuracies(rows, TEST_DATA))
    on_imagenet = on_imagenet.assign(lost_imagenet=on_imagenet["original_accuracy"] - on_imagenet["accuracy"])
    speedups = (
        timed(rows).groupby(["model", "operator"])["speedup"].agg(least_speedup="min", largest_speedup="max").reset_index()
    )
    keys = ["model", "operator"]
    ours = candidates.merge(on_imagenet[[*keys, "lost_imagenet"]], on=keys, how="left").merge(speedups, on=keys, how="left")
    ours = ordered(ours, model=MODELS).assign(
        system=OURS,
        network=lambda found: found["model"].map(MODELS),
        lost_cifar100=lambda found: found["original_accuracy"] - found["accuracy"],
    )
    return pandas.concat([theirs, ours], ignore_index=True).reindex(columns=list(SAVINGS_COLUMNS))


def _costs(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the shares that operators save, by network, on the first data set in COSTS for which they are known.

    Columns: model, operator, data, fewer_flops, fewer_parameters.
    """
    costs = pandas.DataFrame(
        [(data, model, *cost) for data, models in COSTS.items() for model, cost in models.items()],
        columns=["data", "model", "original_flops", "original_parameters"],
    )
    known = rows[rows["metric"].isin(["flops", "parameters"]) & rows["layer"].isna()]
    known = known.pivot_table(index=["model", "data", "operator"], columns="metric", values="value", aggfunc="last")
    known = known.reindex(columns=["flops", "parameters"]).reset_index()
    both = costs.merge(known, on=["data", "model"]).drop_duplicates(["model", "operator"])
    return both.assign(
        fewer_flops=1 - both["flops"] / both["original_flops"],
        fewer_parameters=1 - both["parameters"] / both["original_parameters"],
    )[["model", "operator", "data", "fewer_flops", "fewer_parameters"]]


# ---- Figure 10: the loss of GPT-2 ------------------------------------------------------------------------------------


class Scores(NamedTuple):
    """Losses after the search's 30 minutes, in nats per token; None if unknown.

    Attributes:
        logged: The loss of the original network, from the log of its training.
        told: The loss of the original network, as the paper prints it.
        operator: The loss of the network with the operator.
    """

    logged: float | None
    told: float | None
    operator: float | None


def scores(rows: pandas.DataFrame) -> Scores:
    """Return the losses in a table of measurements."""
    found = rows[(rows["metric"] == "loss") & (rows["model"] == LANGUAGE_MODEL)]
    is_original, is_told = found["operator"] == ORIGINAL, found["origin"] == "paper"
    return Scores(_first(found[is_original & ~is_told]), _first(found[is_original & is_told]), _first(found[~is_original]))


def _first(found: pandas.DataFrame) -> float | None:
    return None if found.empty else float(found["value"].iloc[0])
