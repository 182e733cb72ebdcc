"""Networks in lower precision: TVM computes what the quantized network computes, and a training says how well it classifies."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from syno.measure.quantization import quantized
from syno.measure.tvm.compilation import TvmModule, built, fused, scheduled
from syno.measure.tvm.integers import import_quantized
from syno.measure.tvm.targets import host, target
from syno.run.rows import rows_of_training
from syno.run.table import score_view
from syno.train.lower_precision import InChunks, converted_score
from syno.train.settings import WorkloadSettings
from syno.train.tasks import task_of
from syno.train.training_record import TrainingRecord
from syno.train.workload import Workload

for package in ("tvm", "torchao"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)


class Small(nn.Module):
    """Convolutions with a stride, groups, a dilation and biases, a product, and input that is not around zero."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2, bias=False)
        )
        self.head = nn.Linear(8, 5)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.convolutions(x).mean((2, 3)))


def inputs() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.rand(2, 3, 8, 8, generator=generator) * 3 - 0.5,) for _ in range(3)]


def kernel_types(module: Any) -> str:
    return "".join(str(function) for function in module.functions.values())


@pytest.mark.slow
def test_tvm_multiplies_integers_and_computes_the_quantized_network() -> None:
    module = quantized(Small().eval(), inputs())
    to = target(host(1))
    network = fused(import_quantized(module, *inputs()[0]), to)
    text = kernel_types(network)
    assert 'T.Cast("int32"' in text and "int16" in text
    with torch.no_grad():
        found, expected = TvmModule(built(scheduled(network, to), to), "cpu")(*inputs()[0]), module(*inputs()[0])
    # Where float32 rounds a value to the other side of a half, it becomes the neighbouring integer.
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.slow
def test_an_arm_processor_is_compiled_for(tmp_path: Path) -> None:
    to = target("jetson-orin-nano-cpu")
    network = fused(import_quantized(quantized(Small().eval(), inputs()), *inputs()[0]), to)
    code = built(scheduled(network, to), to).mod.imports[0]
    code.write_to_file(str(tmp_path / "network.o"), "o")
    header = (tmp_path / "network.o").read_bytes()[:20]
    assert header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == 183  # EM_AARCH64


def test_a_batch_of_another_size_is_computed_in_chunks() -> None:
    class Only(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape == (3, 2)
            return 2 * x

    x = torch.rand(8, 2)
    torch.testing.assert_close(InChunks(Only(), 3)(x), 2 * x)


def test_in_bfloat16_a_text_is_predicted_nearly_as_well() -> None:
    settings = WorkloadSettings(model="gpt_tiny", data="pydoc", training={"most_steps": 1, "batch": 8, "most_tests": 32})
    workload = Workload.of(settings)
    network = workload.network(None, 1)
    exact = task_of(workload.data, settings.training, 1, torch.device("cpu")).score(network)
    found = converted_score(network, "bfloat16", workload.data, settings.training, 1)
    assert 0 < abs(found - exact) < 0.01 * exact
    assert all(weight.dtype == torch.float32 for weight in network.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet8", "gpt_tiny"])
def test_a_training_tests_the_network_in_integers(model: str) -> None:
    """A short training, so that scores are far from chance, and those in integers near those in float32."""
    data: dict[str, Any] = {"data_settings": {"preset": "micro"}} if model == "resnet8" else {"data": "pydoc"}
    workload = Workload.of(WorkloadSettings(model=model, training={"most_steps": 48, "batch": 64, "most_tests": 256}, **data))
    record = TrainingRecord.make(workload, None, 1, int8=True)
    assert record.int8_score is not None and (record.int8_score != record.score or model == "resnet8")
    assert abs(record.int8_score - record.score) < (0.05 if model == "resnet8" else 0.01)
    rows = score_view(rows_of_training(record, "seed1.json", key="original", role="original"))
    assert dict(zip(rows["operator"], rows["role"], strict=True)) == {"original": "original", "int8": "baseline"}
    assert dict(zip(rows["operator"], rows["score"], strict=True)) == {"original": record.score, "int8": record.int8_score}
    assert set(rows["flops_share"]) == {1.0}
