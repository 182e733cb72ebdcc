"""What is where in the data that the paper's authors published.

    vision/MACHINE/baseline-latency/TARGET/torchvision/MODEL-N=1-orig       networks as they are
    vision/MACHINE/baseline-latency/TARGET/resnet34layers/LAYER-N=1         layers of ResNet-34
    vision/MACHINE/baseline-latency/TARGET/qresnet18                        ResNet-18 in 8-bit integers
    vision/MACHINE/manual_kernels/bs1/Conv2d_Conv1d/perf/TARGET/...         two convolutions in a row
    vision/MACHINE/nas-pte/seq_1/perf/TARGET/resnet34layers/...             what NAS-PTE finds
    vision/MACHINE/good-kernels-{cifar100,imagenet}/MODEL/OPERATOR          operators: meta.json, graph.dot, perf/TARGET/...
    gpt2/good_kernels_lm1b/OPERATOR, gpt2/baseline/gpt_orig_losses.log      the same for GPT-2

A latency is in NAME/benchmark_results.csv (TVM) or NAME.txt (TorchInductor).

Source: the artifact of the paper (ASPLOS'25).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

MOBILE_CPU, MOBILE_GPU, A100 = "Jetson Orin Nano CPU", "Jetson Orin Nano GPU", "A100"
DEVICES = {MOBILE_CPU: "mobile CPU", MOBILE_GPU: "mobile GPU", A100: "A100"}  # and what the paper calls them
COMPILERS = {"tvm": "TVM", "inductor": "TorchInductor"}

MODELS = {  # and what the paper calls them
    "resnet18": "ResNet-18",
    "resnet34": "ResNet-34",
    "densenet121": "DenseNet-121",
    "resnext29_2x64d": "ResNeXt-29",
    "efficientnet_v2_s": "EfficientNet-V2-S",
}
LAYERS = {  # of ResNet-34, and their numbers in the paper
    "conv_io64": "L1",
    "conv_i64_o128": "L7",
    "conv_io128": "L8",
    "residual_i64_o128": "L9",
    "conv_i128_o256": "L16",
    "conv_io256": "L17",
    "residual_i128_o256": "L18",
    "conv_i256_o512": "L29",
    "conv_io512": "L30",
    "residual_i256_o512": "L31",
}
LAYERED = "resnet34"  # the network that these are layers of
CASE = "resnet18"  # the network of the case study
INT8, STACKED = "int8", "stacked_convolution"
NAS_PTE = {"nas_pte_sequence_1": "seq_1", "nas_pte_sequence_2": "seq_2", "nas_pte_sequence_3": "seq_3"}
BASELINES = (INT8, STACKED, *NAS_PTE)  # what no search of the paper found

NETWORK_FOLDERS = {  # of operators, by data set: the folder around them, and the networks of the folders in it
    "cifar100": ("good-kernels-cifar100", {"resnet": CASE, **{name: name for name in MODELS if name not in (CASE, LAYERED)}}),
    "imagenet": ("good-kernels-imagenet", {name: name for name in MODELS}),
}
VISION, MACHINES = PurePosixPath("vision"), ("mdev", "a100")
LANGUAGE_OPERATORS = PurePosixPath("gpt2/good_kernels_lm1b")
LANGUAGE_LOG = PurePosixPath("gpt2/baseline/gpt_orig_losses.log")
NETWORKS_FOLDER, LAYERS_FOLDER = "torchvision", "resnet34layers"


@dataclass(frozen=True)
class Target:
    """A device with a compiler: the machine's folder, and the folder of the latencies."""

    machine: str
    folder: str
    device: str
    compiler: str

    @property
    def root(self) -> PurePosixPath:
        """The machine's folder."""
        return VISION / self.machine

    @property
    def originals(self) -> PurePosixPath:
        """The folder of what no operator was put into."""
        return self.root / "baseline-latency" / self.folder

    def network(self, folder: PurePosixPath, model: str, *, is_original: bool = False) -> PurePosixPath:
        """The file with a network's latency for one picture, in the folder of an operator's latencies, or of the originals."""
        return self._file(folder / NETWORKS_FOLDER, f"{model}-N=1{'-orig' if is_original else ''}")

    def layer(self, folder: PurePosixPath, layer: str, *, is_original: bool = False) -> PurePosixPath:
        """The same of a layer."""
        return self._file(folder / LAYERS_FOLDER, f"{layer}-N=1{'-orig' if is_original and self.compiler != 'tvm' else ''}")

    def _file(self, folder: PurePosixPath, name: str) -> PurePosixPath:
        return folder / name / "benchmark_results.csv" if self.compiler == "tvm" else folder / f"{name}.txt"


TARGETS = (
    Target("mdev", "llvm", MOBILE_CPU, "tvm"),
    Target("mdev", "inductor-cpu", MOBILE_CPU, "inductor"),
    Target("mdev", "cuda", MOBILE_GPU, "tvm"),
    Target("mdev", "inductor-cuda", MOBILE_GPU, "inductor"),
    Target("a100", "cuda", A100, "tvm"),
    Target("a100", "inductor-cuda", A100, "inductor"),
)
