"""Measure the rows of a GPU one after another, within a time, and keep each result when it is known."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gpu_machine
import gpu_report
import gpu_rows
from gpu_rows import GOOD, ROOT, Outcome, Row

from syno.base.files import write_whole

SAME = ("gpu", "torch", "triton", "syno")  # a file holds rows of one GPU and of these versions
SECTIONS = ("tests", "training", "latency")


class Results:
    """The results in a file, which holds them all after each row.

    Attributes:
        about: the machine.
        rows: by key; each with `status`, `reason`, `values`, `seconds`, `date`, and what is known of the row.
    """

    def __init__(self, file: Path, about: dict[str, str]) -> None:
        self.file, self.about = file, about
        self.rows: dict[str, dict[str, Any]] = {}
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            different = [name for name in SAME if kept["about"].get(name) != about.get(name)]
            if different:
                old = ", ".join(f"{name} {kept['about'].get(name)}" for name in different)
                print(f"{file} has results of another machine or version ({old}): they are measured again", file=sys.stderr)
            else:
                self.rows = kept["rows"]

    def todo(self, rows: Sequence[Row]) -> list[Row]:
        """Rows that were never measured, and after them those that failed or were skipped."""
        new = [row for row in rows if row.key not in self.rows]
        return new + [row for row in rows if self.rows.get(row.key, {}).get("status", "ok") != "ok"]

    def keep(self, row: Row, outcome: Outcome, seconds: float) -> None:
        """Write the outcome of a row into the file."""
        self.rows[row.key] = {
            "section": row.section,
            "title": row.title,
            "about": row.about,
            "status": outcome.status,
            "reason": outcome.reason,
            "values": outcome.values,
            "seconds": round(seconds, 1),
            "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "commit": self.about["commit"],
        }
        write_whole(self.file, json.dumps({"about": self.about, "rows": self.rows}, indent=1) + "\n")


def rows_of(options: argparse.Namespace) -> list[Row]:
    """The rows that the options ask for. SystemExit if they name an unknown section."""
    wanted = options.sections.split(",")
    if unknown := sorted(set(wanted) - set(SECTIONS)):
        raise SystemExit(f'there is no section "{unknown[0]}"; there are: {", ".join(SECTIONS)}')
    every = gpu_rows.miniature() if options.pretend else gpu_rows.rows(options.device, tf32=options.tf32)
    return [row for row in every if row.section in wanted]


def run(options: argparse.Namespace, command: str) -> int:
    """Measure, write both files; the exit status."""
    began = time.monotonic()
    rows, about = rows_of(options), gpu_machine.about("cpu" if options.pretend else options.device)
    name = "pretended-gpu" if options.pretend else f"gpu-{re.sub(r'[^a-z0-9]+', '-', about['gpu'].lower()).strip('-')}"
    folder = options.output or ROOT / ("results/pretended-gpu" if options.pretend else "docs/measured")
    results, report = Results(folder / f"{name}.json", about), folder / f"{name}.md"

    def write() -> None:
        lines = gpu_report.report(about, command, results.rows, rows, pretended=options.pretend)
        write_whole(report, "\n".join(lines) + "\n")

    try:
        _measure(results, rows, began + 60 * options.minutes, write)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on with the other rows", file=sys.stderr)
        return 130
    finally:
        write()
    bad = [row for row in rows if results.rows.get(row.key, {}).get("status", "ok") not in GOOD]
    missing = [row for row in rows if row.key not in results.rows]
    print(f"{len(rows) - len(bad) - len(missing)} of {len(rows)} rows, {len(bad)} failed, {len(missing)} for another run")
    print(f"written: {report} and {results.file}")
    return 1 if bad else 0


def _measure(results: Results, rows: Sequence[Row], end: float, write: Callable[[], None]) -> None:
    """Measure the rows that are to be done until `end`, a time of `time.monotonic`; write the report after each."""
    todo = results.todo(rows)
    with tempfile.TemporaryDirectory(prefix="syno-gpu-") as files:
        for number, row in enumerate(todo, 1):
            left = end - time.monotonic()
            if left < row.least_s:
                continue  # a later one may be shorter
            print(f"[{number}/{len(todo)}] {row.title}; {left:.0f} s left", file=sys.stderr, flush=True)
            place = Path(files) / str(number)
            place.mkdir()
            start = time.monotonic()
            outcome = row.measure(min(left, row.most_s), place)
            if outcome.status == "timeout" and left < row.most_s:
                print(f"[{number}/{len(todo)}] the time was over", file=sys.stderr, flush=True)
                continue
            results.keep(row, outcome, time.monotonic() - start)
            print(f"[{number}/{len(todo)}] {outcome.reason or outcome.status}", file=sys.stderr, flush=True)
            write()
