"""Beside αNAS: how many FLOPs and parameters less networks have, and how much faster they are for it."""

from __future__ import annotations

import pandas

from syno.artifact.paper import ALPHA_NAS, COSTS
from syno.artifact.places import MODELS
from syno.report.paper.end_to_end import MOST_LOST, accurate_enough
from syno.report.paper.speedups import accuracies, ordered, timed, with_original

OURS, THEIRS = "Syno", "αNAS"
COLUMNS = (
    "system", "network", "operator", "data", "fewer_flops", "fewer_parameters", "lost_cifar100", "lost_imagenet",
    "least_speedup", "largest_speedup",
)  # fmt: skip


def savings(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """What αNAS tells; then of each network the operator that leaves it the fewest FLOPs, of those that are accurate enough.

    Columns: system, network (its name in print), operator, data (that the FLOPs are of), fewer_flops and fewer_parameters
    (shares of the network as it is, at most 1), lost_cifar100 and lost_imagenet (of accuracy; missing where unknown),
    least_speedup and largest_speedup (of all devices and compilers).
    """
    theirs = pandas.DataFrame(
        [(THEIRS, network, flops, parameters) for network, (flops, parameters) in ALPHA_NAS.items()],
        columns=["system", "network", "fewer_flops", "fewer_parameters"],
    )
    candidates = accurate_enough(rows, most_lost).merge(_costs(rows), on=["model", "operator"])
    candidates = candidates.sort_values(["fewer_flops", "operator"], ascending=[False, True]).drop_duplicates("model")
    on_imagenet = with_original(accuracies(rows, "imagenet"))
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
    return pandas.concat([theirs, ours], ignore_index=True).reindex(columns=list(COLUMNS))


def _costs(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Shares saved by operators, by network: of the first data set in COSTS for which they are known.

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
