"""The benchmark of search policies runs, and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/search.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_report_has_a_row_for_each_policy_with_a_p_value() -> None:
    done = run("--space", "mock", "--trials", "60", "--seeds", "6")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows] == ["policy", "---", "random", "mcts", "mcts-focused", "evolution"]
    assert len({len(row) for row in rows}) == 1
    table = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}
    assert table["random"]["p, mean above random"] == "–"
    for name in ("mcts", "mcts-focused", "evolution"):
        assert 0 < float(table[name]["p, mean above random"]) < 0.05
        assert float(table[name]["mean reward"]) > float(table["random"]["mean reward"])


def test_a_choice_without_random_search_is_an_error() -> None:
    done = run("--space", "mock", "--policies", "mcts")
    assert done.returncode == 2
    assert "--policies mcts: random, and any of mcts, mcts-focused, evolution" in done.stderr
