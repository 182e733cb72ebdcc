"""Scores of trained networks in lower precision, as for the compilers `inductor-int8` and `inductor-bfloat16`."""

from __future__ import annotations

from itertools import islice

import torch
from torch import nn
from torch.nn import functional

from syno.base.errors import SpecError
from syno.data import PictureData, TokenSet
from syno.measure.quantization import CALIBRATIONS, quantized
from syno.model.shared_memory import copy_of
from syno.train.own_task import Task
from syno.train.settings import TrainingSettings
from syno.train.tasks import task_of


def converted_score(
    network: nn.Module, numbers: str, data: PictureData | TokenSet | Task, settings: TrainingSettings, seed: int
) -> float:
    """Return the score on the test data of a trained network in lower precision.

    Args:
        network: on the device of its training; it is not changed.
        numbers: "int8", or a precision of trainings, such as "bfloat16", by autocast.
        data: that it was trained on.
        settings: of its training.
        seed: of the training, for the order of batches.

    Raises as `int8_score`.
    """
    if numbers == "int8":
        return int8_score(network, data, settings, seed)
    device = next(network.parameters()).device
    return task_of(data, settings.model_copy(update={"precision": numbers}), seed, device).score(copy_of(network))


def int8_score(network: nn.Module, data: PictureData | TokenSet | Task, settings: TrainingSettings, seed: int) -> float:
    """Return the score on the test data of a trained network in 8-bit integers; the rest is computed in float32.

    The ranges of activations are found from the first batches of the training data.

    Args:
        network: on the device of its training; it is not changed.
        data: that it was trained on.
        settings: of its training.
        seed: of the training, for the order of batches.

    Raises LoweringError if the network has no layer that can be quantized, SpecError for a task of one's own.
    """
    if isinstance(data, Task):
        raise SpecError(f"train: int8 is for classification and text, and {data} is a task of your own; leave it out")
    device = next(network.parameters()).device
    task = task_of(data, settings.model_copy(update={"precision": "float32"}), seed, device)
    network = copy_of(network).eval().to(memory_format=torch.contiguous_format)
    batches = islice(task.batches.epoch(1, 0), CALIBRATIONS)
    inputs = [batch[:, :-1] if isinstance(batch, torch.Tensor) else batch[0] for batch in batches]
    return task.score(InChunks(quantized(network, [(x.contiguous(),) for x in inputs]), len(inputs[0])))


class InChunks(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A network that takes batches of one size only, for batches of any size: the last chunk is filled up with zeros."""

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, ...] -> [N, ...]."""
        missing = -len(x) % self.size
        filled = functional.pad(x.contiguous(), (0, 0) * (x.dim() - 1) + (0, missing))
        return torch.cat([self.network(chunk) for chunk in filled.split(self.size)])[: len(x)]

    def eval(self) -> InChunks:
        """Return itself: a quantized network has no other mode, and refuses to be put in one."""
        return self
