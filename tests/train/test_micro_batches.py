"""A batch that goes through the network in parts: the gradients and the training of the whole batch, in less memory."""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from syno.data import DATASETS, DataSet, TokenSet
from syno.train import tasks
from syno.train.micro_batches import USED, add_gradients, chosen, fitting
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.tasks import Task, task_of
from syno.train.training import train
from syno.train.training_record import TrainingRecord
from syno.train.workload import Workload

CPU = torch.device("cpu")


class InDouble(nn.Module):
    """A network in double precision for data in single precision. On more than `most` samples, memory does not suffice."""

    def __init__(self, network: nn.Module, most: int | None = None) -> None:
        super().__init__()
        self.network, self.most = network.double(), most

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.most is not None and len(x) > self.most and self.training:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. Of GPU 0")
        return self.network(x if x.dtype == torch.int64 else x.double())


def network(**options: Any) -> InDouble:
    torch.manual_seed(0)
    return InDouble(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)), **options)


@pytest.fixture(scope="module")
def pictures() -> DataSet:
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(60, 3, 8, 8, generator=generator), torch.arange(60) % 5
    return DataSet("noise", images[:40], labels[:40], images[40:], labels[40:], 5)


def positions() -> tuple[nn.Module, DataSet]:
    """Labels of pixels, of which some samples have fewer that count."""
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(12, 3, 4, 4, generator=generator), torch.randint(3, (12, 4, 4), generator=generator)
    labels[torch.rand(12, 4, 4, generator=generator) < torch.linspace(0, 1, 12)[:, None, None]] = 255
    data = DataSet("pixels", images[:10], labels[:10], images[10:] * 0, labels[:2], 3, ignore_index=255)
    return InDouble(nn.Conv2d(3, 3, 1)), data


def text() -> tuple[nn.Module, TokenSet]:
    return InDouble(nn.Sequential(nn.Embedding(256, 8), nn.Linear(8, 256))), DATASETS["pydoc"](length=16)


@pytest.mark.parametrize("kind", ["pictures", "positions", "text"])
@pytest.mark.parametrize("most", [3, 4, 5, 99])  # of 10
def test_gradients_are_those_of_the_whole_batch(pictures: DataSet, kind: str, most: int) -> None:
    model, data = {"pictures": lambda: (network(), pictures), "positions": positions, "text": text}[kind]()
    task: Task = task_of(data, TrainingSettings(batch=10, label_smoothing=0.1), 0, CPU)
    batch = next(task.batches.epoch(1))
    found = []
    for size in (None, most):
        model.zero_grad()
        loss = add_gradients(task, model, batch, size)
        found.append([loss, *(weight.grad for weight in model.parameters())])
    for whole, in_parts in zip(*found, strict=True):
        torch.testing.assert_close(in_parts, whole, rtol=1e-10, atol=1e-14)


RECIPES: dict[str, dict[str, Any]] = {
    "sgd": {"clip": 0.1, "schedule": "cosine"},
    "adamw": {"optimizer": "adamw", "learning_rate": 1e-2, "score": "best"},
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_training_is_that_with_whole_batches(pictures: DataSet, recipe: dict[str, Any]) -> None:
    settings = TrainingSettings(epochs=3, batch=10, **recipe)
    expected = train(network(), pictures, settings)
    result = train(network(), pictures, settings.model_copy(update={"micro_batch": 4}))
    assert (result.steps, result.scores, result.micro_batch) == (12, expected.scores, 4)
    assert [point.loss for point in result.curve] == pytest.approx([point.loss for point in expected.curve], abs=1e-5)


def test_auto_takes_half_as_many_until_they_fit_and_goes_on_with_them(pictures: DataSet, tmp_path: Path) -> None:
    settings = TrainingSettings(epochs=3, batch=10, micro_batch="auto")
    expected = train(network(), pictures, settings)
    assert expected.micro_batch == 10
    kept: dict[str, Any] = {"checkpoint": tmp_path / "c", "checkpoint_seconds": 0}

    def interrupt(number: int, score: float) -> None:
        raise KeyboardInterrupt

    with (
        pytest.warns(UserWarning, match="step 1: out of memory with a micro_batch of 10, so it is 5"),
        pytest.warns(UserWarning, match="step 1: out of memory with a micro_batch of 5, so it is 3"),
        pytest.raises(KeyboardInterrupt),
    ):
        train(network(most=4), pictures, settings, report=interrupt, **kept)
    resumed = train(network(), pictures, settings, **kept)  # though all would fit now
    assert resumed.micro_batch == 3
    assert [point.loss for point in resumed.curve] == pytest.approx([point.loss for point in expected.curve], abs=1e-5)


@pytest.mark.parametrize("micro_batch", [None, 8])
def test_memory_that_does_not_suffice_for_what_was_asked_is_an_error(pictures: DataSet, micro_batch: int | None) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        train(network(most=4), pictures, TrainingSettings(batch=10, micro_batch=micro_batch))


@pytest.mark.parametrize(("memory", "found"), [(8168, 1024), (8167, 512), (1112, 16), (1111, 8), (100, 1)])
def test_auto_takes_what_fits_linearly(memory: float, found: int) -> None:
    """Seven bytes for each sample, and 1,000 whatever their number."""
    assert fitting(1024, 16, 1000 + 16 * 7, 1000 + 32 * 7, memory) == found


def test_auto_measures_two_small_parts_and_leaves_the_network_as_it_was(
    pictures: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a pretended GPU, whose memory is 100 bytes for each sample, weights beside."""
    seen: list[int] = []
    model = nn.Sequential(network(), nn.BatchNorm1d(5).double())
    model.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    before, weights = deepcopy(model.state_dict()), sum(one.nbytes for one in model.parameters())
    task = task_of(pictures, TrainingSettings(batch=40, micro_batch="auto"), 0, CPU)
    batch = next(task.batches.epoch(1))
    task.device = torch.device("cuda")
    pretended = {
        "reset_peak_memory_stats": lambda device: None,
        "max_memory_allocated": lambda device: 100 * seen[-1],
        "mem_get_info": lambda device: ((2 * weights + 1000) / USED, None),
        "memory_reserved": lambda device: 0,
    }
    for name, value in pretended.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    monkeypatch.setattr(tasks, "autocast", lambda settings, device: nullcontext())
    assert chosen(task, model, batch) == 10 and seen == [2, 4]
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_record_has_what_was_used_and_settings_without_it_are_as_before() -> None:
    fields: dict[str, Any] = {"width": 0.25, "data_settings": {"preset": "micro", "train": 64, "test": 32}}
    workload = Workload.of(WorkloadSettings(**fields, training={"epochs": 1, "batch": 32, "micro_batch": "auto"}))
    record = TrainingRecord.make(workload, None, 0)
    assert (record.micro_batch, record.workload.training.micro_batch) == (32, "auto")
    assert "micro_batch" not in TrainingSettings().model_dump()
    assert TrainingSettings(**TrainingSettings(micro_batch=8).model_dump()).micro_batch == 8
