"""Measurements of single layers: a record of all distinct replaced layers of a network, for each compiler and device.

Until all layers are measured, each has a file of its own in a folder beside the record, so that an interrupted job goes on
where it was. The folder's name depends on everything that the measurements depend on.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import MisfitError, SpecError
from syno.config import Experiment
from syno.stages.operators import key_of
from syno.stages.places import layers_file
from syno.stages.tune import measured, network_to_measure

if TYPE_CHECKING:
    from syno.measure.layers_record import LayersRecord
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
    from syno.measure.tuning_record import Device, TuningRecord
    from syno.model.geometry import Layer

DIGITS = 12  # of the hash in the name of the folder


def tune_layers(experiment: Experiment, given: str, compiler: str, device: str, output: Path | None = None) -> LayersRecord:
    """Compile and measure each distinct replaced layer of the network, as it is or as an operator, and write a record.

    A layer that the operator does not fit, and one that cannot be compiled or measured, is in the record with the reason. A
    call that was interrupted goes on at the layer where it was.

    Arguments and exceptions are those of `syno.stages.tune.tune`.
    """
    from syno.measure.layers_record import LayersRecord, MeasuredLayer, misfit_record
    from syno.model.extraction import distinct_layers

    network = network_to_measure(experiment, given, compiler, device)
    file = output or layers_file(experiment, key_of(experiment, given), compiler, device)
    done = file.with_suffix(f".{_digest(experiment, network, compiler, device)}")
    original = network.backbone()
    layers, found = distinct_layers(original, network.example(), network.layers), []
    for number, layer in enumerate(layers, 1):
        kept = done / f"{layer.layer.name}.json"
        record = _finished(kept)
        if record is None:
            title = f"{given}, {layer.name} ({number} of {len(layers)}), {compiler} on {device}"
            subject = network.model_copy(update={"layer": layer.layer.name})
            reason = _misfit(network, layer.layer, getattr(original, "causal", False))
            if reason is None:
                record = measured(experiment, subject, compiler, device, title)
            else:
                there = _place(experiment, compiler, device)
                record = misfit_record(subject, reason, compiler, there, experiment.tune.latency)
            record.write(kept)
        found.append(MeasuredLayer(name=layer.name, position=layer.position, record=record))
    first = found[0].record
    whole = LayersRecord(name=first.name, operator_id=first.operator_id, compiler=compiler, layers=tuple(found))
    whole.write(file)
    for folder in file.parent.glob(f"{file.stem}.*/"):  # of earlier settings, too
        shutil.rmtree(folder, ignore_errors=True)
    return whole


def _digest(experiment: Experiment, network: NetworkSubject | LanguageModelSubject, compiler: str, device: str) -> str:
    """Return a hash of everything that the measurements depend on."""
    parts = (experiment.part("tune"), network.model_dump_json(), compiler, device, experiment.tune.made_for(device))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGITS]


def _finished(kept: Path) -> TuningRecord | None:
    """Return the record of a layer that was measured before; None if there is none, or it is damaged."""
    from syno.measure.tuning_record import TuningRecord

    with suppress(SpecError):
        return TuningRecord.read(kept)
    return None


def _place(experiment: Experiment, compiler: str, device: str) -> Device:
    """Return the device as records have it."""
    from syno.measure.machine import device_name
    from syno.measure.tuning_record import Device

    remote, threads = experiment.tune.device(device, compiler), experiment.tune.latency.threads
    if remote is not None:
        return Device(kind=remote.kind, name=device, threads=threads)
    return Device(kind=device.partition(":")[0], name=device_name(device), threads=threads)


def _misfit(network: NetworkSubject | LanguageModelSubject, layer: Layer, is_causal: bool) -> str | None:
    """Return why the operator cannot have the sizes of the layer; None if it can, or there is no operator."""
    import torch

    from syno.model.substitution import substitute

    operator = network.replacement
    if operator is None:
        return None
    example = torch.zeros(layer.own_input)
    try:
        substitute(layer.module, operator, example, where=lambda _: None, causal=is_causal, keep_stem=False)
    except MisfitError as error:
        return str(error)
    return None
