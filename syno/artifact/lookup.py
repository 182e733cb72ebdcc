"""Looking up an operator by a known name, a text file, or a folder of the published artifact."""

from __future__ import annotations

from pathlib import Path

from syno.algebra.limits import shortened
from syno.artifact.published_operator import GRAPH_FILE, read_folder
from syno.base.errors import ParseError, UnknownNameError, suggestion
from syno.base.files import is_file, is_folder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.text import read_operator_file


def find_operator(given: str, folder: Path = Path()) -> PGraph:
    """Return the operator that `given` names.

    Args:
        given: a name in `OPERATORS`, the path of a file that holds an operator's text, or that of a published folder.
        folder: where relative paths start.

    Raises:
        UnknownNameError: it is none of these.
        ParseError: the file or the folder holds no operator; the message names the place.
    """
    if given in OPERATORS:
        return OPERATORS[given]()
    path = folder / given
    if is_folder(path):
        if not (path / GRAPH_FILE).exists():
            raise ParseError(f"{path}: a folder without {GRAPH_FILE}; give a published operator's folder, or a text file")
        return read_folder(path).graph
    if is_file(path):
        return read_operator_file(path)
    raise UnknownNameError(
        f'"{shortened(given)}" is neither a file, a published folder, nor a known operator; known are: {", ".join(OPERATORS)}.'
        f"{suggestion(given, OPERATORS)}"
    )
