"""Figure 5: the fastest operator for each network, device and compiler, of those that are accurate enough on CIFAR-100."""

from __future__ import annotations

import pandas

from syno.artifact.places import BASELINES, COMPILERS, DEVICES, MODELS
from syno.base.names import ORIGINAL
from syno.report.paper.speedups import accuracies, geometric_mean, ordered, timed, with_original

MOST_LOST = 0.01  # of accuracy
SEARCHED_AS = {"resnet34": "resnet18"}  # ResNet-34 was not searched: it has ResNet-18's operators, with their accuracies there


def fastest(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """The fastest operator whose accuracy is above that of the network less `most_lost`.

    Columns: as in `timed`, and accuracy, original_accuracy. A row for each model, device and compiler for which there is such
    an operator; models in the paper's order.
    """
    passing = timed(rows).merge(accurate_enough(rows, most_lost), on=["model", "operator"]).dropna(subset=["speedup"])
    best = passing.sort_values(["latency_ms", "operator"]).drop_duplicates(["model", "device", "compiler"])
    return ordered(best, compiler=COMPILERS, device=DEVICES, model=MODELS)


def accurate_enough(rows: pandas.DataFrame, most_lost: float = MOST_LOST) -> pandas.DataFrame:
    """The operators whose accuracy is above that of the network less `most_lost`.

    Columns: model, operator, accuracy, original_accuracy.
    """
    scores = accuracies(rows, "cifar100")
    borrowed = [
        scores[(scores["model"] == source) & (scores["operator"] != ORIGINAL)].assign(model=model)
        for model, source in SEARCHED_AS.items()
        if not ((scores["model"] == model) & (scores["operator"] != ORIGINAL)).any()
    ]
    both = with_original(pandas.concat([scores, *borrowed], ignore_index=True))
    both = both[~both["operator"].isin([ORIGINAL, *BASELINES])]
    return both[both["accuracy"] > both["original_accuracy"] - most_lost]


def means(best: pandas.DataFrame) -> pandas.DataFrame:
    """Geometric means over the models. Columns: device, compiler, speedup, models (how many)."""
    groups = [
        (device, compiler, geometric_mean(list(group["speedup"])), len(group))
        for (device, compiler), group in best.groupby(["device", "compiler"], sort=False)
    ]
    return pandas.DataFrame(groups, columns=["device", "compiler", "speedup", "models"])
