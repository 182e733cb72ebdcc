"""A reader of all published data: measurements and operators. It lists missing and damaged files, and reads the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from syno.base.errors import DataError, ParseError
from syno.base.files import ORIGINAL
from syno.model.networks import INT8
from syno.paper.artifact.files import META, TrainingStep, read_latency, read_losses
from syno.paper.artifact.operators import Folder, PublishedEntry, entries, expected_folders, read_folders
from syno.paper.artifact.places import LANGUAGE_LOG, LAYERS_FOLDER, TARGETS, Problem, Target, find_data, missing
from syno.paper.numbers import (
    CASE,
    LANGUAGE_DATA,
    LANGUAGE_MODEL,
    LONG_TRAINING,
    MODELS,
    NAS_PTE,
    STACKED,
    TEST_DATA,
    WRONG_GUARD,
    told,
)
from syno.paper.places import LAYERS, RESNET34
from syno.run.measurement import UNITS, Measurement
from syno.run.rows import perplexity

SEARCHED_SECONDS, SCORED = 1800.0, 0.2  # how long a search trains GPT-2, and the share of its steps whose mean is the score


@dataclass(frozen=True)
class Contents:
    """The content of the published data.

    Attributes:
        measurements: The measurements in the data, then the numbers that only the paper prints.
        operators: The distinct operators.
        losses: The steps of the original GPT-2's training; empty if its log is missing.
        problems: Files and folders that are missing, damaged or contradictory.
    """

    measurements: tuple[Measurement, ...]
    operators: tuple[PublishedEntry, ...]
    losses: tuple[TrainingStep, ...]
    problems: tuple[Problem, ...]


def read(checkout: Path) -> Contents:
    """Return the content of a checkout of the artifact, or of its data folder.

    Raises DataError if it is neither, or has no measurement.
    """
    data = find_data(checkout)
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
    perplexities = [_as_perplexity(one) for one in collected.measurements.values() if one.metric == "loss"]
    expected = [place / META for place, *_ in expected_folders(data)]
    problems += missing(data, [*expected, *(file for file, _ in timings), LANGUAGE_LOG])
    found = (*collected.measurements.values(), *perplexities, *_final_perplexity(losses), *told())
    return Contents(found, tuple(operators.values()), tuple(losses), tuple(problems))


class _Collection:
    """A collection of distinct measurements: the folders of several machines repeat those that depend on no machine."""

    def __init__(self, data: Path, problems: list[Problem]) -> None:
        self.data = data
        self.problems = problems
        self.measurements: dict[tuple[object, ...], Measurement] = {}

    def add(self, measurement: Measurement) -> None:
        key = (
            measurement.operator,
            measurement.model,
            measurement.data,
            measurement.layer,
            measurement.device,
            measurement.compiler,
            measurement.metric,
        )
        first = self.measurements.setdefault(key, measurement)
        if first.value != measurement.value:
            value = f"{measurement.metric} {measurement.value:g} of {measurement.operator}"
            what = f"{value}, but {first.source} has {first.value:g}, which is kept"
            self.problems.append(Problem(place=measurement.source, what=what))

    def time(self, file: PurePosixPath, fields: dict[str, Any]) -> None:
        """Add the latency in a file with these fields, if the file exists."""
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
    """Yield the accuracies, losses and costs of operators in networks. A zero in the data means "not measured"."""
    searched = {(one.meta.path, one.model, one.meta.flops, one.meta.params) for one in folders if one.data != TEST_DATA}
    for folder in folders:
        meta, operator = folder.meta, operators[folder.meta.path]
        found: dict[Any, float | None] = {"accuracy": meta.accuracy, "loss": meta.loss}
        if folder.data != TEST_DATA or (meta.path, folder.model, meta.flops, meta.params) not in searched:
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
    """Yield the path of each expected latency file, and the fields of its measurement."""
    for target in TARGETS:
        shared = {"device": target.device, "compiler": target.compiler}
        for file, fields in _of_baselines(target):
            yield file, shared | fields
        for folder in folders:
            if (folder.machine, folder.data) != (target.machine, TEST_DATA):
                continue
            operator, place = operators[folder.meta.path], folder.place / "perf" / target.folder
            fields = {"operator": operator.name, "operator_id": operator.id, "model": folder.model}
            fields["note"] = WRONG_GUARD if target.compiler == "tvm" else ""
            yield target.network(place, folder.model), {**shared, **fields, "data": TEST_DATA}
            for layer in LAYERS if _has_layers(data, folder) else ():
                yield target.layer(place, layer), {**shared, **fields, "layer": layer}


def _of_baselines(target: Target) -> Iterator[tuple[PurePosixPath, dict[str, Any]]]:
    """Yield the expected latency files and fields of original networks and layers, and of the paper's baselines."""
    for model in MODELS:
        yield (
            target.network(target.originals, model, is_original=True),
            {"operator": ORIGINAL, "model": model, "data": TEST_DATA},
        )
    for layer in LAYERS:
        place = target.layer(target.originals, layer, is_original=True)
        yield place, {"operator": ORIGINAL, "model": RESNET34, "layer": layer}
    for name, folder in NAS_PTE.items():
        around = target.root / "nas-pte" / folder / "perf" / target.folder
        for layer in LAYERS:
            yield target.layer(around, layer), {"operator": name, "model": RESNET34, "layer": layer}
    if target.compiler == "tvm":
        quantized = target.originals / "qresnet18" / "benchmark_results.csv"
        stacked = target.root / "manual_kernels/bs1/Conv2d_Conv1d/perf" / target.folder
        yield quantized, {"operator": INT8, "model": CASE, "data": TEST_DATA}
        yield target.network(stacked, CASE), {"operator": STACKED, "model": CASE, "data": TEST_DATA}


def _has_layers(data: Path, folder: Folder) -> bool:
    """Return whether the operator was measured in single layers, with any compiler."""
    return any((data / folder.place / "perf" / target.folder / LAYERS_FOLDER).is_dir() for target in TARGETS)


def _score(steps: Sequence[TrainingStep]) -> Iterator[Measurement]:
    """Yield GPT-2's loss after the search's training time, a mean over the last steps; nothing if the log is shorter."""
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


def _as_perplexity(loss: Measurement) -> Measurement:
    """Return the perplexity exp(loss) as a measurement of the same training."""
    assert loss.value is not None  # losses of the data are numbers
    fields = {"metric": "perplexity", "value": perplexity(loss.value), "unit": UNITS["perplexity"]}
    return loss.model_copy(update=fields)


def _final_perplexity(steps: Sequence[TrainingStep]) -> Iterator[Measurement]:
    """Yield GPT-2's perplexity at the end of its whole log, from the mean loss of the last steps; nothing for a short log."""
    if steps and steps[-1].seconds > SEARCHED_SECONDS:
        last = [step.loss for step in steps[round((1 - SCORED) * len(steps)) :]]
        yield Measurement.of(
            "perplexity",
            perplexity(sum(last) / len(last)),
            operator=ORIGINAL,
            model=LANGUAGE_MODEL,
            data=LANGUAGE_DATA,
            origin="artifact",
            source=str(LANGUAGE_LOG),
            note=f"{LONG_TRAINING}: of the mean loss of the last {SCORED:.0%} of the {len(steps):,} steps in its log",
        )


def _losses(data: Path, problems: list[Problem]) -> list[TrainingStep]:
    if not (data / LANGUAGE_LOG).exists():
        return []
    try:
        return read_losses(data / LANGUAGE_LOG)
    except ParseError as error:
        problems.append(Problem(place=str(LANGUAGE_LOG), what=str(error)))
        return []
