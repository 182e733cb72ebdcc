"""Ends of a run: that nothing meets the goal is a result, and an error of one's own code ends it with one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import COUNTED, RESULTS, snakemake, write_config


@pytest.mark.slow
def test_a_search_that_meets_nothing_has_a_page(tmp_path: Path) -> None:
    goal = {"speedup": 9.0, "compiler": "eager", "most_screened": 2}
    rivals = {"shares": [0.5], "pruning": False, "operators": ["gpt2_projection"], "int8": False}
    changes = {"goal": goal, "rivals": rivals, "reward": {"name": "accuracy", "low": 0.0}}
    done = snakemake(tmp_path, write_config(tmp_path / "small.yaml", changes))
    assert done.returncode == 0 and "Trying to restart" not in done.stdout, done.stdout
    page = (tmp_path / RESULTS / "report.html").read_text(encoding="utf-8")
    assert "No operator is selected, since nothing meets the goal: " in page and "of 2 is " in page
    assert "The best of all networks: narrow_0.5, without synthesis, " in page and "gpt2_projection is missing: " in page
    assert "small: No operator is selected, since nothing meets the goal: " in done.stdout


@pytest.mark.slow
def test_an_error_of_ones_own_code_is_the_last_line_and_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def broken(operator, report):\n    raise ValueError('my own bug')\n", encoding="utf-8")
    done = snakemake(tmp_path, write_config(tmp_path / "mine.yaml", {"evaluate": "own:broken"}, COUNTED))
    assert done.returncode != 0 and "Trying to restart" not in done.stdout and "CalledProcessError" not in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith('error: study "mine" stopped: ') and "my own bug (own.py, line 2)" in last, done.stdout
