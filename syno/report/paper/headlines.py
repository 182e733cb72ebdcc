"""The paper's headline numbers, compared with those computed from the table of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import NamedTuple

import pandas

from syno.base.text_tables import Row
from syno.report.paper.comparisons import best_over_best, layers, scores
from syno.report.paper.networks import accuracies, fastest, largest, means, timed, trade_offs
from syno.results.paper import (
    A100,
    CASE,
    COMPILERS,
    DEVICES,
    GUARD,
    IN_CASE_STUDY,
    LAYERS,
    LOSS,
    MOBILE_CPU,
    MOBILE_GPU,
    MODELS,
)

PLACES = (MOBILE_CPU, MOBILE_GPU, A100)
FIGURE_5 = {"tvm": (2.06, 1.72, 1.47), "inductor": (1.37, 1.62, 1.60)}
FIGURE_9 = {"tvm": (2.13, 1.68, 1.63), "inductor": (0.83, 0.84, 1.38)}
OPERATORS = {"operator_1": (2.68, 2.04, 1.28), "operator_2": (6.19, 3.27, 2.61)}  # in ResNet-18, with TVM
ON_IMAGENET = {"tvm": 4.73, "inductor": 1.94}
MOST_LOST = 0.02  # of accuracy on ImageNet
OPERATOR_LOSS = 5.6756  # of GPT-2 with the operator
UNKNOWN = "not in the data"


class Headline(NamedTuple):
    """A number of the paper.

    Attributes:
        figure: The number of the figure in the paper.
        what: A description of the number.
        computed: Its value from the measurements; None if they are not sufficient.
        paper: Its value as printed.
        same: Whether both are equal to two decimals.
        note: If they differ, an explanation from the data.
    """

    figure: str
    what: str
    computed: float | None
    paper: float
    same: bool
    note: str


def headlines(rows: pandas.DataFrame) -> list[Headline]:
    """Return all headline numbers, computed from a table of measurements."""
    return [
        *_end_to_end(rows),
        *_on_imagenet(rows),
        *_of_operators(rows),
        *_of_accuracy(rows),
        *_layerwise(rows),
        *_language(rows),
    ]


def _headline(figure: str, what: str, computed: float | None, paper: float, why: str = "", always: str = "") -> Headline:
    """Return a headline number with the note `why` if both values differ, and the note `always` in any case."""
    if computed is None:
        return Headline(figure, what, None, paper, False, UNKNOWN)
    same = f"{computed:.2f}" == f"{paper:.2f}"
    return Headline(figure, what, computed, paper, same, "; ".join(filter(None, ["" if same else why, always])))


def _end_to_end(rows: pandas.DataFrame) -> Iterator[Headline]:
    found = {(row["device"], row["compiler"]): row for row in means(fastest(rows)).to_dict("records")}
    for compiler, printed in FIGURE_5.items():
        for device, paper in zip(PLACES, printed, strict=True):
            row = found.get((device, compiler))
            always = "" if row is None or row["models"] == len(MODELS) else f"of {row['models']} of {len(MODELS)} networks only"
            what = f"{COMPILERS[compiler]}, {DEVICES[device]}: mean speedup of networks"
            yield _headline("5", what, None if row is None else float(row["speedup"]), paper, always=always)


def _on_imagenet(rows: pandas.DataFrame) -> Iterator[Headline]:
    points = trade_offs(rows)
    for compiler, paper in ON_IMAGENET.items():
        best = largest(points, compiler, MOST_LOST)
        what = f"{COMPILERS[compiler]}: largest speedup that loses at most {MOST_LOST:g} on ImageNet"
        if best is None:
            yield _headline("6", what, None, paper)
            continue
        why = f"this is {_described(best)}"
        alike = points[(points["compiler"] == compiler) & (points["speedup"].round(2) == paper)]
        if not alike.empty:
            why += f"; {paper} is the speedup of " + ", and of ".join(_described(row) for _, row in alike.iterrows())
        yield _headline("6", what, float(best["speedup"]), paper, why)


def _described(row: pandas.Series) -> str:
    model, device = str(row["model"]), str(row["device"])
    model, device = MODELS.get(model, model), DEVICES.get(device, device)
    return f"{row['operator']} in {model} on the {device}, which loses {row['lost']:.4f}"


def _of_operators(rows: pandas.DataFrame) -> Iterator[Headline]:
    times = timed(rows)
    times = times[(times["model"] == CASE) & (times["compiler"] == "tvm")].dropna(subset=["speedup"])
    for operator, printed in OPERATORS.items():
        for device, paper in zip(PLACES, printed, strict=True):
            found = times[(times["operator"] == operator) & (times["device"] == device)]
            what = f"{operator.replace('_', ' ').capitalize()}, TVM, {DEVICES[device]}: speedup of {MODELS[CASE]}"
            if found.empty:
                yield _headline("8", what, None, paper)
                continue
            first = found.iloc[0]
            why = f"{first['original_ms']:.4f} ms over {first['latency_ms']:.4f} ms is {first['speedup']:.4f}"
            yield _headline("8", what, float(first["speedup"]), paper, why)


def _of_accuracy(rows: pandas.DataFrame) -> Iterator[Headline]:
    scored = accuracies(rows, "imagenet")
    found = scored[(scored["model"] == CASE) & (scored["operator"] == "operator_1")]
    computed = None if found.empty else float(found.iloc[0]["accuracy"])
    yield _headline("8", f"Operator 1: accuracy of {MODELS[CASE]} on ImageNet", computed, IN_CASE_STUDY["operator_1"])


def _layerwise(rows: pandas.DataFrame) -> Iterator[Headline]:
    found = {(row["device"], row["compiler"]): row for row in best_over_best(layers(rows)).to_dict("records")}
    for compiler, printed in FIGURE_9.items():
        for device, paper in zip(PLACES, printed, strict=True):
            row = found.get((device, compiler))
            what = f"{COMPILERS[compiler]}, {DEVICES[device]}: our best over NAS-PTE's best, mean over layers"
            if row is None:
                yield _headline("9", what, None, paper)
                continue
            why = f"it is {row['speedup_with_original']:.2f} if the convolution itself counts among NAS-PTE's candidates"
            always = "" if row["layers"] == len(LAYERS) else f"of {row['layers']} of {len(LAYERS)} layers only"
            yield _headline("9", what, float(row["speedup"]), paper, why, always)


def _language(rows: pandas.DataFrame) -> Iterator[Headline]:
    found = scores(rows)
    yield _headline("10", "GPT-2 as it is: loss after 30 minutes, from its log", found.logged, LOSS)
    yield _headline("10", "GPT-2 with the operator: loss after 30 minutes", found.operator, OPERATOR_LOSS)


def headline_table(found: list[Headline]) -> pandas.DataFrame:
    """Return the numbers as a table; those that could not be computed are missing."""
    return pandas.DataFrame(found, columns=list(Headline._fields)).astype({"computed": float})


def headline_texts(table: pandas.DataFrame) -> tuple[list[Row], list[str]]:
    """Return the headline numbers for printing: the rows of a table, and the notes below it."""
    found = table.to_dict("records")
    rows: list[Row] = [
        {
            "figure": row["figure"],
            "number": row["what"],
            "computed": "–" if isnan(row["computed"]) else _digits(row["computed"], row["paper"]),
            "paper": _digits(row["paper"], row["paper"]),
            "to 0.01": "same" if row["same"] else "unknown" if isnan(row["computed"]) else "differs",
        }
        for row in found
    ]
    return rows, [*(f"- {row['what']}: {row['note']}" for row in found if row["note"]), f"- {GUARD}"]


def _digits(value: float, paper: float) -> str:
    """Return a value with as many digits as the paper prints."""
    return f"{value:.{max(2, len(f'{paper:g}'.partition('.')[2]))}f}"
