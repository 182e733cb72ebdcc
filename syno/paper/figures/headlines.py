"""The paper's headline numbers, compared with those computed from the table of measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Any

import pandas

from syno.base.text_tables import Row
from syno.paper.figures import claims
from syno.paper.figures.comparisons import best_over_best, layers
from syno.paper.figures.headline import Headline, compared, unknown
from syno.paper.figures.language import scores
from syno.paper.figures.mixture import ready, scored, timed
from syno.paper.figures.networks import fastest, largest, means, trade_offs
from syno.paper.figures.titles import compiler_title, model_title
from syno.paper.joined import FINAL
from syno.paper.numbers import (
    A100,
    CASE,
    COMPILERS,
    DEVICES,
    GUARD,
    IN_CASE_STUDY,
    LOSS,
    MOBILE_CPU,
    MOBILE_GPU,
    MODELS,
    TEST_DATA,
)
from syno.results.layers import LAYERED, LAYERS

PLACES = (MOBILE_CPU, MOBILE_GPU, A100)
FIGURE_5 = {"tvm": (2.06, 1.72, 1.47), "inductor": (1.37, 1.62, 1.60)}
FIGURE_9 = {"tvm": (2.13, 1.68, 1.63), "inductor": (0.83, 0.84, 1.38)}
OPERATORS = {"operator_1": (2.68, 2.04, 1.28), "operator_2": (6.19, 3.27, 2.61)}  # in ResNet-18, with TVM
ON_IMAGENET = {"tvm": 4.73, "inductor": 1.94}
MOST_LOST = 0.02  # of accuracy on ImageNet
OPERATOR_LOSS = 5.6756  # of GPT-2 with the operator


def headlines(
    rows: pandas.DataFrame, losses: pandas.DataFrame | None = None, ablations: Mapping[str, pandas.DataFrame] | None = None
) -> list[Headline]:
    """Return all headline numbers, computed from a table of measurements, and those of devices that the paper has not.

    Args:
        rows: The table.
        losses: The loss curves, if there are any.
        ablations: The tables of ablations, by name, if there are any.
    """
    rows = ready(rows)
    return [
        *_end_to_end(rows),
        *_on_imagenet(rows),
        *claims.of_larger_network(rows),
        *_of_operators(rows),
        *_of_accuracy(rows),
        *claims.of_operator_2(rows),
        *_layerwise(rows),
        *claims.beside_nas_pte(rows),
        *_language(rows),
        *claims.of_language(rows, losses),
        *claims.beside_alpha_nas(rows),
        *claims.of_ablations(ablations or {}),
    ]


def _targets(found: pandas.DataFrame, printed: Mapping[str, tuple[float, ...]]) -> Iterator[tuple[str, str, float | None, Any]]:
    """Yield compiler, place, the paper's number and the row, for the paper's places and for all others that are found."""
    known = {compiler: dict(zip(PLACES, numbers, strict=True)) for compiler, numbers in printed.items()}
    by_target: dict[tuple[str, str], list[Any]] = {}
    for row in found.to_dict("records"):
        by_target.setdefault((row["compiler"], row["device"]), []).append(row)
    for compiler, numbers in known.items():
        for device, paper in numbers.items():
            for row in by_target.pop((compiler, device), [None]):
                yield compiler, DEVICES[device] if row is None else row["place"], paper, row
    for (compiler, _), others in by_target.items():
        for row in others:
            yield compiler, row["place"], None, row


def _end_to_end(rows: pandas.DataFrame) -> Iterator[Headline]:
    best = fastest(rows)
    for compiler, place, paper, row in _targets(means(best), FIGURE_5):
        what = f"{compiler_title(compiler)}, {place}: mean speedup of networks"
        if row is None:
            yield unknown("5", what, paper)
            continue
        own = best[(best["place"] == place) & (best["compiler"] == compiler)]
        is_whole = set(own["model"]) == set(MODELS)
        names = ", ".join(map(model_title, own["model"]))
        few = f"of {row['models']} of {len(MODELS)} networks only" if set(own["model"]) < set(MODELS) else f"of {names}"
        yield compared("5", what, float(row["speedup"]), paper, always="" if is_whole else few, origin=origin_of(own))


def _on_imagenet(rows: pandas.DataFrame) -> Iterator[Headline]:
    points = trade_offs(rows)
    points = points[(points["data"] == TEST_DATA) & points["model"].isin(list(MODELS))]  # nothing that only stands for them
    for compiler, paper in ON_IMAGENET.items():
        best = largest(points, compiler, MOST_LOST)
        what = f"{COMPILERS[compiler]}: largest speedup that loses at most {MOST_LOST:g} on ImageNet"
        if best is None:
            yield unknown("6", what, paper)
            continue
        why = f"this is {_described(best)}"
        alike = points[(points["compiler"] == compiler) & (points["speedup"].round(2) == paper)]
        if not alike.empty:
            why += f"; {paper} is the speedup of " + ", and of ".join(_described(row) for _, row in alike.iterrows())
        yield compared("6", what, float(best["speedup"]), paper, why, origin=origin_of(points.loc[[best.name]]))


def _described(row: pandas.Series) -> str:
    return f"{row['operator']} in {model_title(row['model'])} on the {row['place']}, which loses {row['lost']:.4f}"


def _of_operators(rows: pandas.DataFrame) -> Iterator[Headline]:
    times = timed(rows)
    times = times[(times["model"] == CASE) & times["operator"].isin(list(OPERATORS))].dropna(subset=["speedup"])
    for operator, printed in OPERATORS.items():
        own = times[(times["operator"] == operator) & ((times["compiler"] == "tvm") | ~times["device"].isin(PLACES))]
        for compiler, place, paper, row in _targets(own, {"tvm": printed}):
            name = operator.replace("_", " ").capitalize()
            what = f"{name}, {compiler_title(compiler)}, {place}: speedup of {MODELS[CASE]}"
            if row is None:
                yield unknown("8", what, paper)
                continue
            why = f"{row['original_ms']:.4f} ms over {row['latency_ms']:.4f} ms is {row['speedup']:.4f}"
            yield compared("8", what, float(row["speedup"]), paper, why, origin=str(row["latency_origin"]))


def _of_accuracy(rows: pandas.DataFrame) -> Iterator[Headline]:
    known = scored(rows, FINAL)
    found = known[(known["model"] == CASE) & (known["operator"] == "operator_1") & (known["data"] == "imagenet")]
    what, paper = f"Operator 1: accuracy of {MODELS[CASE]} on ImageNet", IN_CASE_STUDY["operator_1"]
    if found.empty:
        yield unknown("8", what, paper)
    else:
        yield compared("8", what, float(found.iloc[0]["accuracy"]), paper, origin=str(found.iloc[0]["accuracy_origin"]))


def _layerwise(rows: pandas.DataFrame) -> Iterator[Headline]:
    over = best_over_best(layers(rows))
    for compiler, place, paper, row in _targets(over[over["model"] == LAYERED], FIGURE_9):
        what = f"{compiler_title(compiler)}, {place}: our best over NAS-PTE's best, mean over layers"
        if row is None:
            yield unknown("9", what, paper)
            continue
        why = f"it is {row['speedup_with_original']:.2f} if the convolution itself counts among NAS-PTE's candidates"
        always = "" if row["layers"] == len(LAYERS) else f"of {row['layers']} of {len(LAYERS)} layers only"
        yield compared("9", what, float(row["speedup"]), paper, why, always, origin=str(row["latency_origin"]))


def _language(rows: pandas.DataFrame) -> Iterator[Headline]:
    found = scores(rows)
    for what, value, paper in (
        ("GPT-2 as it is: loss after 30 minutes, from its log", found.logged, LOSS),
        ("GPT-2 with the operator: loss after 30 minutes", found.operator, OPERATOR_LOSS),
    ):
        yield unknown("10", what, paper) if value is None else compared("10", what, value, paper, origin="artifact")


def origin_of(found: pandas.DataFrame) -> str:
    """Return the origins of the latencies and accuracies in a table, as text."""
    latency, accuracy = (
        sorted({str(origin) for column in columns if column in found for origin in found[column].dropna()})
        for columns in (("latency_origin",), ("accuracy_origin", "original_origin"))
    )
    if not accuracy or latency == accuracy:
        return ", ".join(latency)
    return f"latency {', '.join(latency)}; accuracy {', '.join(accuracy)}"


def headline_table(found: list[Headline]) -> pandas.DataFrame:
    """Return the numbers as a table; those that could not be computed, or that the paper does not print, are missing."""
    table = pandas.DataFrame(found, columns=list(Headline._fields)).astype({"computed": float, "paper": float})
    return table.assign(same=[one.same for one in found])


def headline_texts(table: pandas.DataFrame) -> tuple[list[Row], list[str]]:
    """Return the headline numbers for printing: the rows of a table, and the notes below it."""
    found = table.to_dict("records")
    rows: list[Row] = [
        {
            "figure": row["figure"],
            "number": row["what"],
            "computed": "–" if isnan(row["computed"]) else digits(row["computed"], row),
            "paper": row["printed"] or "–",
            "agrees": row["verdict"],
            "origin": row["origin"] or "–",
        }
        for row in found
    ]
    notes = [f"- {row['what']}: {row['note']}" for row in found if row["note"]]
    return rows, [*notes, *([f"- {GUARD}"] if (table["origin"].str.contains("artifact")).any() else [])]


def digits(value: float, row: Mapping[Any, Any]) -> str:
    """Return a computed value with as many digits as the paper prints, at least two; four of a small one that it does not."""
    if isnan(row.get("paper", nan)):
        return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.2f}"
    decimals = f"{row['paper']:g}".partition(".")[2]
    return f"{value:.{max(2, len(decimals))}f}"
