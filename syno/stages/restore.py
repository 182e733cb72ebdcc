"""The check of results before the workflow continues: damaged files are made again if that takes seconds.

Records that may have taken hours are never replaced: an error names the file and says what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from syno.base.errors import SpecError, SynoError
from syno.config import Experiment
from syno.config.kept_file import KEPT
from syno.stages.kept import check_goes_on, write_kept
from syno.stages.manifest import ManifestEntry, checksum, expected, present, read_manifest, restore_times, settings_id
from syno.stages.operators import repair_store
from syno.stages.places import FROZEN, OPERATORS, SELECTED, worker_file
from syno.stages.selection import read_selected
from syno.stages.stage_files import derived_files, reader_of
from syno.stages.workflow_stages import STAGES

MOST_NAMED = 3  # damaged files in one message


def look_over(experiment: Experiment, change: bool) -> list[Path]:
    """Compare the results of an experiment with their manifest; returns the files that are to be made again.

    These are damaged tables, figures, pages and frozen tables, and files of other settings. Unchanged files get the times in
    the manifest. Missing or damaged operators, and the settings beside the results, are written at once.

    Args:
        experiment: the experiment; there may be no results yet.
        change: whether to write anything but times; a dry run does not.

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
    for source in (experiment.select.source, *experiment.goes_first):
        if source is not None:
            restore_times(source)
    changed = [file for file, sha256 in found.items() if _is_changed(file, sha256, experiment, known)]
    again = _made_again(experiment, changed, known is not None)
    _check_records([file for file in changed if file not in again], experiment)
    if change:
        lost = None if known is None else _lost_operators(experiment, found, known)
        repair_store(experiment, lost)
        _check_selection(experiment)
    return [*again, *_of_other_settings(experiment, found, known or {}), *_lost_search(experiment)]


def _is_changed(file: Path, sha256: str, experiment: Experiment, known: Mapping[str, ManifestEntry] | None) -> bool:
    """Return whether a file may have changed: all may without a manifest. A file that isn't listed is new, and good."""
    if known is None:
        return True
    entry = known.get(file.relative_to(experiment.folder).as_posix())
    return entry is not None and entry.sha256 != sha256


def _lost_its_settings(experiment: Experiment, found: Mapping[Path, str], known: Mapping[str, ManifestEntry]) -> bool:
    """Return whether the settings beside the results are missing or damaged, and were those of the experiment."""
    entry = known.get(KEPT)
    if entry is None or found.get(experiment.folder / KEPT) == entry.sha256:
        return False
    of_now = {name: settings_id(experiment, experiment.folder / name) for name in known}
    return all(one.settings == of_now[name] for name, one in known.items() if name.startswith("search/"))


def _made_again(experiment: Experiment, changed: Collection[Path], is_known: bool) -> list[Path]:
    """Return those of the changed files that jobs make in seconds."""
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


def _check_records(files: Collection[Path], experiment: Experiment) -> None:
    """Raise SpecError, which names files that cannot be read. Files that can be read are newer than the manifest."""
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


def _lost_operators(experiment: Experiment, found: Mapping[Path, str], known: Mapping[str, ManifestEntry]) -> set[str]:
    """Return the keys of the operators whose files are missing or damaged."""
    files = {experiment.folder / name: entry for name, entry in known.items() if name.startswith(f"{OPERATORS}/")}
    return {file.stem for file, entry in files.items() if found.get(file) != entry.sha256}


def _check_selection(experiment: Experiment) -> None:
    """Raise SpecError if the store does not have a selected operator."""
    file = experiment.folder / SELECTED
    for one in read_selected(file) if file.is_file() else ():
        if not (experiment.folder / OPERATORS / f"{one.key}.txt").is_file() and (experiment.folder / FROZEN).exists():
            raise SpecError(
                f"{file} has the operator {one.key}, which is not in {experiment.folder / OPERATORS}; delete the file, and "
                "`syno select` or `snakemake` makes it again"
            )


def _of_other_settings(experiment: Experiment, found: Mapping[Path, str], known: Mapping[str, ManifestEntry]) -> Iterator[Path]:
    """Yield records of other settings than the experiment has now."""
    for file in expected(experiment):
        if file in found:
            entry = known.get(file.relative_to(experiment.folder).as_posix())
            if entry is not None and entry.sha256 == found[file] and entry.settings != settings_id(experiment, file):
                yield file


def _lost_search(experiment: Experiment) -> list[Path]:
    """Return the records of workers if neither the study nor the frozen table exists."""
    if not experiment.searches or (experiment.folder / FROZEN).exists():
        return []
    study = _study_file(experiment)
    files = [file for file in STAGES["worker"].paths(experiment) if file.is_file()]
    return files if study is not None and not study.exists() else []


def _study_file(experiment: Experiment) -> Path | None:
    """Return the file of an experiment's study; None if a server has it, or there is no study."""
    if not experiment.searches:
        return None
    for scheme in ("sqlite:///", "journal:"):
        if experiment.storage.startswith(scheme):
            return Path(experiment.storage.removeprefix(scheme))
    return None
