"""Zero-cost proxies: scores of untrained networks on one batch, which are said to tell good ones from bad ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from table_records import Record, keep, missing
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from syno.ir.text import parse_stored
from syno.train.workload import Workload

PICTURES = 64
SEED = 0  # of the weights


def scores(workload: Workload, operators: Sequence[Record], folder: Path) -> Iterator[str]:
    """Score the operators that have no record yet; yields a line for each."""
    texts = {row["id"]: row["text"] for row in operators}
    pictures, labels = workload.data.train_images[:PICTURES].float(), workload.data.train_labels[:PICTURES]
    for name in missing(folder, list(texts)):
        began = time.process_time()
        network = workload.network(parse_stored(texts[name]), SEED)
        found = {**gradients(network, pictures, labels), "naswot": naswot(network, pictures)}
        found["synflow"] = synflow(workload.network(parse_stored(texts[name]), SEED), pictures[:1])
        keep(folder, name, {"id": name, **found})
        shown = ", ".join(f"{key} {value:.3g}" for key, value in found.items())
        yield f"{name}: {shown}; {time.process_time() - began:.1f} CPU-s"


def gradients(network: nn.Module, pictures: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """The logarithms of the norm of the loss's gradient and of the sum of |gradient x weight| (SNIP)."""
    network.train().zero_grad()
    functional.cross_entropy(network(pictures), labels).backward()
    pairs = [(one.detach(), one.grad) for one in network.parameters() if one.grad is not None]
    norm = math.sqrt(sum(float(grad.square().sum()) for _, grad in pairs))
    return {"gradient_norm": logarithm(norm), "snip": logarithm(sum(float((grad * one).abs().sum()) for one, grad in pairs))}


class Agreement(TorchFunctionMode):
    """Counts, for each pair of pictures, the rectified units that are on for both or off for both."""

    def __init__(self) -> None:
        self.kernel: torch.Tensor | float = 0.0

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        if function is torch.relu:
            active = (found > 0).flatten(1).double()
            self.kernel = self.kernel + active @ active.T + (1 - active) @ (1 - active.T)
        return found


def naswot(network: nn.Module, pictures: torch.Tensor) -> float:
    """The log determinant of the pictures' `Agreement` (Mellor et al., ICML 2021)."""
    agreement = Agreement()
    with torch.no_grad(), agreement:
        network.train()(pictures)
    assert isinstance(agreement.kernel, torch.Tensor), "the network has rectified units"
    return float(torch.linalg.slogdet(agreement.kernel).logabsdet)


def synflow(network: nn.Module, pictures: torch.Tensor) -> float:
    """The logarithm of the sum of weight x gradient of the output, with absolute weights and a picture of ones (Tanaka et al.,
    NeurIPS 2020).
    """
    network = network.double().eval()
    with torch.no_grad():
        for one in network.parameters():
            one.abs_()
    network(torch.ones_like(pictures, dtype=torch.float64)).sum().backward()
    return logarithm(sum(float((one.detach() * one.grad).sum()) for one in network.parameters() if one.grad is not None))


def logarithm(value: float) -> float:
    """The logarithm, also of 0 and of what was no number."""
    return math.log(max(value, 1e-300)) if math.isfinite(value) else math.nan
