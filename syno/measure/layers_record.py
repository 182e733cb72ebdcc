"""The record of a network's layers: a measurement of each distinct replaced layer alone, in one file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from syno.base.extensions import load_extensions
from syno.base.record import Count, versions
from syno.measure import NUMBERED_LAYERS
from syno.measure.network_subject import AnyNetwork, NetworkSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import Device, Line, MeasuredSubject, MeasurementRecord, TuningRecord, in_ms


class MeasuredLayer(BaseModel):
    """The measurement of one layer.

    Attributes:
        name: the name by its sizes, as in the paper: "conv_io64".
        position: index among all replaced layers, from 1: layer L7 of the paper has position 7.
        record: the measurement of the layer alone. Its subject has the layer's name in the network. The status is "misfit" if
            the operator cannot have the layer's sizes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    position: Count
    record: TuningRecord

    @property
    def title(self) -> str:
        """The layer's name in tables: by its size in a network whose layers the paper numbers, else its name in the network."""
        load_extensions()
        subject = self.record.subject
        network = (subject.model, subject.width, subject.image_shape[1:]) if isinstance(subject, NetworkSubject) else None
        is_numbered = network is not None and self.name in NUMBERED_LAYERS.get(network, {})
        return self.name if is_numbered else str(getattr(subject, "layer", None) or self.name)


class LayersRecord(MeasurementRecord):
    """The latencies of the layers of one network, original or with one operator, for one compiler and device.

    Attributes:
        compiler: a name in `COMPILERS`, or the path of a user's own.
        layers: each distinct layer, in the order in which they run.
    """

    kind_of_record = "record of layers"
    again = "run `syno tune layers`"

    compiler: str
    layers: tuple[MeasuredLayer, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_of_one_operator(self) -> LayersRecord:
        for layer in self.layers:
            found = layer.record
            if (found.name, found.operator_id, found.compiler) != (self.name, self.operator_id, self.compiler):
                raise ValueError(f"{layer.name} is a record of {found.name} by {found.compiler}, not of {self.name}")
        return self

    @property
    def measured(self) -> tuple[MeasuredSubject, ...]:
        """The measured layers, each with its settings."""
        return tuple(found for layer in self.layers for found in layer.record.measured)

    @property
    def has_failed(self) -> bool:
        """Whether a layer that the operator fits could not be measured."""
        return any(layer.record.status not in ("ok", "misfit") for layer in self.layers)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each layer: its latency, FLOPs and parameters."""
        for layer in self.layers:
            yield from (row | {"layer": layer.title} for row in layer.record.rows())

    def lines(self, place: str) -> Iterator[Line]:
        """Yield a line for each layer: its latency, or the reason why it has none."""
        for layer in self.layers:
            found, here = layer.record, f"{self.name}, {layer.name}, {place}"
            if found.latency_ms is not None:
                yield Line(f"{here}: {in_ms(found.latency_ms, found.limit_ms)}")
            if found.status != "ok":
                yield Line(f"{here}: {found.status}: {found.reason}", is_problem=True)


def misfit_record(subject: AnyNetwork, reason: str, compiler: str, device: Device, settings: LatencySettings) -> TuningRecord:
    """Return the record of a layer whose sizes the operator cannot have."""
    operator = subject.replacement
    return TuningRecord(
        name=subject.title,
        operator_id=None if operator is None else operator.id,
        subject=subject,
        compiler=compiler,
        device=device,
        settings=settings,
        status="misfit",
        reason=reason,
        versions=versions(()),
        date=datetime.now(UTC),
    )


def numbered(layer: str) -> str:
    """Return the name of a layer, preceded by its number in the paper, if it has one."""
    load_extensions()
    number = next((numbers[layer] for numbers in NUMBERED_LAYERS.values() if layer in numbers), "")
    return f"{number} {layer}".lstrip()
