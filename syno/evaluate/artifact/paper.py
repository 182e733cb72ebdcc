"""Accuracies and losses that the paper tells: mostly of networks without an operator of ours, which the data doesn't hold.

Source: paper, sections 9.1 to 9.4; the authors' list of baselines.
"""

from __future__ import annotations

from syno.evaluate.artifact.places import CASE, INT8, STACKED
from syno.evaluate.measurement import Measurement
from syno.evaluate.settings import ORIGINAL

BASELINES, CASE_STUDY = "the paper's baselines", "the paper's Figure 8"  # sources
ACCURACIES = {
    "cifar100": {
        "resnet18": 0.78836,
        "resnet34": 0.79778,
        "densenet121": 0.80308,
        "resnext29_2x64d": 0.79928,
        "efficientnet_v2_s": 0.79667,
    },
    "imagenet": {
        "resnet18": 0.70835,
        "resnet34": 0.74396,
        "densenet121": 0.75749,
        "resnext29_2x64d": 0.76072,
        "efficientnet_v2_s": 0.75966,
    },
}
IN_CASE_STUDY = {ORIGINAL: 0.70679, INT8: 0.70290, STACKED: 0.69242, "operator_1": 0.70451}
LOSS = 5.8516  # of GPT-2 as it is, after 30 minutes
LANGUAGE_MODEL, LANGUAGE_DATA = "gpt2", "lm1b"


def told() -> list[Measurement]:
    """All of it as measurements."""
    accuracies = [
        Measurement.of("accuracy", value, operator=ORIGINAL, model=model, data=data, origin="paper", source=BASELINES)
        for data, models in ACCURACIES.items()
        for model, value in models.items()
    ]
    case_study = [
        Measurement.of("accuracy", value, operator=name, model=CASE, data="imagenet", origin="paper", source=CASE_STUDY)
        for name, value in IN_CASE_STUDY.items()
    ]
    loss = Measurement.of(
        "loss",
        LOSS,
        operator=ORIGINAL,
        model=LANGUAGE_MODEL,
        data=LANGUAGE_DATA,
        origin="paper",
        source=BASELINES,
    )
    return [*accuracies, *case_study, loss]
