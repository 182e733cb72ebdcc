"""Networks in lower precision: a training says how well they classify."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import nn

from syno.run.rows import rows_of_training
from syno.run.views import scores_of
from syno.train.lower_precision import InChunks, controlled_int8_score, converted_score
from syno.train.settings import WorkloadSettings
from syno.train.tasks import task_of
from syno.train.training_record import TrainingRecord
from syno.train.workload import Workload

if importlib.util.find_spec("torchao") is None:
    pytest.skip("torchao is not installed", allow_module_level=True)


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
@pytest.mark.parametrize(("compiler", "package"), [("openvino-int8", "nncf"), ("onnxruntime-int8", "onnxruntime")])
def test_layers_go_back_to_floats_until_no_more_is_lost_than_allowed(compiler: str, package: str) -> None:
    pytest.importorskip("onnxscript")
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    settings = WorkloadSettings(
        model="resnet6", data_settings={"preset": "micro"}, training={"most_steps": 40, "batch": 64, "most_tests": 256}
    )
    workload = Workload.of(settings)
    network = workload.network(None, 1)
    task = task_of(workload.data, settings.training, 1, torch.device("cpu"))
    exact = task.score(network)
    score, floats = controlled_int8_score(network, workload.data, settings.training, 1, compiler)
    assert abs(score - exact) < 0.1 and not floats
    score, floats = controlled_int8_score(network, workload.data, settings.training, 1, compiler, most_lost=-1.0)
    assert score == exact and len(floats) == 6, "no score is a whole better, so all six layers are in floats"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet8", "gpt_tiny"])
def test_a_training_tests_the_network_in_integers(model: str) -> None:
    """A short training, so that scores are far from chance, and those in integers near those in float32."""
    data: dict[str, Any] = {"data_settings": {"preset": "micro"}} if model == "resnet8" else {"data": "pydoc"}
    workload = Workload.of(WorkloadSettings(model=model, training={"most_steps": 48, "batch": 64, "most_tests": 256}, **data))
    record = TrainingRecord.make(workload, None, 1, int8=True)
    assert record.int8_score is not None and (record.int8_score != record.score or model == "resnet8")
    assert abs(record.int8_score - record.score) < (0.05 if model == "resnet8" else 0.01)
    rows = scores_of(rows_of_training(record, "seed1.json", key="original", role="original"))
    assert {one.operator: one.role for one in rows} == {"original": "original", "int8": "baseline"}
    assert {one.operator: one.score for one in rows} == {"original": record.score, "int8": record.int8_score}
    assert {one.flops_share for one in rows} == {1.0}
