"""Operators that an operator store has lost, from where else their texts are: the frozen table, the source, the records."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

from syno.base.errors import SpecError, SynoError
from syno.base.files import write_whole
from syno.config import Experiment
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored, read_operator_file, with_checksum
from syno.stages.freeze import TABLE, read_frozen
from syno.stages.store import FOLDER, ID_DIGITS, OperatorStore


def repair_store(experiment: Experiment, lost: Collection[str] | None) -> None:
    """Write the operators that are missing in the store of an experiment, or damaged there.

    Args:
        experiment: whose store it is.
        lost: the keys of those operators; None if that is not known. Then each file is read, and those of the frozen table are
            written that are not there.

    Raises SpecError for an operator whose text is nowhere else; it names the file and the command that makes it. Where the
    frozen table is missing, too, the next `syno freeze` writes it.
    """
    folder = experiment.folder / FOLDER
    damaged = [file for file in folder.glob("*.txt") if not _is_whole(folder, file.stem)] if lost is None else []
    missing = {file.stem for file in damaged} if lost is None else set(lost)
    if lost is not None and not missing:
        return
    for operator in _kept_elsewhere(experiment):
        key = operator.id[:ID_DIGITS]
        if key in missing or (lost is None and not (folder / f"{key}.txt").exists()):
            write_whole(folder / f"{key}.txt", with_checksum(str(operator)))
            missing.discard(key)
        if lost is not None and not missing:
            return
    for key in sorted(missing):
        file = folder / f"{key}.txt"
        if experiment.searches and not (experiment.folder / TABLE).exists():
            if file.exists():  # else it would be taken for one that is there
                file.rename(file.with_suffix(".damaged"))
            continue
        again = "syno artifact import" if experiment.artifact is not None else "syno freeze"
        raise SpecError(f"{file} is missing or damaged, and its text is nowhere else; delete it and run `{again}` again")


def find_lost(experiment: Experiment, given: str) -> PGraph | None:
    """Return the operator of this key or name that the store has lost, which then has it again; None if it is nowhere."""
    for operator in _kept_elsewhere(experiment):
        if given in (operator.name, operator.id[:ID_DIGITS]):
            OperatorStore(experiment.folder).add(operator)
            return operator
    return None


def _kept_elsewhere(experiment: Experiment) -> Iterator[PGraph]:
    """Yield the operators whose texts are in other files of results; what cannot be read is left out."""
    if experiment.searches and (experiment.folder / TABLE).is_file():
        try:
            table = read_frozen(experiment)
        except SynoError:
            table = None
        if table is not None:
            complete = table[table["outcome"] == "complete"]
            for number, text in zip(complete["number"], complete["operator"], strict=True):
                yield from _read(text, f"{experiment.name}_{number}")
    if (source := experiment.select.source) is not None:
        for file in sorted((source / FOLDER).glob("*.txt")):
            if _is_whole(file.parent, file.stem):
                yield read_operator_file(file)
    for record in sorted(experiment.folder.glob("train/*/*.json")):
        try:
            content = json.loads(record.read_bytes())
            text, name = content["operator"], content["name"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        yield from _read(text, name)


def _read(text: object, name: str) -> Iterator[PGraph]:
    """Yield the operator of a text; nothing if it is none."""
    if not isinstance(text, str):
        return
    try:
        yield parse_stored(text, name=name)
    except SynoError:
        return


def _is_whole(folder: Path, key: str) -> bool:
    """Return whether a file of a store holds the operator that its name says."""
    try:
        return read_operator_file(folder / f"{key}.txt", written_by_program=True).id.startswith(key)
    except (OSError, SynoError):
        return False
