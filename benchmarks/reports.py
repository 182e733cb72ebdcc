"""What the reports of benchmarks have in common: where they were measured, tables, where they go."""

from __future__ import annotations

import argparse
import os
import platform
import resource
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap

import syno
from syno.base.files import write_whole
from syno.measure.machine import processor

WIDTH = 128  # characters of a line in a page


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a benchmark, to which this adds `output`: the file that the report also goes to."""
    parser.add_argument("--output", type=Path)
    return parser.parse_args(arguments)


def deliver(lines: Sequence[str], output: Path | None) -> None:
    """Print the report, and write it to the file if there is one."""
    text = "\n".join(lines)
    print(text)
    if output:
        write_whole(output, text + "\n")


def heading(title: str, command: str) -> list[str]:
    """The first lines of a report."""
    return [
        f"# {title}",
        "",
        f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- Machine: {processor()}, {os.cpu_count()} logical cores; load average before the start {os.getloadavg()[0]:.2f}",
        f"- Versions: Python {platform.python_version()}, syno {syno.__version__}",
        f"- Command: `python {command}`",
    ]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """A Markdown table; the first `left` columns are texts, the others numbers."""
    rule = [*["---"] * left, *["---:"] * (len(columns) - left)]
    return [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]


def paragraph(text: str) -> list[str]:
    """The lines of a paragraph, or of an entry of a list."""
    return wrap(text, WIDTH, subsequent_indent="  " if text.startswith("- ") else "", break_long_words=False)


def peak_memory_mib() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
