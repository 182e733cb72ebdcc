"""The benchmark of search policies runs, and prints what it promises."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("search")


@pytest.mark.slow
def test_the_report_has_a_row_for_each_policy_with_a_p_value(benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--space", "mock", "--trials", "60", "--seeds", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert [row[0] for row in rows] == ["policy", "---", "random", "mcts", "mcts-focused", "evolution"]
    assert len({len(row) for row in rows}) == 1
    table = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}
    assert table["random"]["p, mean above random"] == "–"
    for name in ("mcts", "mcts-focused", "evolution"):
        assert 0 < float(table[name]["p, mean above random"]) < 0.05
        assert float(table[name]["mean reward"]) > float(table["random"]["mean reward"])


def test_a_choice_without_random_search_is_an_error(benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        benchmark.main(["--space", "mock", "--policies", "mcts"])
    assert ended.value.code == 2
    assert "--policies mcts: random, and any of mcts, mcts-focused, evolution" in capsys.readouterr().err
