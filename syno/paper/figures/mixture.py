"""The rows of the paper's figures: each measurement beside the original network's under the same conditions.

A latency is compared with the original network's of the same origin, device, compiler, batch and threads; an accuracy with the
original network's of the same data set, if possible of the same origin. Devices and compilers have the names of the paper's
that they stand for (`tune: stands_for`), so that own measurements are compared with published ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas

from syno.base.files import ORIGINAL
from syno.measure.tuning_record import SUSPICIOUS
from syno.model.networks import INT8
from syno.paper.figures.titles import compilers_of
from syno.paper.joined import FINAL, PROXY, ROLES, STANDS_FOR
from syno.paper.numbers import BASELINES, CASE_STUDY, DEVICES, OF_THE_PAPER, SEARCHED_AS, TVM, WRONG_GUARD
from syno.run.measurement import OK
from syno.run.rivals import KNOWN

PREFERRED = {  # origins of the original network's accuracy, by the origin of the operator's, the best first
    "measured": ("measured", "artifact", "paper"),
    "artifact": ("artifact", "paper", "measured"),
    "paper": ("paper", "artifact", "measured"),
}
TARGET = ["device", "compiler", "batch", "threads", "latency_origin"]
BEST_ROLE = {FINAL: 0, PROXY: 2}  # latencies are of the networks for the final data set where there are any


def ready(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows that figures may show, with the columns `experiment`, `data_role`, `machine` and `is_baseline`.

    Devices and compilers get the names that they stand for; `machine` is the name of the device that was measured. Rivals are
    baselines, too: nothing in them was synthesized.

    The original network compiled in 8-bit integers becomes the operator "int8" of the compiler without "-int8". Rows of records
    that their experiment no longer uses are dropped; those of failed measurements are kept.
    """
    if "is_baseline" in rows:
        return rows
    unused = rows["key"].notna() & rows["role"].isna() & (rows["origin"] == "measured")
    rows = rows[~unused].copy()
    if "experiment" not in rows:
        rows["experiment"] = ""
    if "data_role" not in rows:
        rows["data_role"] = rows["data"].map(ROLES)
    rows["machine"] = rows["device"]
    for column in STANDS_FOR:
        if column in rows:
            named = column.partition("_")[0]
            rows[named] = rows[column].where(rows[column].notna(), rows[named])
    ending = f"-{INT8}"
    is_int8 = rows["compiler"].fillna("").str.endswith(ending) & (rows["operator"] == ORIGINAL)
    if is_int8.any():
        quantized = rows[is_int8].assign(operator=INT8, compiler=rows["compiler"].str.removesuffix(ending))
        others = rows.loc[~is_int8, "compiler"]  # an operator in integers is compared with the original in integers
        rows = pandas.concat([rows[~is_int8 | rows["compiler"].isin(others)], quantized], ignore_index=True)
    found = set(rows.loc[rows["role"] == "found", "operator"])
    own = set(rows.loc[rows["role"].isin(KNOWN), "operator"]) - found - set(OF_THE_PAPER)
    return rows.assign(is_baseline=rows["operator"].isin({*BASELINES, *own}))


def ordered(rows: pandas.DataFrame, **names: Iterable[str]) -> pandas.DataFrame:
    """Return the rows sorted by columns, each in the order of names in `names`; other names come last."""
    places = {column: {name: place for place, name in enumerate(known)} for column, known in names.items()}

    def place(column: pandas.Series) -> pandas.Series:
        known = places[str(column.name)]
        return column.map(lambda name: known.get(name, len(known)))

    return rows.sort_values(list(names), key=place, kind="stable", ignore_index=True)


def timed(rows: pandas.DataFrame, *, layers: bool = False) -> pandas.DataFrame:
    """Return latencies of whole networks, or of their layers, with operators and without.

    Columns: model, layer, device, compiler, batch, threads, latency_origin, experiment, operator, is_baseline, latency_ms,
    original_ms (missing where that was not measured), speedup, is_wrong (whether the code computes something else, or the
    latency cannot be right), published_ms and published_speedup (of the same there, beside what was measured here), difference
    (of the two speedups, in percent of the published one), place (the device in print, and what else tells measurements there
    apart); and those of `_over_one_compiler`.
    """
    found = _latencies(ready(rows), layers)
    group = ["model", "layer", *TARGET]
    originals = found[found["operator"] == ORIGINAL].rename(columns={"latency_ms": "original_ms"})
    alike = [*group, "data", "data_role"]
    for column, keys in (("own", [*alike, "experiment"]), ("any", alike)):
        firsts = originals.drop_duplicates(keys)[[*keys, "original_ms"]].rename(columns={"original_ms": column})
        found = found.merge(firsts, on=keys, how="left")
    found = found.assign(original_ms=found["own"].fillna(found["any"])).drop(columns=["own", "any"])
    found = found.assign(
        speedup=found["original_ms"] / found["latency_ms"], rank=found["data_role"].map(BEST_ROLE).astype(float).fillna(1)
    )
    useful = found["rank"] + 10.0 * (found["speedup"].isna() | (found["operator"] == ORIGINAL))
    best = useful.groupby([found[name] for name in group], dropna=False).transform("min") % 10
    found = found[found["rank"] == best]
    found = found.iloc[found["speedup"].isna().argsort(kind="stable")].drop_duplicates([*group, "operator"]).sort_index()
    return _over_one_compiler(_with_places(_beside_published(found.drop(columns=["rank", "data", "data_role"]))))


def percent(own: Any, published: Any) -> Any:
    """Return the difference of own numbers from published numbers, in percent of the published numbers."""
    return 100 * (own / published - 1)


def _beside_published(table: pandas.DataFrame) -> pandas.DataFrame:
    """Add the published numbers beside those that were measured here at batch 1, as the published ones were."""
    keys, names = ["model", "layer", "device", "compiler", "operator"], ["published_ms", "published_speedup"]
    published = table[table["latency_origin"] != "measured"].drop_duplicates(keys)
    published = published.rename(columns=dict(zip(["latency_ms", "speedup"], names, strict=True)))[[*keys, *names]]
    table = table.merge(published, on=keys, how="left")
    has_none = (table["latency_origin"] != "measured") | (table["batch"] > 1)
    table = table.assign(**{name: table[name].mask(has_none) for name in names})
    return table.assign(difference=percent(table["speedup"], table["published_speedup"]))


def _latencies(rows: pandas.DataFrame, layers: bool) -> pandas.DataFrame:
    is_latency = (rows["metric"] == "latency") & (rows["status"] == OK) & rows["model"].notna()
    found = rows[is_latency & (rows["layer"].notna() == layers)].rename(
        columns={"value": "latency_ms", "origin": "latency_origin"}
    )
    found = found.assign(is_wrong=found["note"].isin([WRONG_GUARD, SUSPICIOUS]))
    columns = [
        "model", "layer", *TARGET, "experiment", "data", "data_role", "operator", "is_baseline", "latency_ms", "is_wrong",
    ]  # fmt: skip
    return found[columns].fillna({"layer": ""}).astype({"batch": float, "threads": float, "latency_ms": float})


def _with_places(table: pandas.DataFrame) -> pandas.DataFrame:
    """Add the column `place`: the printed name of the device and conditions of each latency."""
    several = {
        column: table.groupby("device", dropna=False)[column].transform(lambda values: values.nunique()) > 1
        for column in ("threads", "latency_origin")
    }

    def place(row: Any) -> str:
        text = DEVICES.get(row.device, "unknown device" if pandas.isna(row.device) else str(row.device))
        parts = [f"batch {row.batch:.0f}"] if row.batch > 1 else []
        parts += [f"{row.threads:.0f} threads"] if several["threads"][row.Index] and row.threads > 0 else []
        parts += [str(row.latency_origin)] if several["latency_origin"][row.Index] else []
        return ", ".join([text, *parts])

    return table.assign(place=[place(row) for row in table.itertuples()])


def same_place(table: pandas.DataFrame) -> list[str]:
    """Return each row's place without the latencies' origin, so that own and published latencies have equal places."""
    columns = (table["place"], table["latency_origin"])
    return [place.removesuffix(f", {origin}") for place, origin in zip(*columns, strict=True)]


def _over_one_compiler(table: pandas.DataFrame) -> pandas.DataFrame:
    """Add the speedups over one compiler's original network, as the paper draws them.

    Columns: reference (the compiler of the original network that is the reference; missing if there is none), relative (the
    speedup over this reference), relative_difference (from the published speedup over the same reference, in percent).
    Published and own latencies are each compared with the reference of their own origin.
    """
    table = table.assign(panel=same_place(table))
    originals, chosen = table[table["operator"] == ORIGINAL], {}
    has_published = set(table.loc[table["latency_origin"] != "measured", "panel"])
    for (panel, origin), rows in table.groupby(["panel", "latency_origin"]):
        here = originals[(originals["panel"] == panel) & (originals["latency_origin"] == origin)]
        covers = {compiler: set(those["model"]) for compiler, those in here.groupby("compiler")}
        every = compilers_of(here["compiler"])
        if origin == "measured":
            whole = [one for one in every if covers[one] == set(rows["model"])]
            every = [one for one in whole if one == TVM] if panel in has_published else whole
        chosen[panel, origin] = next(iter(every), None)
    named = [chosen[key] for key in zip(table["panel"], table["latency_origin"], strict=True)]
    own = [None if unknown else compiler for compiler, unknown in zip(table["compiler"], table["speedup"].isna(), strict=True)]
    reference = [one or compiler for one, compiler in zip(named, own, strict=True)]
    table = table.assign(reference=pandas.Series(reference, table.index, object))
    keys = ["model", "layer", "panel", "latency_origin", "reference"]
    references = originals.assign(reference=originals["compiler"].astype(object)).drop_duplicates(keys)
    table = table.merge(references.rename(columns={"latency_ms": "reference_ms"})[[*keys, "reference_ms"]], on=keys, how="left")
    relative = table["reference_ms"] / table["latency_ms"]
    table = table.assign(relative=relative.mask(table["reference"] == table["compiler"], table["speedup"]))
    keys = ["model", "layer", "panel", "compiler", "operator", "reference"]
    published = table[table["latency_origin"] != "measured"].drop_duplicates(keys)[[*keys, "relative"]]
    table = table.merge(published.rename(columns={"relative": "theirs"}), on=keys, how="left")
    difference = percent(table["relative"], table["theirs"]).where(table["latency_origin"] == "measured")
    return table.assign(relative_difference=difference).drop(columns=["panel", "reference_ms", "theirs"])


def accuracies(rows: pandas.DataFrame, role: str) -> pandas.DataFrame:
    """Return accuracies on the proxy data set or the final one: a row for each network, operator, data set and origin.

    A network's only data set counts as both if no row says which of the two it is. The accuracies of the paper's case study are
    left out, since they are from other trainings.

    Columns: model, operator, data, accuracy_origin, accuracy (the mean, where there are several), is_baseline.
    """
    rows = ready(rows)
    is_known = (rows["metric"] == "accuracy") & (rows["status"] == OK) & (rows["source"] != CASE_STUDY)
    found = rows[is_known & rows["model"].notna()].rename(columns={"origin": "accuracy_origin", "value": "accuracy"})
    without = ~found["model"].isin(found.loc[found["data_role"].notna(), "model"])
    found = found[(found["data_role"] == role) | without]
    keys = ["model", "operator", "data", "accuracy_origin", "is_baseline"]
    return found.groupby(keys, sort=False, dropna=False)["accuracy"].mean().reset_index()


def scored(rows: pandas.DataFrame, role: str, *, borrow: bool = False) -> pandas.DataFrame:
    """Return one accuracy of each network and operator, preferably measured here, with the original network's accuracy.

    Args:
        rows: The table of measurements.
        role: "proxy" or "final".
        borrow: Whether a network that was not searched gets the accuracies of the network whose operators it uses.

    Columns: those of `accuracies`, and original_accuracy and original_origin, which are missing if unknown.
    """
    scores = accuracies(rows, role)
    if borrow:
        scores = pandas.concat([scores, *_borrowed(scores)], ignore_index=True)
    originals = scores[scores["operator"] == ORIGINAL][["model", "data", "accuracy", "accuracy_origin"]]
    originals = originals.rename(columns={"accuracy": "original_accuracy", "accuracy_origin": "original_origin"})
    both = scores.merge(originals, on=["model", "data"], how="left").reset_index(drop=True)
    first = both["accuracy_origin"].map(PREFERRED["measured"].index).astype(int)
    second = [
        PREFERRED[ours].index(theirs) if isinstance(theirs, str) else len(PREFERRED)
        for ours, theirs in zip(both["accuracy_origin"], both["original_origin"], strict=True)
    ]
    both = both.assign(unknown=both["original_accuracy"].isna(), first=first, second=second)
    both = both.sort_values(["unknown", "first", "second"], kind="stable").drop_duplicates(["model", "operator"])
    return both.sort_index().drop(columns=["unknown", "first", "second"]).reset_index(drop=True)


def _borrowed(scores: pandas.DataFrame) -> Iterable[pandas.DataFrame]:
    """Yield accuracies of operators for networks that have none of the same origin, from the networks searched for them."""
    operators = scores[scores["operator"] != ORIGINAL]
    for model in dict.fromkeys(scores["model"]):
        name, at, width = str(model).partition("@")
        if name in SEARCHED_AS:
            theirs = operators[operators["model"] == f"{SEARCHED_AS[name]}{at}{width}"]
            known = operators.loc[operators["model"] == model, "accuracy_origin"]
            yield theirs[~theirs["accuracy_origin"].isin(known)].assign(model=model)
