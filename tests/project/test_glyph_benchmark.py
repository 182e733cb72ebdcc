"""The benchmark of operators on the glyph pictures runs, and prints what it promises. Its figures are no matter here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_report_has_a_row_for_each_operator(tmp_path: Path) -> None:
    file = tmp_path / "made" / "glyphs.md"
    options = ["--preset", "micro", "--operators", "grouped_conv2d", "conv1x1", "--seeds", "0", "1", "--width", "0.25"]
    command = [sys.executable, "benchmarks/glyphs.py", *options, "--output", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == file.read_text(encoding="utf-8")
    for line in ("- Date: ", "- Machine: ", "- Versions: Python ", "- Command: `python benchmarks/glyphs.py --preset micro"):
        assert line in done.stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows] == ["operator", "---", "grouped_conv2d, g=4", "conv1x1"]
    assert len({len(row) for row in rows}) == 1
    assert all(0 < float(row[1]) < 1 for row in rows[2:])
