"""The folders and files of the data that the paper's authors published, and the list of missing files.

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

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict

from syno.base.errors import DataError
from syno.paper.numbers import A100, CASE, INDUCTOR, MOBILE_CPU, MOBILE_GPU, MODELS, SEARCH_DATA, TEST_DATA, TVM
from syno.paper.places import RESNET34

NETWORK_FOLDERS = {  # of operators, by data set: the folder around them, and the networks of the folders in it
    SEARCH_DATA: ("good-kernels-cifar100", {"resnet": CASE, **{name: name for name in MODELS if name not in (CASE, RESNET34)}}),
    TEST_DATA: ("good-kernels-imagenet", {name: name for name in MODELS}),
}
VISION, MACHINES = PurePosixPath("vision"), ("mdev", "a100")
LANGUAGE_OPERATORS = PurePosixPath("gpt2/good_kernels_lm1b")
LANGUAGE_LOG = PurePosixPath("gpt2/baseline/gpt_orig_losses.log")
NETWORKS_FOLDER, LAYERS_FOLDER = "torchvision", "resnet34layers"


@dataclass(frozen=True)
class Target:
    """A device with a compiler: the folder of the machine, and the folder of the latencies."""

    machine: str
    folder: str
    device: str
    compiler: str

    @property
    def root(self) -> PurePosixPath:
        """The folder of the target's machine."""
        return VISION / self.machine

    @property
    def originals(self) -> PurePosixPath:
        """The folder with the latencies of original networks and layers."""
        return self.root / "baseline-latency" / self.folder

    def network(self, folder: PurePosixPath, model: str, *, is_original: bool = False) -> PurePosixPath:
        """Return the path of a network's latency file for one picture, in an operator's folder of latencies or `originals`."""
        return self._file(folder / NETWORKS_FOLDER, f"{model}-N=1{'-orig' if is_original else ''}")

    def layer(self, folder: PurePosixPath, layer: str, *, is_original: bool = False) -> PurePosixPath:
        """Return the path of a layer's latency file; arguments as in `network`."""
        return self._file(folder / LAYERS_FOLDER, f"{layer}-N=1{'-orig' if is_original and self.compiler != 'tvm' else ''}")

    def _file(self, folder: PurePosixPath, name: str) -> PurePosixPath:
        return folder / name / "benchmark_results.csv" if self.compiler == "tvm" else folder / f"{name}.txt"


TARGETS = (
    Target("mdev", "llvm", MOBILE_CPU, TVM),
    Target("mdev", "inductor-cpu", MOBILE_CPU, INDUCTOR),
    Target("mdev", "cuda", MOBILE_GPU, TVM),
    Target("mdev", "inductor-cuda", MOBILE_GPU, INDUCTOR),
    Target("a100", "cuda", A100, TVM),
    Target("a100", "inductor-cuda", A100, INDUCTOR),
)


EXPECTED = ("vision", "gpt2")  # either is enough
WANTED = "give a checkout of the paper's artifact, or the data folder in it"
SHOWN = 6  # names in a message


class Problem(BaseModel):
    """A file or a folder, by its path in the data, and what is wrong with it: missing, damaged or contradictory."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def find_data(checkout: Path) -> Path:
    """Return the data folder: `checkout` itself or `data` in it. DataError, with the folder's content, if neither is one."""
    if not checkout.is_dir():
        raise DataError(f"{checkout} is {'no folder' if checkout.exists() else 'not there'}; {WANTED}")
    for folder in (checkout, checkout / "data"):
        if any((folder / name).is_dir() for name in EXPECTED):
            return folder
    found = sorted(entry.name for entry in checkout.iterdir())
    if not found:
        raise DataError(f"{checkout} is empty; {WANTED}")
    names = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
    folders = " nor ".join(EXPECTED)
    raise DataError(f"{checkout} holds no artifact: neither {folders} is in it or in its data; {WANTED}; it has: {names}")


def missing(data: Path, expected: Iterable[PurePosixPath]) -> list[Problem]:
    """Return a problem for each expected file that is missing; a missing folder stands for all files expected in it."""
    tops = Counter(_top(data, place) for place in expected if not (data / place).exists())
    return [
        Problem(place=str(place), what="missing" if count == 1 else f"missing, and with it {count} of the files expected there")
        for place, count in sorted(tops.items())
    ]


def _top(data: Path, place: PurePosixPath) -> PurePosixPath:
    """Return the outermost missing folder that contains a missing file, or the file itself if its folder exists."""
    for parent in reversed(place.parents[:-1]):
        if not (data / parent).exists():
            return parent
    return place
