"""Results are looked over before the workflow goes on: what is damaged is made again where that takes seconds.

Records of what may have taken hours are never replaced: a message names the file and says what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from syno.base.errors import SpecError, SynoError
from syno.config import Experiment
from syno.config.files import KEPT
from syno.stages import jobs
from syno.stages.freeze import TABLE, read_frozen
from syno.stages.kept import check_goes_on, write_kept
from syno.stages.manifest import Entry, checksum, expected, present, read_manifest, restore_times, settings_id
from syno.stages.places import worker_file
from syno.stages.select import FILE as SELECTED
from syno.stages.select import read_selected
from syno.stages.store import FOLDER as OPERATORS
from syno.stages.store_repair import repair_store

MOST_NAMED = 3  # damaged files in one message


def look_over(experiment: Experiment, change: bool) -> list[Path]:
    """Compare the results of an experiment with their manifest; returns the files that are to be made again.

    These are tables, figures, the page and the frozen table where they are damaged, and files of other settings. Files that are
    as they were get the times back that they had. Operators that are missing or damaged, and the settings beside the results,
    are written at once.

    Args:
        experiment: whose results they are; there may be none yet.
        change: whether anything but times may be written, which a dry run doesn't.

    Raises SpecError if the experiment cannot go on with these results, or for damage that is not made good in seconds; the
    message names the files and says what to do.
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
    if experiment.select.source is not None:
        restore_times(experiment.select.source)
    changed = [file for file, sha256 in found.items() if _is_changed(file, sha256, experiment, known)]
    again = _made_again(experiment, changed, known is not None)
    _check_records([file for file in changed if file not in again], experiment)
    if change:
        lost = None if known is None else _lost_operators(experiment, found, known)
        repair_store(experiment, lost)
        _check_selection(experiment)
    return [*again, *_of_other_settings(experiment, found, known or {}), *_lost_search(experiment)]


def _is_changed(file: Path, sha256: str, experiment: Experiment, known: Mapping[str, Entry] | None) -> bool:
    """Return whether a file is not as it was, as may be all without a manifest. One that isn't listed is newer, and good."""
    if known is None:
        return True
    entry = known.get(file.relative_to(experiment.folder).as_posix())
    return entry is not None and entry.sha256 != sha256


def _lost_its_settings(experiment: Experiment, found: Mapping[Path, str], known: Mapping[str, Entry]) -> bool:
    """Return whether the settings beside results are gone or damaged, and were those of the experiment."""
    entry = known.get(KEPT)
    if entry is None or found.get(experiment.folder / KEPT) == entry.sha256:
        return False
    of_now = {name: settings_id(experiment, experiment.folder / name) for name in known}
    return all(one.settings == of_now[name] for name, one in known.items() if name.startswith("search/"))


def _made_again(experiment: Experiment, changed: Collection[Path], is_known: bool) -> list[Path]:
    """Return those of the changed files that jobs of seconds make."""
    derived = set(jobs.derived_files(experiment))
    again = [file for file in changed if file in derived]
    table = experiment.folder / TABLE
    if table in changed and is_known:
        if (study := _study_file(experiment)) is not None and not study.is_file():
            raise SpecError(
                f"{table} is damaged, and the study that it was made of, {study}, is not there; take one of them from a copy, "
                f"or delete {table} and {worker_file(experiment, 1).parent}, and `snakemake` searches again"
            )
        again.append(table)
    return again


def _check_records(files: Collection[Path], experiment: Experiment) -> None:
    """Raise SpecError that names the files that cannot be read. What can be read was written since the manifest was."""
    problems = []
    for file in files:
        try:
            _read(file, experiment)
        except SynoError as error:
            problems.append(str(error))
    if problems:
        more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise SpecError(f"{'; '.join(problems[:MOST_NAMED])}{more}; `snakemake` makes deleted files again")


def _read(file: Path, experiment: Experiment) -> None:
    """Read a file of results. Raises a SynoError if that is not possible."""
    match file.relative_to(experiment.folder).parts[0]:
        case "data.json":
            from syno.stages.data import DataRecord

            DataRecord.read(file)
        case "search":
            from syno.stages.search import WorkerRecord

            WorkerRecord.read(file)
        case "train":
            from syno.train.training_record import TrainingRecord  # with it comes torch

            TrainingRecord.read(file)
        case "tune":
            from syno.measure.tuning_record import TuningRecord

            TuningRecord.read(file)
        case "artifact.json":
            from syno.stages.artifact import ImportRecord

            ImportRecord.read(file)
        case "measurements.json":
            from syno.results.measurement import Measurements

            Measurements.read(file)
        case "selected.json":
            read_selected(file)
        case "trials.parquet":
            read_frozen(experiment)


def _lost_operators(experiment: Experiment, found: Mapping[Path, str], known: Mapping[str, Entry]) -> set[str]:
    """Return the keys of the operators whose files are missing or damaged."""
    files = {experiment.folder / name: entry for name, entry in known.items() if name.startswith(f"{OPERATORS}/")}
    return {file.stem for file, entry in files.items() if found.get(file) != entry.sha256}


def _check_selection(experiment: Experiment) -> None:
    """Raise SpecError if an operator was selected that the store does not have."""
    file = experiment.folder / SELECTED
    for one in read_selected(file) if file.is_file() else ():
        if not (experiment.folder / OPERATORS / f"{one.key}.txt").is_file() and (experiment.folder / TABLE).exists():
            raise SpecError(
                f"{file} has the operator {one.key}, which is not in {experiment.folder / OPERATORS}; delete the file, and "
                "`syno select` or `snakemake` makes it again"
            )


def _of_other_settings(experiment: Experiment, found: Mapping[Path, str], known: Mapping[str, Entry]) -> Iterator[Path]:
    """Yield the records that jobs made of other settings than the experiment has now, in whatever folder that was."""
    for file in expected(experiment):
        if file in found:
            entry = known.get(file.relative_to(experiment.folder).as_posix())
            if entry is not None and entry.sha256 == found[file] and entry.settings != settings_id(experiment, file):
                yield file


def _lost_search(experiment: Experiment) -> list[Path]:
    """Return the records of workers whose search is lost: neither the study nor the frozen table is there."""
    if not experiment.searches or (experiment.folder / TABLE).exists():
        return []
    study = _study_file(experiment)
    files = [file for file in jobs.worker_files(experiment) if file.is_file()]
    return files if study is not None and not study.exists() else []


def _study_file(experiment: Experiment) -> Path | None:
    """Return the file that the study of an experiment is in; None if it is in a server, or there is none."""
    if not experiment.searches:
        return None
    for scheme in ("sqlite:///", "journal:"):
        if experiment.storage.startswith(scheme):
            return Path(experiment.storage.removeprefix(scheme))
    return None
