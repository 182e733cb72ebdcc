"""The measurements in a record of a network's layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syno.measure.layers_record import LayersRecord, MeasuredLayer
from syno.measure.network_subject import NetworkSubject
from syno.results.measurement import Measurement
from syno.results.rows import rows_of_tuning

# The numbers that the paper gives the layers of its ResNet-34.
LAYERS = {
    "conv_io64": "L1",
    "conv_i64_o128": "L7",
    "conv_io128": "L8",
    "residual_i64_o128": "L9",
    "conv_i128_o256": "L16",
    "conv_io256": "L17",
    "residual_i128_o256": "L18",
    "conv_i256_o512": "L29",
    "conv_io512": "L30",
    "residual_i256_o512": "L31",
}
LAYERED = "resnet34"
IMAGE = (224, 224)  # height and width of the pictures for which the paper's layers are named


def rows_of_layers(record: LayersRecord, source: str, **place: Any) -> Iterator[Measurement]:
    """Yield the latency of each layer, and what it costs. Arguments are those of `rows_of_tuning`."""
    for layer in record.layers:
        yield from rows_of_tuning(layer.record, source, **place, layer=layer_name(layer))


def layer_name(layer: MeasuredLayer) -> str:
    """Return the layer's name in tables: the paper's name for layers of its ResNet-34, else the name in the network."""
    subject = layer.record.subject
    if isinstance(subject, NetworkSubject):
        is_the_papers = (subject.model, subject.width, subject.image_shape[1:]) == (LAYERED, 1.0, IMAGE)
        if is_the_papers and layer.name in LAYERS:
            return layer.name
    return str(getattr(subject, "layer", None) or layer.name)
