"""Scores of trained networks in lower precision, as with the compilers `inductor-int8` and `inductor-bfloat16`."""

from __future__ import annotations

from itertools import islice

import torch
from torch import nn
from torch.nn import functional

from syno.base.errors import SpecError
from syno.data import PictureData, TokenSet
from syno.measure.quantization import CALIBRATIONS, SAMPLES, quantized
from syno.model.shared_memory import copy_of
from syno.train.own_task import Task
from syno.train.settings import TrainingSettings
from syno.train.tasks import DeviceTask, task_of


def converted_score(
    network: nn.Module, numbers: str, data: PictureData | TokenSet | Task, settings: TrainingSettings, seed: int
) -> float:
    """Return the test score of a trained network in lower precision.

    Args:
        network: the network, on the device of its training; it is not changed.
        numbers: "int8", or a precision of trainings, such as "bfloat16", by autocast.
        data: the network's training and test data.
        settings: settings of its training.
        seed: seed of the training, for the order of batches.

    Raises as `int8_score`.
    """
    if numbers == "int8":
        return int8_score(network, data, settings, seed)
    device = next(network.parameters()).device
    return task_of(data, settings.model_copy(update={"precision": numbers}), seed, device).score(copy_of(network))


def int8_score(network: nn.Module, data: PictureData | TokenSet | Task, settings: TrainingSettings, seed: int) -> float:
    """Return the test score of a trained network quantized to 8-bit integers; unquantized operations are in float32.

    The ranges of activations are calibrated on the first batches of the training data.

    Args:
        network: the network, on the device of its training; it is not changed.
        data: the network's training and test data.
        settings: settings of its training.
        seed: seed of the training, for the order of batches.

    Raises LoweringError if the network has no layer that can be quantized, SpecError for a user's own task.
    """
    network, inputs, task = _to_calibrate(network, data, settings, seed)
    return task.score(InChunks(quantized(network, inputs), len(inputs[0][0])))


def controlled_int8_score(
    network: nn.Module,
    data: PictureData | TokenSet | Task,
    settings: TrainingSettings,
    seed: int,
    compiler: str,
    most_lost: float | None = None,
) -> tuple[float, tuple[str, ...]]:
    """Return the score of a trained network quantized to 8-bit integers, and the layers that went back to floating point.

    With these layers (`syno.measure.job.Int8Settings`), the latency of the quantized network is measured.

    Args:
        compiler: "openvino-int8" or "onnxruntime-int8".
        most_lost: largest loss of score against the trained network; None: no limit.
        network, data, settings, seed: as of `int8_score`, which raises the same exceptions.
    """
    from syno.measure.onnx_quantization import in_integers, with_accuracy_control
    from syno.measure.runtimes import of_module

    network, inputs, task = _to_calibrate(network, data, settings, seed, SAMPLES, "cpu")
    model, threads = of_module(network, inputs[0]), torch.get_num_threads()
    scores = dict[tuple[str, ...], float]()

    def score(floats: tuple[str, ...]) -> float:
        if floats not in scores:
            scores[floats] = task.score(InChunks(in_integers(compiler, model, inputs, threads, floats), len(inputs[0][0])))
        return task.metric.quality(scores[floats])

    floats: tuple[str, ...] = ()
    if most_lost is not None:
        least = task.metric.quality(task.score(network)) - most_lost
        floats = with_accuracy_control(score, tuple(model.layers), least)
    score(floats)
    return scores[floats], floats


def _to_calibrate(
    network: nn.Module,
    data: PictureData | TokenSet | Task,
    settings: TrainingSettings,
    seed: int,
    samples: int = 0,
    device: str | None = None,
) -> tuple[nn.Module, list[tuple[torch.Tensor, ...]], DeviceTask]:
    """Return a copy of the network, batches of training inputs for calibration, and its task.

    There are `CALIBRATIONS` batches, or more so that they have at least `samples` samples. All are on `device`; None: the
    network's device.
    """
    if isinstance(data, Task):
        raise SpecError(f"train: int8 is for classification and text, and {data} is a task of your own; leave it out")
    device = next(network.parameters()).device if device is None else torch.device(device)
    task = task_of(data, settings.model_copy(update={"precision": "float32"}), seed, device)
    network = copy_of(network).eval().to(device, memory_format=torch.contiguous_format)
    batches = islice(task.batches.epoch(1, 0), max(CALIBRATIONS, -(-samples // settings.batch)))
    inputs = [batch[:, :-1] if isinstance(batch, torch.Tensor) else batch[0] for batch in batches]
    return network, [(x.contiguous(),) for x in inputs], task


class InChunks(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Adapts a network with a fixed batch size to batches of any size: the last chunk is padded with zeros."""

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the network's output for a batch of any size, [N, ...] -> [N, ...]."""
        missing = -len(x) % self.size
        filled = functional.pad(x.contiguous(), (0, 0) * (x.dim() - 1) + (0, missing))
        # Copies, as OpenVINO writes each output into the same memory.
        return torch.cat([self.network(chunk).clone() for chunk in filled.split(self.size)])[: len(x)]

    def eval(self) -> InChunks:
        """Do nothing, and return the network itself: a quantized network has no modes, and raises an error on `eval`."""
        return self
