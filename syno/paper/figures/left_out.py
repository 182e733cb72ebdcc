"""Networks, operators and layers in the table of measurements that the paper's figures leave out, with the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas

from syno.base.files import ORIGINAL
from syno.model.networks import INT8
from syno.paper.figures.mixture import ready, scored, timed
from syno.paper.figures.networks import MOST_LOST, NAS_PTE_NAME, OURS, accurate_enough, case_study, layers, trade_offs
from syno.paper.figures.titles import compiler_title, model_title, operator_title
from syno.paper.joined import FINAL, PROXY
from syno.paper.numbers import LANGUAGE_MODEL, STACKED
from syno.run.measurement import OK

BASELINES = "INT8, of the stacked convolution or of another baseline"
REASON = 120  # letters of the reason of a failure
NAMES = {PROXY: "the proxy data set", FINAL: "the final data set"}


class LeftOut(NamedTuple):
    """A network, an operator or a layer that a figure does not show, and the reason."""

    subject: str
    reason: str


def lines(items: Iterable[LeftOut], shown: int | None = None) -> list[str]:
    """Return a line for each reason, with the names of the items it applies to: all, or the first `shown`."""
    by_reason: dict[str, list[str]] = {}
    for one in items:
        by_reason.setdefault(one.reason, []).append(one.subject)
    texts = []
    for reason, every in by_reason.items():
        subjects = list(dict.fromkeys(every))
        more = [] if shown is None or len(subjects) <= shown + 1 else [f"{len(subjects) - shown} more"]
        texts.append(f"{'; '.join([*subjects[: shown if more else None], *more])} ({reason})")
    return texts


def of_end_to_end(rows: pandas.DataFrame) -> Iterator[LeftOut]:
    """Yield the items that Figure 5 leaves out: networks without a bar, and timed operators without an accuracy."""
    yield from _failed(rows, layers=False)
    times, passing = timed(rows), accurate_enough(rows)
    scores = scored(rows, PROXY, borrow=True)
    yield from _unscored(times, scores, PROXY)
    untimed = times[times["speedup"].isna()]
    yield from (LeftOut(_where(row), "no latency of the original network there") for row in _distinct(untimed))
    found = times.dropna(subset=["speedup"]).merge(passing, on=["model", "operator"])
    comparable = times.dropna(subset=["speedup"]).merge(scores, on=["model", "operator"])
    comparable = comparable[comparable["operator"] != ORIGINAL].dropna(subset=["original_accuracy"])
    drawn = {_where(row) for row in _distinct(found)}
    reason = f"no operator loses less than {MOST_LOST:g} on {NAMES[PROXY]}"
    yield from (LeftOut(_where(row), reason) for row in _distinct(comparable) if _where(row) not in drawn)
    yield from _without_latency(scores, times)


def of_trade_offs(rows: pandas.DataFrame) -> Iterator[LeftOut]:
    """Yield the items that Figure 6 leaves out: operators with an unknown accuracy or latency."""
    yield from _failed(rows, layers=False)
    times, scores = timed(rows), scored(rows, FINAL)
    yield from _unscored(times, scores, FINAL)
    untimed = times[times["speedup"].isna()]
    yield from (LeftOut(_where(row), "no latency of the original network there") for row in _distinct(untimed))
    drawn = {_where(row) for row in _distinct(trade_offs(rows))}
    others = [row for row in _distinct(times.dropna(subset=["speedup"])) if _where(row) not in drawn]
    yield from (LeftOut(_where(row), "no operator with an accuracy and a latency there") for row in others)
    yield from _without_latency(scores, times)


def of_case_study(rows: pandas.DataFrame) -> Iterator[LeftOut]:
    """Yield the items that Figure 8 leaves out: devices without a baseline for a network that has one on others."""
    found, times = case_study(rows), timed(rows)
    models = set(found["model"]) or set(times.loc[times["is_baseline"], "model"])
    drawn = {_where(row) for row in _distinct(found)}
    for row in _distinct(times[times["model"].isin(models)]):
        if _where(row) not in drawn:
            others = row["speedup"] != "nan"
            yield LeftOut(_where(row), f"no latency of {BASELINES if others else 'the original network there'}")
    for row in _distinct(found):
        group = found[[_where(other) == _where(row) for other in found.to_dict("records")]]
        missing = [name for name in (INT8, STACKED) if name not in set(group["operator"])]
        yield from (LeftOut(_where(row), f"no latency of {operator_title(name)}") for name in missing)


def of_layers(rows: pandas.DataFrame) -> Iterator[LeftOut]:
    """Yield the items that Figure 9 leaves out: failed layers, layers without original, devices without NAS-PTE or Syno."""
    yield from _failed(rows, layers=True)
    table = layers(rows)
    for row in _distinct(table):
        where = _where(row)
        group = table[[_where(other) == where for other in table.to_dict("records")]]
        for family in (NAS_PTE_NAME, OURS):
            if family not in set(group["family"]):
                yield LeftOut(where, f"no layer of {family}")
        alone = sorted(set(group.loc[group["speedup"].isna(), "label"]))
        yield from (LeftOut(f"{label} of {where}", "no latency of the convolution there") for label in alone)


def of_language(rows: pandas.DataFrame, curves: pandas.DataFrame) -> Iterator[LeftOut]:
    """Yield the items that Figure 10 leaves out: trainings without a loss curve, and failed trainings."""
    rows = ready(rows)
    trained = rows[rows["metric"].isin(["loss"]) & rows["model"].notna() & (rows["origin"] != "paper")]
    known = set(zip(curves["model"], curves["operator"], curves["origin"], strict=True)) if len(curves) else set()
    for row in trained.drop_duplicates(["model", "operator", "origin"]).to_dict("records"):
        subject = f"{operator_title(row['operator'])} in {model_title(row['model'])} ({row['origin']})"
        if row["status"] != OK:
            yield LeftOut(subject, f"failed: {row['reason']}")
        elif (row["model"], row["operator"], row["origin"]) not in known:
            yield LeftOut(subject, "no curve of its loss, only the score")


def of_savings(rows: pandas.DataFrame, table: pandas.DataFrame) -> Iterator[LeftOut]:
    """Yield the items that the figure `alpha-nas` leaves out: networks whose accurate operators have unknown costs."""
    drawn = set(table["model"].dropna())
    for model in dict.fromkeys(accurate_enough(rows)["model"]):
        if model not in drawn:
            yield LeftOut(model_title(model), "FLOPs of its operators, or its own, are unknown")


def _failed(rows: pandas.DataFrame, *, layers: bool) -> Iterator[LeftOut]:
    """Yield failed latencies and accuracies, and latencies of networks that are only partly tuned."""
    rows = ready(rows)
    is_failed = (rows["status"] != OK) & rows["metric"].isin(["latency", "accuracy"]) & rows["model"].notna()
    for row in rows[is_failed & (rows["layer"].notna() == layers)].to_dict("records"):
        layer = f", layer {row['layer']}" if layers else ""
        compiler = f", {compiler_title(row['compiler'])}" if isinstance(row["compiler"], str) else ""
        subject = f"{operator_title(row['operator'])} in {model_title(row['model'])}{layer}{compiler}"
        yield LeftOut(subject, ": ".join(filter(None, [str(row["status"]), str(row["reason"] or "")[:REASON]])))


def _unscored(times: pandas.DataFrame, scores: pandas.DataFrame, role: str) -> Iterator[LeftOut]:
    """Yield operators (not baselines) with a latency but no accuracy, and networks whose original accuracy is unknown."""
    both = times[~times["is_baseline"]].drop(columns="is_baseline").merge(scores, on=["model", "operator"], how="left")
    for row in both.drop_duplicates(["model", "operator"]).to_dict("records"):
        if row["operator"] == ORIGINAL:
            if pandas.isna(row["accuracy"]):
                yield LeftOut(model_title(row["model"]), f"no accuracy of the original network on {NAMES[role]}")
        elif pandas.isna(row["accuracy"]):
            yield LeftOut(f"{row['operator']} in {model_title(row['model'])}", f"no accuracy on {NAMES[role]}")


def _without_latency(scores: pandas.DataFrame, times: pandas.DataFrame) -> Iterator[LeftOut]:
    """Yield the operators in `scores` that have an accuracy but no latency."""
    timed_ones = set(zip(times["model"], times["operator"], strict=True))
    for model, operator in zip(scores["model"], scores["operator"], strict=True):
        if (model, operator) not in timed_ones and model.partition("@")[0] != LANGUAGE_MODEL:
            yield LeftOut(f"{operator_title(operator)} in {model_title(model)}", "no latency")


def _distinct(times: pandas.DataFrame) -> list[dict[str, str]]:
    return [
        {str(key): str(value) for key, value in row.items()}
        for row in times.drop_duplicates(["model", "compiler", "place"]).to_dict("records")
    ]


def _where(row: Mapping[Any, Any]) -> str:
    return f"{model_title(row['model'])}, {compiler_title(row['compiler'])}, {row['place']}"
