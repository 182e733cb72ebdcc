"""What the paper tells, and the data doesn't hold: accuracies and losses, mostly of networks without an operator of ours.

Beside them what figures compare with: costs of the networks as they are, and what others have published.

Source: paper, sections 9.1 to 9.4; the authors' list of baselines.
"""

from __future__ import annotations

from syno.artifact.places import CASE, INT8, STACKED
from syno.base.names import ORIGINAL
from syno.results.measurement import Measurement

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

# FLOPs and parameters of the networks as they are, with as many classes as the data set has, counted as those of the published
# operators were (`syno.model.counting.published_flops`); a test counts them again. Not in the data; some are in the paper.
COSTS = {
    "cifar100": {
        "resnet18": (1_823_572_992, 11_227_812),
        "densenet121": (2_896_085_504, 7_056_356),
        "resnext29_2x64d": (5_126_324_224, 21_150_504),  # with 1000 classes, as the authors' network had there, too
        "efficientnet_v2_s": (2_900_783_168, 20_305_588),
    },
    "imagenet": {
        "resnet18": (1_824_033_792, 11_689_512),
        "resnet34": (3_678_739_456, 21_797_672),
    },
}
# Of αNAS: shares of FLOPs and of parameters that a network has less on ImageNet, without a loss of accuracy.
# Source: abstract of Jin, Phothilimthana, Roy, "Neural Architecture Search using Property Guided Synthesis", OOPSLA 2022.
ALPHA_NAS = {"Vision Transformer": (0.30, 0.30), "ResNet-50": (0.23, 0.14), "EfficientNet": (0.07, 0.07)}


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
