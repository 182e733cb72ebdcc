"""`syno tune speedup`: the ratio with its interval, from the store or measured by a stand-in, and clear errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_experiment import FIELDS
from typer.testing import CliRunner

from syno.cli import app
from syno.ir.library import OPERATORS
from syno.measure import measuring_process

STAND_IN = Path(__file__).parents[1] / "support" / "speedup_stand_in.py"


@pytest.mark.slow
def test_speedups_are_measured_once_and_then_read_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-S", str(STAND_IN)))
    monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("SYNO_MEASURED", str(tmp_path / "log"))
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(yaml.safe_dump(FIELDS), encoding="utf-8")
    Path("own").mkdir()
    for name, operator in (("a", "conv2d"), ("dies", "low_rank_conv2d")):
        Path(f"own/{name}.txt").write_text(str(OPERATORS[operator]().renamed(name)), encoding="utf-8")

    def tell(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["tune", "speedup", "small.yaml", *arguments])

    found = tell("own", "conv1x1", "--compiler", "eager")
    assert found.exit_code == 1  # one of them kills the process
    assert found.stdout.count("2.000 times as fast (95 % in 1.900 to 2.100), 2 ms, original 2 ms") == 2
    assert "dies, eager on" in found.stderr and "crashed: compiling: the process was ended by signal 9" in found.stderr
    again = tell("own/a.txt", "conv1x1", "--compiler", "eager")
    assert again.exit_code == 0 and again.stdout.count("(measured before)") == 2
    assert (tmp_path / "log").read_text(encoding="utf-8").split() == ["a", *["dies"] * 3, "original", "conv1x1"]
    assert len(list(Path("results/latencies").glob("*.json"))) == 2  # the death is not kept
    wrongs = {
        ("original",): "measured beside each operator",
        ("nothing",): "neither a file",
        ("own/a.txt", "--by", "x"): "--by",
    }
    for given, words in wrongs.items():
        wrong = tell(*given)
        assert wrong.exit_code == 2 and words in wrong.stderr
