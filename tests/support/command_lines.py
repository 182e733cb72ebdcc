"""What commands print, the tables that they write, and when they hang."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Run = Callable[..., Result]
HANGS_AFTER = 1800  # seconds, of a process that a test starts, on any machine


def one_line(result: Result) -> str:
    """The error: the one line on standard error, and nothing else anywhere."""
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def rows(file: Path) -> list[dict[str, str]]:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("#")]
    return list(csv.DictReader(lines))


def one_line_at_end(result: Result) -> str:
    return result.stderr.splitlines()[-1]
