"""The library of known operators: a registry of functions that return pGraphs; and the lookup of an operator by name or file.

>>> graph = OPERATORS["conv2d"]()
>>> graph.weight_sizes(1)
(Size(C_out), Size(C_in), Size(k), Size(k))
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from syno.algebra.limits import shortened
from syno.base.errors import ParseError, UnknownNameError, suggestion
from syno.base.extensions import load_extensions
from syno.base.files import is_file, is_folder
from syno.ir.builder import OPERATORS, KnownOperator
from syno.ir.graph import PGraph
from syno.ir.library import published, rearranging, standard  # noqa: F401  # importing them fills the table
from syno.ir.text import read_operator_file

__all__ = ["FOLDERS", "OPERATORS", "KnownOperator", "find_operator"]

# Folders that hold an operator: the file by which such a folder is known, and what reads the folder. Extensions add to it.
FOLDERS: dict[str, Callable[[Path], PGraph]] = {}


def find_operator(name: str, folder: Path = Path()) -> PGraph:
    """Return an operator by its name, its file or its folder.

    Args:
        name: a name in `OPERATORS`, the path of a file that holds an operator's text, or of a folder as in `FOLDERS`.
        folder: the folder of relative paths.

    Raises:
        UnknownNameError: it is none of these.
        ParseError: the file or the folder holds no operator; the message names the place.
    """
    if name in OPERATORS:
        return OPERATORS[name]()
    path = folder / name
    if is_folder(path):
        load_extensions()
        for mark, read in FOLDERS.items():
            if (path / mark).exists():
                return read(path)
        marks = " or ".join(FOLDERS) or "anything that Syno reads"
        raise ParseError(f"{path}: a folder without {marks}; give a published operator's folder, or a text file")
    if is_file(path):
        return read_operator_file(path)
    raise UnknownNameError(
        f'"{shortened(name)}" is neither a file, a published folder, nor a known operator; known are: {", ".join(OPERATORS)}.'
        f"{suggestion(name, OPERATORS)}"
    )
