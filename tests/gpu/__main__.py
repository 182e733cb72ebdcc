"""Run the tests of this folder without pytest: `python tests/gpu`. One line for each test, and a last line with the numbers.

`--results FILE` also writes them as JSON, again after each test. Exit status: 0; 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import unittest
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

FOLDER = Path(__file__).resolve().parent
Error: TypeAlias = (
    "tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]"  # as sys.exc_info returns it
)


class Results(unittest.TestResult):
    """Prints each outcome when it is known, and keeps it in a file."""

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self.file, self.rows, self.began = file, [], 0.0
        self.row: dict[str, Any] = {}

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        self.row, self.began = {"test": _name(test), "outcome": "PASS", "note": ""}, time.perf_counter()

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        self._finish(time.perf_counter() - self.began)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._note(test, "SKIP", reason)

    def addFailure(self, test: unittest.TestCase, err: Error) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._note(test, "FAIL", self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Error) -> None:  # noqa: N802
        super().addError(test, err)
        self._note(test, "FAIL", self.errors[-1][1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Error | None) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note(test, "FAIL", f"{subtest}\n{err[1]}")

    def counts(self) -> dict[str, int]:
        """How many tests have each outcome."""
        return {outcome: sum(row["outcome"] == outcome for row in self.rows) for outcome in ("PASS", "FAIL", "SKIP")}

    def _note(self, test: unittest.TestCase, outcome: str, note: str) -> None:
        """Set the outcome. One of a whole class or module, which is no test that has started, is a row of its own."""
        alone = not isinstance(test, unittest.TestCase)
        if alone:
            self.row = {"test": str(test).partition("(")[2].rstrip(")") or str(test), "outcome": "PASS", "note": ""}
        elif self.row["outcome"] == "FAIL":
            note = f"{self.row['note']}\n{note}"
        self.row |= {"outcome": outcome, "note": note.strip()}
        if alone:
            self._finish(0.0)

    def _finish(self, seconds: float) -> None:
        self.rows.append(self.row | {"seconds": round(seconds, 2)})
        note = self.row["note"].replace("\n", "\n     ")
        print(f"{self.row['outcome']} {self.row['test']} ({seconds:.1f} s){note and ': ' + note}", flush=True)
        if self.file is not None:
            self.file.write_text(json.dumps(self.rows, indent=1), encoding="utf-8")


def _name(test: unittest.TestCase) -> str:
    return ".".join(test.id().split(".")[-2:])


def main() -> int:
    """Run the tests, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--results", type=Path, help="a file for the outcomes as JSON")
    parser.add_argument("-k", dest="pattern", action="append", help="only tests whose names have this in them")
    options = parser.parse_args()
    sys.path[:0] = [str(FOLDER.parents[1])]  # Syno, which may not be installed
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{pattern}*" for pattern in options.pattern] if options.pattern else None
    results = Results(options.results)
    loader.discover(str(FOLDER), pattern="test_*.py").run(results)
    counts = results.counts()
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 1 if counts["FAIL"] or not results.rows else 0


if __name__ == "__main__":
    sys.exit(main())
