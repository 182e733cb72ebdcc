"""The data: made or found, and looked at, so that what is wrong with it or with the network shows before a search begins."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, model_validator

from syno.config import Experiment
from syno.evaluate.data_settings import ImagenetSettings
from syno.evaluate.record import Amount, Count, Number, Record, versions

if TYPE_CHECKING:
    from syno.evaluate.workload import Workload

FILE, IMAGENET = "data.json", "imagenet"


class DataRecord(Record):
    """A data set of pictures or of text, and the network on it.

    Attributes:
        data: the data set's name.
        hash: of its pictures and labels, or tokens.
        classes: how many there are; of a text, how many different tokens.
        train_images, test_images: how many pictures there are, or sequences of tokens.
        image_shape: [channels, height, width] of a picture as the network gets it; None for a text.
        length: tokens of a sequence; None for pictures.
        model: the backbone.
        layers: names of the layers that operators replace.
        flops: multiply-adds of the network, for one picture or sequence.
        parameters: of the network.
        versions, date: where and when.
    """

    kind_of_record = "data record"
    again = "run `syno data`"
    passing = frozenset({"date"})
    data: str
    hash: str
    classes: Count
    train_images: Number
    test_images: Number
    image_shape: tuple[Count, Count, Count] | None = None
    length: Count | None = None
    model: str
    layers: tuple[str, ...]
    flops: Amount
    parameters: Number
    versions: dict[str, str]
    date: AwareDatetime

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> DataRecord:
        if (self.image_shape is None) == (self.length is None):
            raise ValueError("a record of pictures has an image_shape, one of a text has a length, and none has both")
        return self


def files_to_convert(experiment: Experiment) -> tuple[Path, ...]:
    """The files that the pictures are read from, where they are ImageNet's for FFCV, which `syno convert imagenet` makes."""
    workload = experiment.workload
    if workload is None or workload.data != IMAGENET:
        return ()
    settings = ImagenetSettings.of(**workload.data_settings)
    return settings.betons if settings.reader == "ffcv" else ()


def prepare(experiment: Experiment, output: Path | None = None) -> DataRecord:
    """Make or load the data, find the layers to replace, and write a record of both.

    Raises:
        SpecError: there is no workload or no layer to replace, or the network is not for such data.
        UnknownNameError: there is no such network or data set.
        DataError: the data is missing or damaged.
    """
    network = experiment.network
    record = _looked_at(network)
    record.write(output or experiment.folder / FILE)
    return record


def _looked_at(network: Workload) -> DataRecord:
    from syno.evaluate.datasets import TokenSet
    from syno.model.substitution import replaceable

    data, settings = network.data, network.settings
    layers = replaceable(network.model(), network.example, settings.layers)
    shape: dict[str, Any] = {"length": data.length} if isinstance(data, TokenSet) else {"image_shape": data.image_shape}
    return DataRecord(
        data=settings.data,
        hash=data.hash,
        classes=data.classes,
        train_images=data.train_count,
        test_images=data.test_count,
        **shape,
        model=settings.model,
        layers=tuple(layer.name for layer in layers),
        flops=network.original.flops / len(network.example),
        parameters=int(network.original.parameters),
        versions=versions(["torch", "numpy"]),
        date=datetime.now(UTC),
    )
