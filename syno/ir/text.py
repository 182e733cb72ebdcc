"""Reading the text of an operator, and files that hold it. `str(graph)` writes the text.

    operator conv1d
    variables C_in, C_out, N, W; k=3
    output i0:N, i1:C_out, i2:W
    r0:C_in = Reduce()
    r1:k = Reduce()
    d0:C_out = Share(i1, w1[0])
    ...

Operators are stored and exchanged as this text; it depends on no search, no option and no version. A file that a program wrote
ends with a checksum of everything before: the id in the text covers what the operator means, but not its name, and its line may
be left out. Files written by hand have no checksum.
"""

from __future__ import annotations

from pathlib import Path

from syno.algebra.limits import MOST_CHARACTERS, shortened
from syno.base.errors import ParseError
from syno.base.files import checksum
from syno.ir.graph import PGraph
from syno.ir.text_parser import Parser

LONGEST_MESSAGE = 1_000  # characters: messages quote what was given
MARK = "# checksum "


def parse(text: str, source: str = "operator text") -> PGraph:
    """Return the operator that a text describes. `#` starts a comment; the `id` line is optional, but must be right.

    >>> import syno
    >>> matmul = syno.OPERATORS["matmul"]()
    >>> parse(str(matmul)) == matmul
    True

    Raises ParseError, which names `source` and the line, also for a text beyond a limit of `syno.algebra.limits`.
    """
    try:
        return Parser(source).parse(text)
    except ParseError as error:
        raise ParseError(shortened(str(error), LONGEST_MESSAGE)) from error.__cause__


def parse_stored(text: str, source: str = "operator text", name: str | None = None) -> PGraph:
    """Return the operator in a text that a program has stored, under this name; by default under its own.

    Raises ParseError as `parse` does.
    """
    first, newline, rest = text.partition("\n")
    if name is None or not first.startswith("operator "):
        return parse(text, source)
    return parse(f"operator {name}{newline}{rest}", source)


def with_checksum(text: str) -> str:
    """Return the text with its checksum as a last line, which `parse` reads as a comment."""
    return f"{text}{MARK}{checksum(text.encode())}\n"


def read_operator_file(file: Path, *, written_by_program: bool = False) -> PGraph:
    """Return the operator in a text file.

    Args:
        file: the file.
        written_by_program: whether the file must end with its checksum.

    Raises ParseError if the file cannot be read, holds no operator, or does not match its checksum.
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
    if written_by_program and not mark:
        raise ParseError(f"{file}: its last line is not the checksum: the file is damaged")
    return parse(content, str(file))
