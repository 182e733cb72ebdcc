"""The canonicalization rules as plain text, for a terminal. `syno.space.rules.listing` has them as Markdown."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from syno.space.rules.listing import COLUMNS, rows

NARROW = {"id", "kind"}  # columns that are not wrapped


def rules_text(width: int) -> str:
    """One row per rule, cells wrapped to a page of `width` characters."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in COLUMNS:
        table.add_column(title, no_wrap=title in NARROW, overflow="fold")
    for row in rows():
        table.add_row(*row)
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
