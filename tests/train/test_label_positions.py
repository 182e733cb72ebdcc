"""Samples of any shape, and a label for each position: batches, loss, score and errors."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest
import torch
from torch import nn

from syno.base.errors import DataError, ShapeError
from syno.data import DataSet
from syno.data.pictures import Augmentation
from syno.data.settings import AugmentationSettings
from syno.measure.network_subject import NetworkSubject
from syno.train.settings import TrainingSettings
from syno.train.tasks import PictureTask, task_of

CLASSES = 3
SHAPES = [((2, 7), ()), ((2, 7), (7,)), ((3, 4, 6), (4, 6)), ((1, 3, 4, 5), (3, 4, 5)), ((5,), ()), ((2, 6), (3,))]


def data_of(shape: tuple[int, ...], positions: tuple[int, ...], **more: Any) -> DataSet:
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(24, *shape, generator=generator)
    labels = torch.randint(CLASSES, (24, *positions), generator=generator)
    return DataSet("any", samples[:16], labels[:16], samples[16:], labels[16:], CLASSES, **more)


class Table(nn.Module):
    """A network whose logits follow from a sample's first number: [n, ...] -> [n, classes, *positions]."""

    def __init__(self, positions: tuple[int, ...], classes: int = CLASSES) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(classes, *positions, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x.flatten(1)[:, 0]).reshape(-1, *(1,) * self.table.dim()) * self.table


def task_for(data: DataSet, **settings: Any) -> PictureTask:
    task = task_of(data, TrainingSettings(batch=8, **settings), 0, torch.device("cpu"))
    assert isinstance(task, PictureTask)
    return task


@pytest.mark.parametrize(("shape", "positions"), SHAPES)
def test_loss_and_score_are_those_of_a_plain_calculation(shape: tuple[int, ...], positions: tuple[int, ...]) -> None:
    data, network = data_of(shape, positions), Table(positions)
    assert (data.image_shape, data.label_shape) == (shape, positions)
    task = task_for(data)
    samples, labels = next(iter(task.batches.epoch(1)))
    task.check((samples, labels))
    # Each label by itself: minus the logarithm of its share.
    logits = network(samples).reshape(8, CLASSES, -1)
    flat = labels.reshape(8, -1)
    losses = [
        -torch.log(logits[n, :, place].exp()[flat[n, place]] / logits[n, :, place].exp().sum())
        for n in range(8)
        for place in range(flat.shape[1])
    ]
    mean = float(torch.stack(losses).mean().detach())
    assert float(task.loss(network, (samples, labels)).detach()) == pytest.approx(mean, rel=1e-5)
    with torch.no_grad():
        best = network(data.test_images).argmax(1)
    right = sum(int(a == b) for a, b in zip(best.flatten(), data.test_labels.flatten(), strict=True))
    assert task.score(network) == right / data.test_labels.numel()


def test_logits_that_are_not_finite_give_no_score() -> None:
    network = Table((7,))
    with torch.no_grad():
        network.table[0, 3] = float("nan")
    assert isnan(task_for(data_of((2, 7), (7,))).score(network))


@pytest.mark.parametrize(
    ("positions", "made", "message"),
    [
        ((7,), (), r"output has the shape \[8, 3\]; for 3 classes at each position it must be \[8, 3, 7\]"),
        ((), (7,), r"output has the shape \[8, 3, 7\]; for 3 classes it must be \[8, 3\]"),
        ((7,), (6,), r"output has the shape \[8, 3, 6\]; for 3 classes at each position it must be \[8, 3, 7\]"),
    ],
)
def test_outputs_of_another_shape_are_errors(positions: tuple[int, ...], made: tuple[int, ...], message: str) -> None:
    task = task_for(data_of((2, 7), positions))
    with pytest.raises(ShapeError, match=message):
        task.loss(Table(made), next(iter(task.batches.epoch(1))))


def test_fewer_classes_than_the_data_has() -> None:
    task = task_for(data_of((2, 7), (7,)))
    with pytest.raises(ShapeError, match=r"\[8, 2, 7\]; .*3 classes .*\[8, 3, 7\]"):
        task.loss(Table((7,), classes=2), next(iter(task.batches.epoch(1))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"test_labels": torch.zeros(4, 5, dtype=torch.int64)},
            r"test_labels has the shape \[4, 5\]; it must be \[4, 6\]: one label for",
        ),
        ({"train_labels": torch.zeros(3, 6, dtype=torch.int64)}, r"train_labels has the shape \[3, 6\]; it must be \[4, 6\]"),
        ({"train_labels": torch.full((4, 6), 2)}, r"train_labels is from 2 to 2; with 2 classes"),
        ({"train_labels": torch.zeros(4, 0, dtype=torch.int64)}, r"train_labels has the shape \[4, 0\]"),
        ({"test_images": torch.zeros(4, 1, 7)}, r"test_images has the shape \[4, 1, 7\]; it must be \[n, 1, 6\]"),
        ({"train_images": torch.zeros(4, 1, 0)}, r"train_images has the shape \[4, 1, 0\]"),
        (
            {"augmentation": Augmentation(AugmentationSettings(), (0.0,), (1.0,))},
            r"the augmentation is for pictures \[n, channels, height, width\] with labels \[n\]",
        ),
    ],
)
def test_labels_of_wrong_shapes_are_errors(change: dict[str, Any], message: str) -> None:
    images, labels = torch.zeros(4, 1, 6), torch.zeros(4, 6, dtype=torch.int64)
    fields = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    with pytest.raises(DataError, match=message):
        DataSet(name="mine", classes=2, **{**fields, **change})


def test_labels_of_a_stream_that_does_not_say_their_shape() -> None:
    task = task_for(data_of((2, 7), ()))
    with pytest.raises(DataError, match=r"must be \[8\]"):
        task.check((torch.zeros(8, 2, 7), torch.zeros(8, 7, dtype=torch.int64)))


@pytest.mark.parametrize(("shape", "positions"), [((2, 7), ()), ((3, 4, 6), (4, 6))])
def test_mirrored_tests_are_for_pictures_with_one_label(shape: tuple[int, ...], positions: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"flip_tests: false"):
        task_for(data_of(shape, positions), flip_tests=True)


@pytest.mark.parametrize(("shape", "is_last"), [((1, 9), False), ((3, 8, 8), True), ((1, 4, 4, 4), False)])
def test_only_pictures_are_channels_last(shape: tuple[int, ...], is_last: bool) -> None:
    data = data_of(shape, ())
    samples, _ = next(iter(task_for(data, channels_last=True).batches.epoch(1)))
    assert len(shape) != 3 or samples.is_contiguous(memory_format=torch.channels_last)
    subject = NetworkSubject(model="mine:net", classes=2, image_shape=shape, memory_format="channels_last")
    assert (subject.layout() is torch.channels_last) == is_last


def test_ignored_labels_count_neither_in_the_loss_nor_in_the_accuracy() -> None:
    whole, network = data_of((3, 4, 6), (4, 6)), Table((4, 6))
    train, test = whole.train_labels.clone(), whole.test_labels.clone()
    train[:, :2], test[:, 1:3] = 255, 255
    fields = (whole.train_images, train, whole.test_images, test, CLASSES)
    with pytest.raises(DataError, match=r"from 0 to 255; .*ignore_index=255"):
        DataSet("any", *fields)
    data = DataSet("any", *fields, ignore_index=255)
    task = task_for(data)
    task.check(next(iter(task.batches.epoch(1))))
    samples, labels = data.train_images[:8], train[:8]
    plain = nn.functional.cross_entropy(network(samples)[:, :, 2:], labels[:, 2:])
    assert torch.allclose(task.loss(network, (samples, labels)), plain)
    assert float(task.loss(network, (samples, torch.full_like(labels, 255))).detach()) == 0
    counted = test != 255
    assert task.score(network) == float(((network(data.test_images).argmax(1) == test) & counted).sum() / counted.sum())
