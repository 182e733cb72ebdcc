"""Tables as text: Markdown, HTML and comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from html import escape
from math import log10

from syno.base.addresses import visible

Row = Mapping[str, object]
LINE_END = "\n"
UNITS = ("bytes", "kB", "MB", "GB", "TB")


def markdown(rows: Sequence[Row], *, left: int = 1) -> str:
    """Return a Markdown table that also reads well as plain text.

    Args:
        rows: values by the names of their columns; a missing value is a dash.
        left: number of left-aligned columns; the others hold numbers and are aligned to the right.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [columns, *([shown(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]

    def line(texts: Sequence[str]) -> str:
        padded = [text.ljust(width) if i < left else text.rjust(width) for i, (text, width) in enumerate(zip(texts, widths))]  # noqa: B905
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if i < left else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(cells[0]), f"| {' | '.join(rule)} |", *map(line, cells[1:])]) + "\n"


def shown(value: object) -> str:
    """Return the text of a cell: whole numbers in groups of three digits, others with four digits, None as a dash."""
    match value:
        case None:
            return "–"
        case bool() | str():
            return visible(str(value))
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return visible(str(value))


def wrapped(rows: Sequence[Row], width: int, narrow: Collection[str] = ()) -> str:
    """Return a table as plain text of `width` characters; cells are wrapped, except in the `narrow` columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        table.add_column(name, no_wrap=name in narrow, overflow="fold")
    for row in rows:
        table.add_row(*(shown(row.get(name)) for name in columns))
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def plural(count: int, noun: str, form: str = "") -> str:
    """Return a number with a noun in the right form: "1 trial", "2 trials". `form` is the format of the number, such as ","."""
    return f"{count:{form}} {noun}{'' if count == 1 else 's'}"


def in_bytes(count: float) -> str:
    """Return a number of bytes with its unit: "184 MB", "1.8 GB"."""
    power = 0 if count < 1000 else min(int(log10(count)) // 3, len(UNITS) - 1)
    return f"{count / 1000**power:.3g} {UNITS[power]}"


def html_table(rows: Sequence[Row], caption: str = "") -> str:
    """Return an HTML table of escaped values, with a caption."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(shown(row.get(name)))}</td>" for name in columns) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def csv_text(rows: Sequence[Row], comments: Sequence[str] = ()) -> str:
    """Return comma-separated values, below `comments` as `#` lines (pandas reads them with `read_csv(file, comment="#")`)."""
    stream = io.StringIO()
    stream.writelines(f"# {comment}{LINE_END}" for comment in comments)
    writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in rows for name in row)), lineterminator=LINE_END)
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
