"""Files that hold an operator's text, with a checksum where they were written by a program.

The id in a text is a hash of what the operator means. It says nothing of the operator's name, and the line may be left out, so
a file that nobody is to edit ends with a checksum of everything before. Files written by hand have none.
"""

from __future__ import annotations

import re
from pathlib import Path

from syno.algebra.limits import MOST_CHARACTERS
from syno.base.checksums import checksum
from syno.base.errors import ParseError
from syno.ir.graph import PGraph
from syno.ir.text import parse

MARK = "# checksum "
_ENDS_WITH_ID = re.compile(r"\nid [0-9a-f]{32}\n\Z")


def with_checksum(text: str) -> str:
    """The text, with a last line that holds its checksum: to `parse` a comment."""
    return f"{text}{MARK}{checksum(text.encode())}\n"


def read_operator_file(file: Path, *, written_by_program: bool = False) -> PGraph:
    """The operator in a text file.

    Args:
        file: the file.
        written_by_program: whether it must end with its checksum, or, as files of older versions do, with the operator's id.

    Raises ParseError if it cannot be read, holds no operator, or has a checksum that is not that of its text.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(4 * MOST_CHARACTERS + 1)  # a character has at most 4 bytes
        content = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ParseError(f"{file}: cannot be read as text: {error}") from None
    text, mark, given = content.rpartition(MARK)
    if mark and given != f"{checksum(text.encode())}\n":
        raise ParseError(
            f"{file}: the checksum in its last line is not that of the text before: the file is damaged, or was edited; "
            "if you edited it, remove the line"
        )
    if written_by_program and not mark and not _ENDS_WITH_ID.search(content):
        raise ParseError(f"{file}: neither a checksum nor the operator's id is in its last line: the file is damaged")
    return parse(content, str(file))
