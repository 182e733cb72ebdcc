"""What the reports on the operator space have in common: where they were measured, tables, files."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def heading(title: str, command: str) -> list[str]:
    """The first lines of a report."""
    return [
        f"# {title}",
        "",
        f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- Machine: {_cpu_model()}, {os.cpu_count()} logical cores; load average before the start {os.getloadavg()[0]:.2f}",
        f"- Versions: Python {platform.python_version()}, syno {version('syno')}",
        f"- Command: `python {command}`",
    ]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table of numbers, its first column text."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]


def peak_memory_mib() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write(path: Path, lines: Sequence[str]) -> None:
    """Write the report whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    temporary.replace(path)


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
