"""The check of results before the workflow continues: damaged files are made again if that takes seconds.

Records that may have taken hours are never replaced: an error names the file and says what to do.

The workflow writes a manifest at its end, and compares files with it at its start. It has a checksum of every file, so that
damage and incomplete copies are found; the time of each file, which copies lose; and a checksum of the settings that the file
depends on, which Snakemake knows only in the folder where it ran.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from syno.base.errors import SpecError, SynoError
from syno.base.files import lies_in
from syno.base.record import Record
from syno.config import AnyExperiment
from syno.config.kept_file import KEPT
from syno.stages.opening import check_goes_on
from syno.stages.operators import repair_store
from syno.stages.places import FROZEN, OPERATORS, SELECTED, SHORTLIST, worker_file
from syno.stages.provenance import write_kept
from syno.stages.selection import check_in_store, read_selected
from syno.stages.workflow_stages import STAGES, WorkflowStage, files_on_the_way, jobs

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
    """The entries of all files in a folder of results, by their paths there."""

    kind_of_record = "manifest"
    again = "run `snakemake`"
    files: dict[str, ManifestEntry]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder of results; None if there is none, or it is damaged."""
    try:
        return Manifest.read(folder / FILE)
    except SynoError:
        return None


def write_manifest(experiment: AnyExperiment, complete: bool) -> None:
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
    """Set the modification times of unchanged files to those in the manifest, since copying may have lost them."""
    manifest = read_manifest(folder)
    for name, entry in {} if manifest is None else manifest.files.items():
        file = folder / name
        if not lies_in(file, folder):  # whoever wrote the manifest may name any file
            continue
        with suppress(OSError, SpecError):  # it does not exist, or belongs to another user
            found = file.stat()
            if found.st_mtime_ns != entry.modified and checksum(file) == entry.sha256:
                os.utime(file, ns=(found.st_atime_ns, entry.modified))


def present(experiment: AnyExperiment) -> list[Path]:
    """Return the existing files of an experiment's results that belong into its manifest."""
    patterns = [KEPT, *record_globs(), OPERATOR_FILES, TIMES_OF_JOBS]
    found = [file for pattern in patterns for file in sorted(experiment.folder.glob(pattern)) if not file.name.startswith(".")]
    return [file for file in (*found, *derived_files(experiment)) if file.is_file()]


def expected(experiment: AnyExperiment) -> Iterator[Path]:
    """Yield the paths of the records of all jobs of an experiment, for the operators now selected or on the shortlist."""
    for files in jobs(experiment, keys_in(experiment.folder / SELECTED), keys_in(experiment.folder / SHORTLIST)).values():
        yield from files


def keys_in(selection: Path) -> list[str]:
    """Return the keys in the file of a selection or shortlist; none if it cannot be read."""
    try:
        return [one.key for one in read_selected(selection)]
    except SynoError:
        return []


def settings_id(experiment: AnyExperiment, file: Path) -> str:
    """Return the checksum of the settings that a file depends on; empty if it depends on other files only."""
    found = reader_of(experiment, file) if experiment.keeps_settings else None
    settings = None if found is None else found[0].settings
    return "" if settings is None else hashlib.sha256(experiment.part(settings, code=True).encode()).hexdigest()[:16]


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file. Raises SpecError if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror or error}") from error


def derived_files(experiment: AnyExperiment) -> list[Path]:
    """Return the tables, figures and the page in all formats: files that jobs of seconds make from records."""
    return [file for file in files_on_the_way(experiment) if reader_of(experiment, file) is None]


def reader_of(experiment: AnyExperiment, file: Path) -> tuple[WorkflowStage, str] | None:
    """Return the stage that wrote a file and the file's path pattern; None if no function is registered to read the file."""
    name = file.relative_to(experiment.folder).as_posix()
    for stage in STAGES.values():
        for pattern in stage.readers or ():
            if fnmatch(name, _as_glob(pattern)):
                return stage, pattern
    return None


def record_globs() -> list[str]:
    """Return glob patterns of all files for which a stage has a reader (`WorkflowStage.readers`): records."""
    return [_as_glob(pattern) for stage in STAGES.values() for pattern in stage.readers or ()]


def _as_glob(pattern: str) -> str:
    """Return a path pattern with `*` in place of its wildcards."""
    return re.sub(r"\{\w+\}", "*", pattern)


MOST_NAMED = 3  # damaged files in one message


def look_over(experiment: AnyExperiment, change: bool) -> list[Path]:
    """Compare the results of an experiment with their manifest; return the files that the workflow must make again.

    They are damaged tables, figures, pages and frozen tables, and files made with other settings. Unchanged files get the
    times in the manifest. Missing or damaged operators, and the settings beside the results, are written at once.

    Args:
        experiment: the experiment; there may be no results yet.
        change: whether to repair files; a dry run only sets times.

    Raises SpecError, which names the files and says what to do, if the experiment cannot continue with these results, or for
    damage that cannot be repaired in seconds.
    """
    manifest = read_manifest(experiment.folder)
    known = None if manifest is None else manifest.files
    found = {file: checksum(file) for file in present(experiment)}
    if known is None or not _lost_its_settings(experiment, found, known):
        check_goes_on(experiment)
    elif change:
        write_kept(experiment)
    if not found:
        return []
    restore_times(experiment.folder)
    for source in (*experiment.sources, *experiment.goes_first):
        restore_times(source)
    changed = [file for file, sha256 in found.items() if _is_changed(file, sha256, experiment, known)]
    again = _made_again(experiment, changed, known is not None)
    _check_records([file for file in changed if file not in again], experiment)
    if change:
        lost = None if known is None else _lost_operators(experiment, found, known)
        repair_store(experiment, lost)
        if (experiment.folder / SELECTED).is_file() and (experiment.folder / FROZEN).exists():
            check_in_store(read_selected(experiment.folder / SELECTED), experiment.folder)
    return [*again, *_of_other_settings(experiment, found, known or {}), *_lost_search(experiment)]


def _is_changed(file: Path, sha256: str, experiment: AnyExperiment, known: Mapping[str, ManifestEntry] | None) -> bool:
    """Return whether a file may have changed: true without a manifest, false for a new file that the manifest does not list."""
    if known is None:
        return True
    entry = known.get(file.relative_to(experiment.folder).as_posix())
    return entry is not None and entry.sha256 != sha256


def _lost_its_settings(experiment: AnyExperiment, found: Mapping[Path, str], known: Mapping[str, ManifestEntry]) -> bool:
    """Return whether the settings file beside the results is lost or damaged, and by the manifest was this experiment's."""
    entry = known.get(KEPT)
    if entry is None or found.get(experiment.folder / KEPT) == entry.sha256:
        return False
    of_now = {name: settings_id(experiment, experiment.folder / name) for name in known}
    return all(one.settings == of_now[name] for name, one in known.items() if name.startswith("search/"))


def _made_again(experiment: AnyExperiment, changed: Collection[Path], is_known: bool) -> list[Path]:
    """Return the changed files that jobs make again in seconds (`derived_files` and the frozen table)."""
    derived = set(derived_files(experiment))
    again = [file for file in changed if file in derived]
    table = experiment.folder / FROZEN
    if table in changed and is_known:
        if (study := _study_file(experiment)) is not None and not study.is_file():
            raise SpecError(
                f"{table} is damaged, and the study that it was made of, {study}, is not there; take one of them from a copy, "
                f"or delete {table} and {worker_file(experiment, 1).parent}, and `snakemake` searches again"
            )
        again.append(table)
    return again


def _check_records(files: Collection[Path], experiment: AnyExperiment) -> None:
    """Raise SpecError, naming the files, if changed records cannot be read. A readable record is taken as a newer one."""
    problems = []
    for file in files:
        found = reader_of(experiment, file)
        try:
            if found is not None:
                found[0].check(file, found[1])
        except SynoError as error:
            problems.append(str(error))
    if problems:
        more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise SpecError(f"{'; '.join(problems[:MOST_NAMED])}{more}; `snakemake` makes deleted files again")


def _lost_operators(experiment: AnyExperiment, found: Mapping[Path, str], known: Mapping[str, ManifestEntry]) -> set[str]:
    """Return the keys of the operators whose files are missing or damaged."""
    files = {experiment.folder / name: entry for name, entry in known.items() if name.startswith(f"{OPERATORS}/")}
    return {file.stem for file, entry in files.items() if found.get(file) != entry.sha256}


def deleted(experiment: AnyExperiment) -> Iterator[Path]:
    """Yield the missing files of an experiment's jobs, for the operators now selected or on the shortlist."""
    selected, shortlisted = keys_in(experiment.folder / SELECTED), keys_in(experiment.folder / SHORTLIST)
    for stage in STAGES.values():
        networks = stage.networks(experiment, selected, shortlisted)
        files = () if stage.is_shared else stage.paths(experiment, networks, (*stage.files, *stage.also))
        yield from (file for file in files if not file.exists())


def _of_other_settings(
    experiment: AnyExperiment, found: Mapping[Path, str], known: Mapping[str, ManifestEntry]
) -> Iterator[Path]:
    """Yield the records that were made with other settings than the experiment has now."""
    for file in expected(experiment):
        if file in found:
            entry = known.get(file.relative_to(experiment.folder).as_posix())
            if entry is not None and entry.sha256 == found[file] and entry.settings != settings_id(experiment, file):
                yield file


def _lost_search(experiment: AnyExperiment) -> list[Path]:
    """Return the records of workers, so that they are made again, if neither the study nor the frozen table exists."""
    if not experiment.searches or (experiment.folder / FROZEN).exists():
        return []
    study = _study_file(experiment)
    files = [file for file in STAGES["worker"].paths(experiment) if file.is_file()]
    return files if study is not None and not study.exists() else []


def _study_file(experiment: AnyExperiment) -> Path | None:
    """Return the file of an experiment's study; None if a server has it, or there is no study."""
    if not experiment.searches:
        return None
    for scheme in ("sqlite:///", "journal:"):
        if experiment.storage.startswith(scheme):
            return Path(experiment.storage.removeprefix(scheme))
    return None
