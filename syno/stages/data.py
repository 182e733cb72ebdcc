"""The data: made or found, and looked at, so that what is wrong with it or with the network shows before a search begins."""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime

from syno.config import Experiment
from syno.evaluate.record import Record, versions

FILE = "data.json"


class DataRecord(Record):
    """A data set, and the network on it.

    Attributes:
        data: the data set's name.
        hash: of its pictures and labels.
        classes, train_images, test_images: how many there are.
        image_shape: [channels, height, width].
        model: the backbone.
        layers: names of the layers that operators replace.
        flops: multiply-adds of the network, for one picture.
        parameters: of the network.
        versions, date: where and when.
    """

    kind_of_record = "data record"
    again = "run `syno data`"
    passing = frozenset({"date"})
    data: str
    hash: str
    classes: int
    train_images: int
    test_images: int
    image_shape: tuple[int, int, int]
    model: str
    layers: tuple[str, ...]
    flops: float
    parameters: int
    versions: dict[str, str]
    date: AwareDatetime


def prepare(experiment: Experiment, output: Path | None = None) -> DataRecord:
    """Make or load the data, find the layers to replace, and write a record of both.

    Raises SpecError if there is no workload or no layer to replace, UnknownNameError if there is no such network or data set.
    """
    from datetime import UTC, datetime

    from syno.model.substitution import replaceable

    network = experiment.network
    data, original, batch = network.data, network.original, len(network.example)
    layers = replaceable(network.model(), network.example, network.settings.layers)
    record = DataRecord(
        data=network.settings.data,
        hash=data.hash,
        classes=data.classes,
        train_images=len(data.train_labels),
        test_images=len(data.test_labels),
        image_shape=data.image_shape,
        model=network.settings.model,
        layers=tuple(layer.name for layer in layers),
        flops=original.flops / batch,
        parameters=int(original.parameters),
        versions=versions(["torch", "numpy"]),
        date=datetime.now(UTC),
    )
    record.write(output or experiment.folder / FILE)
    return record
