"""The manifest of a folder of results: a checksum of every file, so that damage and incomplete copies are found.

The workflow writes it at its end and compares files with it at its start. It also holds the time of each file, which copies
lose, and a checksum of the settings that the file depends on, which Snakemake knows only in the folder where it ran.
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
from syno.config.kept_file import KEPT
from syno.stages.places import OPERATORS, SELECTED, SHORTLIST
from syno.stages.selection import read_selected
from syno.stages.stage_files import derived_files, reader_of, record_globs
from syno.stages.workflow_stages import jobs

FILE = "manifest.json"
OPERATOR_FILES = f"{OPERATORS}/*.txt"
TIMES_OF_JOBS = "benchmark/**/*.tsv"  # no results, but Snakemake compares the times of these files, too


class ManifestEntry(BaseModel):
    """The checksum, time and settings of one file.

    Attributes:
        sha256: checksum of the file.
        modified: time of the last change, in nanoseconds since 1970.
        settings: checksum of the settings that the file depends on; empty if it depends on other files only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    sha256: str
    modified: int
    settings: str


class Manifest(Record):
    """The files in a folder of results, by their paths there."""

    kind_of_record = "manifest"
    again = "run `snakemake`"
    files: dict[str, ManifestEntry]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder of results; None if there is none, or it is damaged."""
    try:
        return Manifest.read(folder / FILE)
    except SynoError:
        return None


def write_manifest(experiment: Experiment, complete: bool) -> None:
    """Write the manifest of an experiment's results as they are now; does nothing if there are none.

    Args:
        experiment: the experiment.
        complete: whether all its jobs have succeeded. Otherwise a file that has not changed since the last manifest keeps the
            settings that it had there.
    """
    before = read_manifest(experiment.folder)
    known = {} if before is None else before.files
    required = {str(file) for file in expected(experiment)} if complete else set()
    files = {}
    for file in present(experiment):
        name, settings = file.relative_to(experiment.folder).as_posix(), settings_id(experiment, file)
        with suppress(OSError, SpecError):  # deleted in the meantime
            entry = ManifestEntry(sha256=checksum(file), modified=file.stat().st_mtime_ns, settings=settings)
            old = known.get(name)
            unchanged = old is not None and (old.sha256, old.modified) == (entry.sha256, entry.modified)
            files[name] = old if old is not None and unchanged and str(file) not in required else entry
    if files:
        Manifest(files=files).write(experiment.folder / FILE)


def restore_times(folder: Path) -> None:
    """Set the times of unchanged files to those in the manifest: a copy may have lost the times or their order."""
    manifest = read_manifest(folder)
    for name, entry in {} if manifest is None else manifest.files.items():
        file = folder / name
        with suppress(OSError, SpecError):  # it does not exist, or belongs to another user
            found = file.stat()
            if found.st_mtime_ns != entry.modified and checksum(file) == entry.sha256:
                os.utime(file, ns=(found.st_atime_ns, entry.modified))


def present(experiment: Experiment) -> list[Path]:
    """Return the existing files of results."""
    patterns = [KEPT, *record_globs(), OPERATOR_FILES, TIMES_OF_JOBS]
    found = [file for pattern in patterns for file in sorted(experiment.folder.glob(pattern)) if not file.name.startswith(".")]
    return [file for file in (*found, *derived_files(experiment)) if file.is_file()]


def expected(experiment: Experiment) -> Iterator[Path]:
    """Yield the records of all jobs of an experiment, for the operators that are selected or on the shortlist now."""
    for files in jobs(experiment, _keys(experiment.folder / SELECTED), _keys(experiment.folder / SHORTLIST)).values():
        yield from files


def _keys(selection: Path) -> list[str]:
    """Return the keys in the file of a selection or shortlist; none if it cannot be read."""
    try:
        return [one.key for one in read_selected(selection)]
    except SynoError:
        return []


def settings_id(experiment: Experiment, file: Path) -> str:
    """Return the checksum of the settings that a file depends on; empty if it depends on other files only."""
    found = None if experiment.artifact is not None else reader_of(experiment, file)
    settings = None if found is None else found[0].settings
    return "" if settings is None else hashlib.sha256(experiment.part(settings).encode()).hexdigest()[:16]


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file. Raises SpecError if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror or error}") from error
