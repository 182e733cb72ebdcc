"""The paper's evaluation: its networks, layers, devices and baselines, and the numbers that only the paper has.

These numbers are accuracies and losses, mostly of networks without an operator. There are also numbers for comparison: costs
of the original networks, and what others have published.

Source: paper, sections 9.1 to 9.4; the authors' list of baselines.
"""

from __future__ import annotations

from typing import NamedTuple

from syno.base.files import ORIGINAL
from syno.model.networks import INT8
from syno.run.measurement import Measurement

MOBILE_CPU, MOBILE_GPU, A100 = "Jetson Orin Nano CPU", "Jetson Orin Nano GPU", "A100"
DEVICES = {MOBILE_CPU: "mobile CPU", MOBILE_GPU: "mobile GPU", A100: "A100"}  # and their names in the paper
TVM, INDUCTOR = "tvm", "inductor-max-autotune"  # all the paper's latencies of TorchInductor are with max-autotune
COMPILERS = {TVM: "TVM", INDUCTOR: "TorchInductor"}

MODELS = {  # and their names in the paper
    "resnet18": "ResNet-18",
    "resnet34": "ResNet-34",
    "densenet121": "DenseNet-121",
    "resnext29_2x64d": "ResNeXt-29",
    "efficientnet_v2_s": "EfficientNet-V2-S",
}
SEARCHED_AS = {"resnet34": "resnet18"}  # ResNet-34 was not searched: it has ResNet-18's operators, with their accuracies there
SEARCHED_WITH = {"resnext29_2x64d_1000": "resnext29_2x64d"}  # networks that differ in the head only
CASE = "resnet18"  # the network of the case study
SEARCH_DATA, TEST_DATA = "cifar100", "imagenet"  # operators are searched on the first, and trained again on the second
LANGUAGE_MODEL, LANGUAGE_DATA = "gpt2", "lm1b"
STACKED = "stacked_convolution"
NAS_PTE = {"nas_pte_sequence_1": "seq_1", "nas_pte_sequence_2": "seq_2", "nas_pte_sequence_3": "seq_3"}  # and their folders
NAS_PTE_MODULES = {"nas_pte_1": "seq_1", "nas_pte_2": "seq_2", "nas_pte_3": "seq_3"}  # the same, as PyTorch modules
BASELINES = (INT8, STACKED, *NAS_PTE, *NAS_PTE_MODULES)  # operators that no search of the paper found
OF_THE_PAPER = ("operator_1", "operator_2", "gpt2_projection")  # operators of the library that its searches found
WRONG_GUARD = "of the published TVM code, in which the bounds check of Unfold is wrong: such kernels read mostly zeros"
GUARD = (
    "The TVM kernels that the authors published check the bounds of Unfold against the window's size instead of the axis': "
    "they read mostly zeros, skip that work, and compute wrong results. TVM latencies of their operators are of such kernels."
)

TOLD, CASE_STUDY, IN_FIGURE_10 = (
    "the paper's baselines",
    "the paper's Figure 8",
    "the paper's Figure 10",
)  # sources of its numbers
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
PERPLEXITIES = {ORIGINAL: 111.0, "gpt2_projection": 99.0}  # of GPT-2, after the long training
PERPLEXITY_STEPS = 100_000  # of the long training
LONG_TRAINING = "after the long training, of 100,000 steps"  # the beginning of the note of such a number
TRAINING_SPEEDUP = 1.1  # of GPT-2 with the operator, over the original

# FLOPs and parameters of the original networks, with as many classes as the data set has. They are counted as those of the
# published operators were (`syno.model.counting.published_flops`), and a test counts them again. Some are in the paper.
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
# The same of ResNet-34 for ImageNet with NAS-PTE's sequences in the layers that our operators replace.
NAS_PTE_COSTS = {
    "nas_pte_1": (1_520_945_664, 9_027_368),
    "nas_pte_2": (2_003_858_304, 11_832_488),
    "nas_pte_3": (3_833_055_744, 45_808_424),
}
# The shares of FLOPs and of parameters that αNAS saves in networks for ImageNet, without a loss of accuracy.
# Source: abstract of Jin, Phothilimthana, Roy, "Neural Architecture Search using Property Guided Synthesis", OOPSLA 2022.
ALPHA_NAS = {"Vision Transformer": (0.30, 0.30), "ResNet-50": (0.23, 0.14), "EfficientNet": (0.07, 0.07)}
ALPHA_NAS_TOLD = {"ResNet-50 and EfficientNet-B0": (0.25, float("nan"))}  # within 0.02 on ImageNet, as Syno's paper says


# The ablations: of so many random graphs, so many are canonical, which is "more than 70" graphs for each; and the shares of
# canonical graphs in Table 3, by the number of primitives; the last is of those of so many or more.
CANONICAL_GRAPHS, RANDOM_GRAPHS = 86, 6452
REDUNDANCY = 70
CANONICAL_RATES = {2: 1.0, 3: 0.1818, 4: 0.1397, 5: 0.0440, 6: 0.0122, 7: 0.0008, 8: 0.0}
LARGEST = max(CANONICAL_RATES)


class Walks(NamedTuple):
    """Random walks of the paper's ablation of the shape distance, the operators that they found, and seconds on all cores."""

    walks: int
    operators: int
    seconds: float


WALKING_CORES = 192
WALKS_WITH_DISTANCE, WALKS_WITHOUT_DISTANCE = Walks(5_000_000, 253, 68.33), Walks(500_000_000, 0, 180.51)


def told() -> list[Measurement]:
    """Return the accuracies and losses that the paper prints, as measurements."""
    accuracies = [
        Measurement.of("accuracy", value, operator=ORIGINAL, model=model, data=data, origin="paper", source=TOLD)
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
        source=TOLD,
    )
    perplexities = [
        Measurement.of(
            "perplexity",
            value,
            operator=name,
            model=LANGUAGE_MODEL,
            data=LANGUAGE_DATA,
            origin="paper",
            source=IN_FIGURE_10,
            note=LONG_TRAINING,
        )
        for name, value in PERPLEXITIES.items()
    ]
    return [*accuracies, *case_study, loss, *perplexities]
