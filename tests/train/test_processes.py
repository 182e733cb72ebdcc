"""One network that several processes train together is that of one process; a process that is lost ends the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_lines import HANGS_AFTER
from torch import nn

from syno.base.errors import DeviceError, ShapeError, SpecError
from syno.config import Experiment
from syno.data import DATASETS, DataSet
from syno.data.contract import Batches, Share, shared
from syno.data.imagenet import _OrderOfShare
from syno.data.pictures import Augmentation
from syno.data.settings import RECIPES
from syno.train.micro_batches import add_gradients
from syno.train.processes import Processes, together
from syno.train.progress import TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.tasks import task_of
from syno.train.training import train
from syno.train.training_record import TrainingRecord

SETTINGS = TrainingSettings(epochs=3, batch=12, clip=1.0, processes=2)
ALONE = SETTINGS.model_copy(update={"processes": 1})


class Network(nn.Module):
    """In double precision, with a weight that is not used. The process is killed at some call in training."""

    def __init__(self, *, normalizes: bool = True, killed_at: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        first, last = (nn.BatchNorm2d(4), nn.BatchNorm1d(5)) if normalizes else (nn.Identity(), nn.Identity())
        parts = (nn.Conv2d(3, 4, 3), first, nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), last)
        self.network = nn.Sequential(*parts).double()
        self.unused = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.calls, self.killed_at = 0, killed_at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        if self.calls == self.killed_at and self.training:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.network(x.double())


def pictures() -> DataSet:
    """Labels of some samples do not count, so that the two shares of a batch count differently."""
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(60, 3, 8, 8, generator=generator), torch.arange(60) % 5
    labels[::7] = 9
    return DataSet("noise", images[:48], labels[:48], images[48:], labels[48:], 5, ignore_index=9)


def augmented_pictures() -> DataSet:
    images, labels = torch.arange(48 * 3 * 64).remainder(256).to(torch.uint8).reshape(48, 3, 8, 8), torch.arange(48) % 5
    settings = RECIPES["paper"].with_(size=None)
    return DataSet("changed", images, labels, images[:4], labels[:4], 5, "", Augmentation.of(settings, images))


def gradients(processes: Processes, micro_batch: int | None) -> list[list[torch.Tensor]]:
    """The loss, gradients and statistics after the first batch: without BatchNorm in parts, with it in one pass."""
    found = []
    for normalizes in (False, True):
        network = Network(normalizes=normalizes)
        task = task_of(pictures(), SETTINGS, 0, torch.device("cpu"), processes.share)
        with processes.synchronized(network, "synchronized"):
            batch, most = next(task.batches.epoch(1)), None if normalizes else micro_batch
            loss = add_gradients(task, processes.joined(network), batch, most, processes=processes)
        assert network.unused.grad is None
        found.append([processes.total(loss), *(one.grad for one in network.network.parameters()), *network.buffers()])
    return found


def trained(processes: Processes, checkpoint: Path, killed_at: int | None) -> TrainingResult:
    network = Network(killed_at=killed_at if processes.number == 1 else None)
    return train(network, pictures(), SETTINGS, checkpoint=checkpoint, checkpoint_seconds=0, processes=processes)


def resumed(processes: Processes, checkpoint: Path) -> tuple[TrainingResult, list[list[torch.Tensor]]]:
    """Also the gradients, since processes take long to start."""
    return trained(processes, checkpoint, None), gradients(processes, 4)


def fails(processes: Processes) -> None:
    if processes.number == 1:
        raise ShapeError("no such shape")
    processes.agreed(0)
    processes.total(torch.ones(()))


@pytest.mark.slow
def test_gradients_and_a_training_are_those_of_one_process_also_when_one_was_killed(tmp_path: Path) -> None:
    expected, checkpoint = train(Network(), pictures(), ALONE), tmp_path / "c"
    with pytest.raises(DeviceError, match=r"^process 2 of 2, .* was killed by SIGKILL .*the same command resumes"):
        together(trained, (checkpoint, 7), 2, "cpu")
    assert checkpoint.exists()
    result, found = together(resumed, (checkpoint,), 2, "cpu")
    assert not checkpoint.exists()
    assert [point.step for point in result.curve] == list(range(1, 13))
    assert [point.loss for point in result.curve] == pytest.approx([point.loss for point in expected.curve], abs=1e-5)
    assert result.scores == expected.scores and result.cpu_seconds > 0
    for one, other in zip(gradients(Processes(), None), found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_an_error_in_one_of_them_is_that_of_all() -> None:
    with pytest.raises(ShapeError, match="^no such shape$"):
        together(fails, (), 2, "cpu")


@pytest.mark.slow
def test_the_command_trains_with_several_which_end_with_it(tmp_path: Path) -> None:
    fields = {
        "workload": {"width": 0.25, "data_settings": {"preset": "micro", "train": 64, "test": 32}},
        "select": {"operators": ["conv2d"]},
        "train": {"training": {"epochs": 1, "batch": 32, "processes": 2, "micro_batch": 8, "batch_norm": "local"}},
        "output": str(tmp_path / "out"),
    }
    config = tmp_path / "two.yaml"
    config.write_text(json.dumps(fields), encoding="utf-8")
    command = [sys.executable, "-m", "syno", "train", str(config), "original"]
    subprocess.run([*command, "--output", str(tmp_path / "r.json")], check=True, timeout=HANGS_AFTER)
    record = TrainingRecord.read(tmp_path / "r.json")
    training = record.workload.training.model_dump()
    assert (record.micro_batch, training["processes"], training["batch_norm"]) == (8, 2, "local")
    endless = {"epochs": 9999, "batch": 32, "processes": 2, "score": "best"}
    config.write_text(json.dumps(fields | {"train": {"training": endless}}), encoding="utf-8")
    process = subprocess.Popen(command)
    wait_until(lambda: any(tmp_path.glob("out/**/*.safetensors")))  # of the best round so far
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    assert len(found) > 2  # two, and Python's tracker of their resources
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path("/proc", one).exists() for one in found))


def wait_until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + HANGS_AFTER
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)


class Plain:
    """Batches that cannot make shares of themselves."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, first: int = 0) -> Iterator[Any]:
        return self.batches.epoch(number, first)


def test_shares_together_are_the_batches() -> None:
    text, augmented = DATASETS["pydoc"](length=16), augmented_pictures()
    for data in (text, augmented):
        batches = data.train_batches(12, seed=0)
        for one in (batches, Plain(batches)):
            first, second = (shared(one, Share(number, 2)) for number in range(2))
            assert len(first) == len(batches)
            for whole, *halves in islice(zip(batches.epoch(2, 1), first.epoch(2, 1), second.epoch(2, 1), strict=True), 2):
                for part, *of in zip(*(one if isinstance(one, tuple) else (one,) for one in (whole, *halves)), strict=True):
                    assert torch.equal(torch.cat(of), part)


def test_ffcv_is_given_the_order_of_a_share() -> None:
    order = SimpleNamespace(sample_order=lambda epoch: range(epoch, epoch + 14))
    found = [_OrderOfShare(order, 4, Share(number, 2)).sample_order(1).tolist() for number in range(2)]
    assert found == [[1, 2, 5, 6, 9, 10], [3, 4, 7, 8, 11, 12]]  # of whole batches


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"batch": 10, "processes": 4}, "do not share a batch of 10 equally"), ({"device": "cuda:1"}, "give device: cuda")],
)
def test_settings_that_cannot_be_shared_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**{"processes": 2, **settings})


def test_only_the_stage_train_takes_several(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="one process trains here"):
        train(Network(), pictures(), SETTINGS)
    with pytest.raises(SpecError, match="give it in train: training"):
        Experiment(name="two", workload={"training": {"processes": 2}})
