"""The operator store of an experiment: every evaluated operator, as a text file named after its id.

Such a file never changes, since equal ids are equal operators. Records refer to operators by their ids, and a copy of a folder
of results has the operators with it. Each file ends with a checksum, so that damage is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from syno.algebra.limits import MOST_LINE_CHARACTERS
from syno.base.errors import ParseError, SpecError, UnknownNameError
from syno.base.files import write_whole
from syno.config.groups import OperatorChoice
from syno.config.kinds import RESULTS
from syno.ir.graph import PGraph
from syno.ir.library import find_operator
from syno.ir.text import read_operator_file, with_checksum
from syno.stages.places import OPERATORS

ID_DIGITS = 12  # in names of files; the chance that two of a million operators share them is 0.2 %
FEWEST_DIGITS = 4  # of an id that a user types


class OperatorStore:
    """The store of operators in a folder of results: text files, each named after its operator's id."""

    def __init__(self, results: Path) -> None:
        self.path = results / OPERATORS

    def add(self, operator: PGraph) -> str:
        """Add an operator; returns its key. An operator that is in the store already keeps its file and name."""
        key = operator.id[:ID_DIGITS]
        file = self.path / f"{key}.txt"
        if not file.exists():
            write_whole(file, with_checksum(str(operator)), durable=False)  # the frozen table has the text, too
        return key

    def files(self, name: str) -> list[Path]:
        """Return the files of operators whose id begins with `name`, or whose name it is."""
        if re.fullmatch(rf"[0-9a-f]{{{FEWEST_DIGITS},}}", name):
            found = [file for file in self._all() if file.stem == name[:ID_DIGITS] or file.stem.startswith(name)]
            if found:
                return found
        return [file for file in self._all() if _name(file) == name]

    def get(self, key: str) -> PGraph:
        """Return the operator of a key. Raises SpecError if it is not in the store, ParseError if its file was changed."""
        file = self.path / f"{key}.txt"
        if not file.is_file():
            raise SpecError(f"{self.path} has no operator {key}; `syno freeze` writes those of the study there")
        return _read(file)

    def _all(self) -> Iterator[Path]:
        return iter(sorted(self.path.glob("*.txt")))


def add_chosen(choices: Iterable[OperatorChoice], store: OperatorStore) -> dict[str, str]:
    """Add the operators that a config names to a store; return their names by key. SpecError if two of them are the same."""
    names: dict[str, str] = {}
    for choice in choices:
        operator = choice.find()
        key = store.add(operator)
        if key in names:
            raise SpecError(f"select: operators: {choice.operator} is the same operator as {names[key]}; leave one of them out")
        names[key] = operator.name
    return names


def all_results(name: str) -> list[Path]:
    """Return the folders of results (`results/*` and `results/*/*`) that contain a file or folder `name`."""
    return sorted(found.parent for pattern in ("*", "*/*") for found in RESULTS.glob(f"{pattern}/{name}"))


def find_stored(name: str, results: Path | None = None) -> PGraph:
    """Return an operator by its name or the first digits of its id in a store, or as `find_operator` takes it.

    Args:
        name: the name, id or file that the user typed.
        results: one experiment's folder of results, whose operators have priority over those in all of `results/`.

    Raises UnknownNameError if there is no such operator, or several.
    """
    folders = [results] if results is not None else all_results(OPERATORS)
    found = _operator_files(name, folders)
    if results is not None and not found:
        folders = [results, *(folder for folder in all_results(OPERATORS) if folder != results)]
        found = _operator_files(name, folders)
    if len(found) > 1:
        raise UnknownNameError(f'"{name}" means several operators: {", ".join(map(str, found.values()))}; give more digits')
    for file in found.values():
        return _read(file)
    try:
        return find_operator(name)
    except UnknownNameError as error:
        searched = ", ".join(str(folder / OPERATORS) for folder in folders) or "results/, where there is none yet"
        raise UnknownNameError(f"{error} No operator in a store has this name or id, either: {searched}") from None


def _operator_files(name: str, folders: Iterable[Path]) -> dict[str, Path]:
    """Return the files of the operators with this name or id in stores, by key; an operator in several stores has one file."""
    return {file.stem: file for folder in folders for file in OperatorStore(folder).files(name)}


def _name(file: Path) -> str:
    """Return the name of the operator in a file, from its first line."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline(MOST_LINE_CHARACTERS).removeprefix("operator ").strip()


def _read(file: Path) -> PGraph:
    """Return the operator in a file of the store. Raises ParseError if the file was changed, or is another operator's."""
    advice = "Remove the file; `syno freeze` writes the operators of the study there again"
    try:
        operator = read_operator_file(file, written_by_program=True)
    except ParseError as error:
        raise ParseError(f"{error}. {advice}") from error
    if operator.id[:ID_DIGITS] != file.stem:
        raise ParseError(f"{file}: holds the operator {operator.id[:ID_DIGITS]}, not the one that it is named after. {advice}")
    return operator
