"""Reading all of the published data: measurements and operators. What is missing or damaged is told, and the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from syno.artifact.files import META, Step, read_latency, read_losses
from syno.artifact.operators import IMAGENET, Folder, PublishedEntry, entries, expected_folders, read_folders
from syno.artifact.paper import LANGUAGE_DATA, LANGUAGE_MODEL, told
from syno.artifact.places import (
    CASE,
    INT8,
    LANGUAGE_LOG,
    LAYERED,
    LAYERS,
    LAYERS_FOLDER,
    MODELS,
    NAS_PTE,
    STACKED,
    TARGETS,
    Target,
)
from syno.artifact.problems import Problem, find_data, missing
from syno.base.errors import DataError, ParseError
from syno.base.names import ORIGINAL
from syno.results.measurement import Measurement

WRONG_GUARD = "of the published TVM code, in which the bounds check of Unfold is wrong: such kernels read mostly zeros"

SEARCHED_SECONDS, SCORED = 1800.0, 0.2  # how long a search trains GPT-2, and the share of its steps whose mean is the score


@dataclass(frozen=True)
class Contents:
    """What the published data holds.

    Attributes:
        measurements: of the data, then what the paper tells beside.
        operators: each one once.
        losses: the steps of GPT-2's training as it is; empty if its log is not there.
        problems: what is missing, damaged or contradictory.
    """

    measurements: tuple[Measurement, ...]
    operators: tuple[PublishedEntry, ...]
    losses: tuple[Step, ...]
    problems: tuple[Problem, ...]


def read(given: Path) -> Contents:
    """Read a checkout of the artifact, or its data folder.

    Raises DataError if it is none, or nothing can be read of it.
    """
    data = find_data(given)
    problems: list[Problem] = []
    folders = list(read_folders(data, problems))
    operators = entries(data, folders, problems)
    collected = _Collection(data, problems)
    for measurement in _figures(folders, operators):
        collected.add(measurement)
    timings = list(_timings(data, folders, operators))
    for file, fields in timings:
        collected.time(file, fields)
    if not collected.measurements:
        raise DataError(f"{data} has the folders of the paper's artifact, but no measurement in them: copy it again, whole")
    losses = _losses(data, problems)
    for measurement in _score(losses):
        collected.add(measurement)
    expected = [place / META for place, *_ in expected_folders(data)]
    problems += missing(data, [*expected, *(file for file, _ in timings), LANGUAGE_LOG])
    return Contents((*collected.measurements.values(), *told()), tuple(operators.values()), tuple(losses), tuple(problems))


class _Collection:
    """Measurements, each one once: the folders of several machines repeat what is none of a machine."""

    def __init__(self, data: Path, problems: list[Problem]) -> None:
        self.data = data
        self.problems = problems
        self.measurements: dict[tuple[object, ...], Measurement] = {}

    def add(self, found: Measurement) -> None:
        key = (found.operator, found.model, found.data, found.layer, found.device, found.compiler, found.metric)
        first = self.measurements.setdefault(key, found)
        if first.value != found.value:
            what = f"{found.metric} {found.value:g} of {found.operator}, but {first.source} has {first.value:g}, which is kept"
            self.problems.append(Problem(place=found.source, what=what))

    def time(self, file: PurePosixPath, fields: dict[str, Any]) -> None:
        """Add a latency, if its file is there."""
        if not (self.data / file).exists():
            return
        try:
            latency = read_latency(self.data / file)
        except ParseError as error:
            self.problems.append(Problem(place=str(file), what=str(error)))
            return
        self.add(
            Measurement.of(
                "latency", latency.milliseconds, repeats=latency.repeats, origin="artifact", source=str(file), **fields
            )
        )


def _figures(folders: Sequence[Folder], operators: dict[str, PublishedEntry]) -> Iterator[Measurement]:
    """Accuracies, losses and costs. Zero is what was not measured."""
    searched = {(one.meta.path, one.model, one.meta.flops, one.meta.params) for one in folders if one.data != IMAGENET}
    for folder in folders:
        meta, operator = folder.meta, operators[folder.meta.path]
        found: dict[Any, float | None] = {"accuracy": meta.accuracy, "loss": meta.loss}
        if folder.data != IMAGENET or (meta.path, folder.model, meta.flops, meta.params) not in searched:
            found |= {"flops": meta.flops, "parameters": meta.params}  # those in ImageNet's folders are CIFAR's, mostly
        for metric, value in found.items():
            if value:
                yield Measurement.of(
                    metric,
                    value,
                    operator=operator.name,
                    operator_id=operator.id,
                    model=folder.model,
                    data=folder.data,
                    origin="artifact",
                    source=str(folder.file),
                )


def _timings(
    data: Path, folders: Sequence[Folder], operators: dict[str, PublishedEntry]
) -> Iterator[tuple[PurePosixPath, dict[str, Any]]]:
    """The files of all latencies that should be there, and what each is of."""
    for target in TARGETS:
        shared = {"device": target.device, "compiler": target.compiler}
        for file, fields in _of_baselines(target):
            yield file, shared | fields
        for folder in folders:
            if (folder.machine, folder.data) != (target.machine, IMAGENET):
                continue
            operator, place = operators[folder.meta.path], folder.place / "perf" / target.folder
            fields = {"operator": operator.name, "operator_id": operator.id, "model": folder.model}
            fields["note"] = WRONG_GUARD if target.compiler == "tvm" else ""
            yield target.network(place, folder.model), {**shared, **fields, "data": IMAGENET}
            for layer in LAYERS if _has_layers(data, folder) else ():
                yield target.layer(place, layer), {**shared, **fields, "layer": layer}


def _of_baselines(target: Target) -> Iterator[tuple[PurePosixPath, dict[str, Any]]]:
    """Of networks and layers as they are, and of what the paper compares with."""
    for model in MODELS:
        yield (
            target.network(target.originals, model, is_original=True),
            {"operator": ORIGINAL, "model": model, "data": IMAGENET},
        )
    for layer in LAYERS:
        place = target.layer(target.originals, layer, is_original=True)
        yield place, {"operator": ORIGINAL, "model": LAYERED, "layer": layer}
    for name, folder in NAS_PTE.items():
        around = target.root / "nas-pte" / folder / "perf" / target.folder
        for layer in LAYERS:
            yield target.layer(around, layer), {"operator": name, "model": LAYERED, "layer": layer}
    if target.compiler == "tvm":
        quantized = target.originals / "qresnet18" / "benchmark_results.csv"
        stacked = target.root / "manual_kernels/bs1/Conv2d_Conv1d/perf" / target.folder
        yield quantized, {"operator": INT8, "model": CASE, "data": IMAGENET}
        yield target.network(stacked, CASE), {"operator": STACKED, "model": CASE, "data": IMAGENET}


def _has_layers(data: Path, folder: Folder) -> bool:
    """Whether its latencies in single layers were measured: with any compiler."""
    return any((data / folder.place / "perf" / target.folder / LAYERS_FOLDER).is_dir() for target in TARGETS)


def _score(steps: Sequence[Step]) -> Iterator[Measurement]:
    """GPT-2's loss as a training in the search would have ended: the mean of the last steps. Nothing of a shorter log."""
    seen = [step.loss for step in steps if step.seconds <= SEARCHED_SECONDS]
    if steps and steps[-1].seconds > SEARCHED_SECONDS:
        last = seen[round((1 - SCORED) * len(seen)) :]
        yield Measurement.of(
            "loss",
            sum(last) / len(last),
            operator=ORIGINAL,
            model=LANGUAGE_MODEL,
            data=LANGUAGE_DATA,
            origin="artifact",
            source=str(LANGUAGE_LOG),
            note=f"mean of the last {SCORED:.0%} of the steps in the first {SEARCHED_SECONDS / 60:g} minutes",
        )


def _losses(data: Path, problems: list[Problem]) -> list[Step]:
    if not (data / LANGUAGE_LOG).exists():
        return []
    try:
        return read_losses(data / LANGUAGE_LOG)
    except ParseError as error:
        problems.append(Problem(place=str(LANGUAGE_LOG), what=str(error)))
        return []
