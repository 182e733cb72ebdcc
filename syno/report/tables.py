"""Tables as text, and files that are there whole or not at all."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from syno.errors import SpecError

Row = Mapping[str, object]
LINE_END = "\n"


def markdown(rows: Sequence[Row], *, left: int = 1) -> str:
    """A Markdown table that also reads well as plain text; the first `left` columns are texts, the others numbers."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [columns, *([shown(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]

    def line(texts: Sequence[str]) -> str:
        padded = [text.ljust(width) if i < left else text.rjust(width) for i, (text, width) in enumerate(zip(texts, widths))]  # noqa: B905
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if i < left else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(cells[0]), f"| {' | '.join(rule)} |", *map(line, cells[1:])]) + "\n"


def shown(value: object) -> str:
    """A cell: whole numbers in groups of three, others with four digits, None as a dash."""
    match value:
        case None:
            return "–"
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return str(value)


def csv_text(rows: Sequence[Row], comments: Sequence[str] = ()) -> str:
    """Comma-separated values, after `#` lines that say where they come from (pandas: `read_csv(file, comment="#")`)."""
    stream = io.StringIO()
    stream.writelines(f"# {comment}{LINE_END}" for comment in comments)
    writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in rows for name in row)), lineterminator=LINE_END)
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that nobody ever sees a part of it. SpecError if that is not possible there."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise SpecError(f"{path} cannot be written: {error.strerror or error}") from error
