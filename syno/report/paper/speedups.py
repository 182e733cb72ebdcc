"""How much faster networks and layers are than as they are: what Figures 5, 6, 8 and 9 have in common.

Everything here takes the table of measurements (`syno.results.measurement_table`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log

import pandas

from syno.artifact.paper import CASE_STUDY
from syno.base.names import ORIGINAL


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios. ValueError if there are none."""
    if not len(values):
        raise ValueError("the geometric mean of no value")
    return exp(sum(map(log, values)) / len(values))


def ordered(rows: pandas.DataFrame, **names: Iterable[str]) -> pandas.DataFrame:
    """The rows by the given columns, whose names are in the given orders; names that are not given come last."""
    places = {column: {name: place for place, name in enumerate(known)} for column, known in names.items()}

    def place(column: pandas.Series) -> pandas.Series:
        known = places[str(column.name)]
        return column.map(lambda name: known.get(name, len(known)))

    return rows.sort_values(list(names), key=place, kind="stable", ignore_index=True)


def timed(rows: pandas.DataFrame, *, layers: bool = False) -> pandas.DataFrame:
    """Latencies of whole networks, or of layers of them, as they are and with operators.

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
    """Accuracies on a data set, but for those of the case study, which are of other trainings. Columns: model, operator,
    accuracy: the mean, where there are several.
    """
    found = rows[(rows["metric"] == "accuracy") & (rows["data"] == data) & (rows["source"] != CASE_STUDY)]
    means = found.groupby(["model", "operator"], sort=False)["value"].mean()
    return means.rename("accuracy").reset_index()


def with_original(scores: pandas.DataFrame) -> pandas.DataFrame:
    """Accuracies of networks whose accuracy as they are is known, too. New column: original_accuracy."""
    originals = scores[scores["operator"] == ORIGINAL].drop(columns="operator")
    return scores.merge(originals.rename(columns={"accuracy": "original_accuracy"}), on="model")
