"""The tables of Figure 10: loss curves of language models, and GPT-2's scores."""

from __future__ import annotations

from math import exp
from typing import NamedTuple

import numpy
import pandas

from syno.base.files import ORIGINAL
from syno.paper.figures.mixture import ready
from syno.paper.numbers import LANGUAGE_DATA, LANGUAGE_MODEL
from syno.run.measurement import OK

MINUTES = 30.0  # of GPT-2's training in the search
LAST = 0.2  # the share of a training's steps that its final loss is the mean of
SERIES = ["model", "experiment", "operator", "origin"]
CURVE_COLUMNS = ("model", "experiment", "operator", "origin", "seed", "step", "minutes", "loss", "perplexity")
DEFAULTS = {"operator": ORIGINAL, "model": LANGUAGE_MODEL, "data": LANGUAGE_DATA, "origin": "artifact", "experiment": ""}
PLACE = ["device", "compiler", "batch", "threads", "origin", "data", "experiment"]  # of a throughput


class Scores(NamedTuple):
    """Losses after the search's 30 minutes, in nats per token; None if unknown.

    Attributes:
        logged: The loss of the original network, from the published training log.
        told: The loss of the original network, as printed in the paper.
        operator: The loss of the network with the operator.
    """

    logged: float | None
    told: float | None
    operator: float | None


class Perplexity(NamedTuple):
    """A perplexity at the end of a training: its operator, origin, and number of steps."""

    value: float
    operator: str
    origin: str
    steps: int


def scores(rows: pandas.DataFrame) -> Scores:
    """Return the published losses in a table of measurements. Own trainings are not in it, since they have curves."""
    found = rows[(rows["metric"] == "loss") & (rows["model"] == LANGUAGE_MODEL) & (rows["origin"] != "measured")]
    is_original, is_told = found["operator"] == ORIGINAL, found["origin"] == "paper"
    return Scores(_first(found[is_original & ~is_told]), _first(found[is_original & is_told]), _first(found[~is_original]))


def curves(losses: pandas.DataFrame, rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the loss curves of language models: `CURVE_COLUMNS`, by step.

    Args:
        losses: The table of losses. A table without names of networks is the artifact's, of the original GPT-2.
        rows: The table of measurements. Only networks whose score is a loss are language models.
    """
    missing = {name: value for name, value in DEFAULTS.items() if name not in losses}
    found = losses.assign(**missing, seed=losses.get("seed", numpy.nan))
    found = found.assign(experiment=found["experiment"].astype(object).fillna(""))
    scored = rows.loc[rows["metric"].isin(["loss", "perplexity"]), "model"]
    found = found[found["model"].isin({LANGUAGE_MODEL, *scored})]
    numbers = found["loss"].astype(float)
    found = found.assign(perplexity=numpy.exp(numbers.clip(upper=700)))  # beyond that it is no finite number
    return found[list(CURVE_COLUMNS)].sort_values([*SERIES, "seed", "step"], kind="stable", ignore_index=True)


def mean_curve(series: pandas.DataFrame) -> pandas.DataFrame:
    """Return the mean curve over seeds, at the steps that all seeds have."""
    seeds = series["seed"].nunique(dropna=False)
    groups = series.groupby("step")
    means = groups[["minutes", "loss"]].mean()[groups.size() == seeds].reset_index()
    return means.assign(perplexity=numpy.exp(means["loss"].clip(upper=700)))


def perplexities(table: pandas.DataFrame) -> tuple[Perplexity | None, Perplexity | None]:
    """Return GPT-2's perplexity at the end of its longest training, and the lowest one with an operator.

    A perplexity is exp of the mean loss over seeds and the last fifth of the steps. None where there is no curve.
    """
    ours = table[table["model"] == LANGUAGE_MODEL]
    known: dict[str, Perplexity] = {}
    for (_, _, operator, origin), series in ours.groupby(SERIES, sort=False):
        mean = mean_curve(series)
        if mean.empty:
            continue
        steps = int(mean["step"].iloc[-1])
        last = mean[mean["step"] > (1 - LAST) * steps]
        one = Perplexity(exp(min(float(last["loss"].mean()), 700.0)), str(operator), str(origin), steps)
        if operator not in known or _rank(one) > _rank(known[operator]):
            known[str(operator)] = one
    original = known.pop(ORIGINAL, None)
    longest = max((one.steps for one in known.values()), default=0)
    return original, min((one for one in known.values() if one.steps == longest), default=None)


def _rank(perplexity: Perplexity) -> tuple[int, bool]:
    return perplexity.steps, perplexity.origin == "measured"


def training_speedups(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the speedups of training GPT-2 with an operator. Columns: operator, device, origin, speedup."""
    rows = ready(rows)
    is_known = (rows["metric"] == "training_throughput") & (rows["model"] == LANGUAGE_MODEL) & (rows["status"] == OK)
    found = rows[is_known & ~rows["is_baseline"]]
    found = found.astype({"batch": float, "threads": float})
    means = found.groupby(["operator", *PLACE], dropna=False, sort=False)["value"].mean().reset_index()
    originals = means[means["operator"] == ORIGINAL].drop(columns="operator").rename(columns={"value": "original"})
    both = means[means["operator"] != ORIGINAL].merge(originals, on=PLACE)
    return both.assign(speedup=both["value"] / both["original"])[["operator", "device", "origin", "speedup"]]


def _first(table: pandas.DataFrame) -> float | None:
    return None if table.empty else float(table["value"].iloc[0])
