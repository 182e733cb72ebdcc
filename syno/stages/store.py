"""The operator store of an experiment: every operator that was evaluated, as a text file named after its id.

Such a file never changes: equal ids are equal operators. So whatever refers to an operator does so by its id, and whoever
copies the folder of results has the operators with it. The file ends with a checksum, so that damage to it is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from syno.algebra.limits import MOST_LINE_CHARACTERS
from syno.artifact.lookup import find_operator
from syno.base.errors import ParseError, SpecError, UnknownNameError
from syno.base.files import write_whole
from syno.config.experiment import RESULTS
from syno.ir.graph import PGraph
from syno.ir.text import read_operator_file, with_checksum

FOLDER = "operators"
ID_DIGITS = 12  # in names of files; two of a million operators share them with a chance of 0.2 %
FEWEST_DIGITS = 4  # of an id that people type


class OperatorStore:
    """The operators in a folder of results."""

    def __init__(self, results: Path) -> None:
        self.path = results / FOLDER

    def add(self, operator: PGraph) -> str:
        """Keep an operator; returns the key by which it is found. One that is there stays as it is, and keeps its name."""
        key = operator.id[:ID_DIGITS]
        file = self.path / f"{key}.txt"
        if not file.exists():
            write_whole(file, with_checksum(str(operator)), durable=False)  # the frozen table has it, too
        return key

    def files(self, given: str) -> list[Path]:
        """The files of operators whose id begins with `given`, or that have it as their name."""
        if re.fullmatch(rf"[0-9a-f]{{{FEWEST_DIGITS},}}", given):
            found = [file for file in self._all() if file.stem == given[:ID_DIGITS] or file.stem.startswith(given)]
            if found:
                return found
        return [file for file in self._all() if _name(file) == given]

    def get(self, key: str) -> PGraph:
        """The operator that `add` gave this key. SpecError if it is not there; ParseError if the file was changed."""
        file = self.path / f"{key}.txt"
        if not file.is_file():
            raise SpecError(f"{self.path} has no operator {key}; `syno freeze` writes those of the study there")
        return _read(file)

    def _all(self) -> Iterator[Path]:
        return iter(sorted(self.path.glob("*.txt")))


def all_results(name: str) -> list[Path]:
    """The folders in `results/` that have this file or folder: of experiments, and of those of a group."""
    return sorted(found.parent for pattern in ("*", "*/*") for found in RESULTS.glob(f"{pattern}/{name}"))


def find_stored(given: str, results: Path | None = None) -> PGraph:
    """An operator by what people write: as `find_operator` has it, or its id's first digits or its name in a store.

    Args:
        given: what was written.
        results: the folder of one experiment's results, whose operators go before those in all of `results/`.

    Raises UnknownNameError if there is none, or several.
    """
    folders = [results] if results is not None else all_results(FOLDER)
    found = _found(given, folders)
    if results is not None and not found:
        folders = [results, *(folder for folder in all_results(FOLDER) if folder != results)]
        found = _found(given, folders)
    if len(found) > 1:
        raise UnknownNameError(f'"{given}" means several operators: {", ".join(map(str, found.values()))}; give more digits')
    for file in found.values():
        return _read(file)
    try:
        return find_operator(given)
    except UnknownNameError as error:
        searched = ", ".join(str(folder / FOLDER) for folder in folders) or "results/, where there is none yet"
        raise UnknownNameError(f"{error} No operator in a store has this name or id, either: {searched}") from None


def _found(given: str, folders: Iterable[Path]) -> dict[str, Path]:
    """The files of the operators in stores that `given` means, by key: equal operators of several stores once."""
    return {file.stem: file for folder in folders for file in OperatorStore(folder).files(given)}


def _name(file: Path) -> str:
    """The name of the operator in a file, without reading the rest."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline(MOST_LINE_CHARACTERS).removeprefix("operator ").strip()


def _read(file: Path) -> PGraph:
    """The operator in a file of the store. ParseError if any character of it was changed, or it is another operator's."""
    advice = "Remove the file; `syno freeze` writes the operators of the study there again"
    try:
        operator = read_operator_file(file, written_by_program=True)
    except ParseError as error:
        raise ParseError(f"{error}. {advice}") from error
    if operator.id[:ID_DIGITS] != file.stem:
        raise ParseError(f"{file}: holds the operator {operator.id[:ID_DIGITS]}, not the one that it is named after. {advice}")
    return operator
