"""The paths of files in an experiment's folder of results; wildcards of the workflow are in braces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from syno import run
from syno.run import FOLDER, LATENCY, LOSSES, MEASUREMENTS

if TYPE_CHECKING:
    from syno.config import AnyExperiment, Experiment

DATA, FROZEN, SELECTED, REPORT = "data.json", "trials.parquet", "selected.json", "report.html"
SHORTLIST = "shortlist.json"  # of a selection by latency
WORKER = "search/worker{number}.json"
ORIGINAL_TRAINING = "search/original.json"  # of a search whose reward compares with the original
TRAINING = "train/{key}/seed{seed}.json"
WEIGHTS = ".safetensors"  # ending of the file beside a training's record, with the trained weights
RIVAL = "rivals/{rival}.json"  # of one network that a user would make without synthesis, or of a mixture
CHOICE = "choice.json"  # of an operator for each layer
SPEEDUPS = "speedup/{compiler}-{device}.json"  # of the selected operators; beside it is a folder with those that are done
TABLE, FIGURE = f"{FOLDER}/{{name}}.{{ending}}", "figures/{name}.{ending}"
OPERATORS = run.OPERATORS
FORMATS = ("svg", "png", "pdf")  # of figures
TABLES = (MEASUREMENTS, run.SCORES, LATENCY, LOSSES)  # names of the tables of an experiment's own records
SCORES_FILE = TABLE.format(name=run.SCORES, ending="parquet")


def table_files(names: Iterable[str], ending: str = "parquet") -> tuple[str, ...]:
    """Return the paths of the tables with these names in a folder of results."""
    return tuple(TABLE.format(name=name, ending=ending) for name in names)


def figure_files(formats: Iterable[str]) -> tuple[str, ...]:
    """Return the path patterns of a figure in these formats in a folder of results."""
    return tuple(FIGURE.format(name="{name}", ending=ending) for ending in formats)


def worker_file(experiment: AnyExperiment, number: int) -> Path:
    """Return the file of the record of worker `number`."""
    return experiment.folder / WORKER.format(number=number)


def training_file(experiment: Experiment, key: str, seed: int) -> Path:
    """Return the file of the record of a network's training with a seed."""
    return experiment.folder / TRAINING.format(key=key, seed=seed)


def trained_seeds(experiment: Experiment, key: str) -> list[int]:
    """Return the seeds of a network's trainings in increasing order, including seeds that the settings no longer have."""
    beginning = training_file(experiment, key, 0).stem.removesuffix("0")
    names = (file.stem.removeprefix(beginning) for file in training_file(experiment, key, 0).parent.glob(f"{beginning}*.json"))
    return sorted(int(name) for name in names if name.isdecimal())


def measurement_file(pattern: str, experiment: Experiment, key: str, compiler: str, device: str) -> Path:
    """Return the file of a measurement's record from a path pattern; the compiler is "" for kinds without compilers."""
    from syno.measure.compilers import name_in_files  # takes half a second, which the help page need not wait for

    part = name_in_files(compiler) if compiler else ""
    return experiment.folder / pattern.format(key=key, compiler=part, device=in_a_name(device))


def speedups_file(experiment: Experiment, compiler: str, device: str) -> Path:
    """Return the file with the speedups of the selected operators, measured with a compiler on a device."""
    return measurement_file(SPEEDUPS, experiment, "", compiler, device)


def trials_folder(experiment: Experiment, device: str) -> Path:
    """Return the folder with TVM's trials on a device, which all measurements there use."""
    return experiment.folder / "tvm" / in_a_name(device)


def in_a_name(device: str) -> str:
    """Return a device's name for file names, without dashes: the last dash of COMPILER-DEVICE separates both. It is unique."""
    return device.replace(":", "").replace("-", ".")


def device_named(experiment: Experiment, part: str) -> str:
    """Return the device whose name in files is `part` (`in_a_name`)."""
    devices: list[str] = [*experiment.tune.device_names, *(experiment.goal_pair or ())[1:]]
    return next(device for device in devices if in_a_name(device) == part)


def compiler_in_files(experiment: Experiment, part: str) -> str:
    """Return the compiler whose name in files is `part`."""
    from syno.measure.compilers import name_in_files

    compilers: list[str] = [*experiment.tune.all_compilers, *(experiment.goal_pair or ())[:1]]
    return next(compiler for compiler in compilers if name_in_files(compiler) == part)
