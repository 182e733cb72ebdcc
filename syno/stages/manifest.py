"""The manifest of a folder of results: a checksum of every file, so that damage shows and copies are known to be whole.

The workflow writes it when it ends, and compares files with it when it starts. It also holds when each file was written, which
copies lose, and of which settings it is, which Snakemake knows only in the folder where it ran.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from syno.base.errors import SpecError, SynoError
from syno.base.record import Record
from syno.config import Experiment
from syno.config.experiment import Part
from syno.config.files import KEPT
from syno.stages import jobs

FILE = "manifest.json"
RECORDS = ("search/*.json", "train/*/*.json", "tune/*/*.json", "data.json", "selected.json", "trials.parquet")
OF_PUBLISHED = ("artifact.json", "measurements.json")
OPERATORS = "operators/*.txt"
TIMES_OF_JOBS = "benchmark/**/*.tsv"  # no results, but Snakemake compares when these files were written, too
STAGES: dict[str, Part] = {
    **{"data.json": "data", "selected.json": "select"},
    **{"search": "search", "train": "train", "tune": "tune"},  # folders
}


class Entry(BaseModel):
    """The checksum, time and settings of one file.

    Attributes:
        sha256: its checksum.
        modified: when it was written, in nanoseconds since 1970.
        settings: a checksum of the settings that it depends on; empty if it depends on other files only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    sha256: str
    modified: int
    settings: str


class Manifest(Record):
    """The files of a folder of results, by their paths in it."""

    kind_of_record = "manifest"
    again = "run `snakemake`"
    files: dict[str, Entry]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder of results; None if there is none, or it is damaged."""
    try:
        return Manifest.read(folder / FILE)
    except SynoError:
        return None


def write_manifest(experiment: Experiment, complete: bool) -> None:
    """Write the manifest of an experiment's results as they are now; nothing if there are none.

    Args:
        experiment: whose results they are.
        complete: whether all its jobs have ended well. Else a file that has not changed since the last manifest may be of the
            settings that it was of then.
    """
    before = read_manifest(experiment.folder)
    known = {} if before is None else before.files
    required = {str(file) for file in expected(experiment)} if complete else set()
    files = {}
    for file in present(experiment):
        name, settings = file.relative_to(experiment.folder).as_posix(), settings_id(experiment, file)
        with suppress(OSError, SpecError):  # taken away at this moment
            entry = Entry(sha256=checksum(file), modified=file.stat().st_mtime_ns, settings=settings)
            old = known.get(name)
            unchanged = old is not None and (old.sha256, old.modified) == (entry.sha256, entry.modified)
            files[name] = old if old is not None and unchanged and str(file) not in required else entry
    if files:
        Manifest(files=files).write(experiment.folder / FILE)


def restore_times(folder: Path) -> None:
    """Give files that are as the manifest has them the times that it has: a copy may have lost them, or their order."""
    manifest = read_manifest(folder)
    for name, entry in {} if manifest is None else manifest.files.items():
        file = folder / name
        with suppress(OSError, SpecError):  # it is not there, or somebody else's
            found = file.stat()
            if found.st_mtime_ns != entry.modified and checksum(file) == entry.sha256:
                os.utime(file, ns=(found.st_atime_ns, entry.modified))


def present(experiment: Experiment) -> list[Path]:
    """Return the files of results that are there."""
    patterns = [KEPT, *RECORDS, *OF_PUBLISHED, OPERATORS, TIMES_OF_JOBS]
    found = [file for pattern in patterns for file in sorted(experiment.folder.glob(pattern)) if not file.name.startswith(".")]
    return [file for file in (*found, *jobs.derived_files(experiment)) if file.is_file()]


def expected(experiment: Experiment) -> Iterator[Path]:
    """Yield the records of all jobs of an experiment, for the operators that are selected now."""
    from syno.stages.select import FILE as SELECTED
    from syno.stages.select import read_selected

    try:
        selected = [one.key for one in read_selected(experiment.folder / SELECTED)]
    except SynoError:
        selected = []
    for files in jobs.jobs(experiment, selected).values():
        yield from files


def settings_id(experiment: Experiment, file: Path) -> str:
    """Return the checksum of the settings that a file depends on; empty if it depends on other files only."""
    stage = STAGES.get(file.relative_to(experiment.folder).parts[0])
    if stage is None or experiment.artifact is not None:
        return ""
    return hashlib.sha256(experiment.part(stage).encode()).hexdigest()[:16]


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file. SpecError if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror or error}") from error
