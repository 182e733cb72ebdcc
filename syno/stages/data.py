"""The data: made or found, and looked at, so that what is wrong with it or with the network shows before a search begins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, model_validator

from syno.base.record import Amount, Count, Number, Record, versions
from syno.config import Experiment
from syno.data.settings import ImagenetSettings

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
        layers_that_stay: the other layers of that kind, each with the reason why it isn't replaced.
        layers_with_bias: those to replace whose bias is dropped: operators have none.
        flops: multiply-adds of the network, for one picture or sequence.
        parameters: of the network.
        rest_flops, rest_parameters: the same outside of the layers to replace: a network with an operator has more than that.
            None in records of earlier versions.
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
    layers_that_stay: Mapping[str, str] = {}
    layers_with_bias: tuple[str, ...] = ()
    flops: Amount
    parameters: Number
    rest_flops: Amount | None = None
    rest_parameters: Number | None = None
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
    """Make or load the data, check what every later stage rests on, and write a record of the data and the network.

    Checked are the layers to replace, the budget and the space, as a search checks them, and one step of training on the device
    of the workload. If one of these fails, no record is written.

    Raises:
        SpecError: there is no workload, no layer to replace, no operator within the budget or no such device, or the network is
            not for such data.
        UnknownNameError: there is no such network or data set.
        DataError: the data is missing or damaged, or not what a training takes.
        ShapeError: the network's output is not one for the data, or the batch is larger than the data set.
        TrainingError: the device's memory does not suffice.
        UserCodeError: a function of the user's own failed.
    """
    record = look(experiment)
    if experiment.searches:
        from syno.space.space import Space
        from syno.space.state_graph import check_not_empty

        check_not_empty(Space(experiment.operator_spec))
    from syno.train.first_step import try_step

    try_step(experiment.network)
    record.write(output or experiment.folder / FILE)
    return record


def look(experiment: Experiment) -> DataRecord:
    """Make or load the data, find the layers to replace and count costs. Nothing is trained or written; raises as `prepare`."""
    from syno.data import TokenSet
    from syno.model.extraction import replaceable, sorted_out

    network = experiment.network
    data, settings, pictures = network.data, network.settings, len(network.example)
    model = network.model()
    layers = replaceable(model, network.example, settings.layers)
    _, stay = sorted_out(model, network.example, settings.layers)
    rest = network.rest
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
        layers_that_stay=stay,
        layers_with_bias=tuple(layer.name for layer in layers if layer.module.bias is not None),
        flops=network.original.flops / pictures,
        parameters=int(network.original.parameters),
        rest_flops=rest.flops / pictures,
        rest_parameters=int(rest.parameters),
        versions=versions(["torch", "numpy"]),
        date=datetime.now(UTC),
    )
