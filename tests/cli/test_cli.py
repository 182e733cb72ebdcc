"""The commands: their help, and what they say when something is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from command_lines import Run, one_line, one_line_at_end
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.space.rules import RULES
from syno.stages.workflow_stages import STAGES


def test_help_names_all_commands(run: Run) -> None:
    text = run("--help").stdout
    for command in (
        "rules",
        "spec",
        "sample",
        "data",
        "search",
        "worker",
        "freeze",
        "select",
        "train",
        "baseline",
        "tune",
        "tables",
        "figure",
        "report",
        "top",
        "show",
        "explain",
        "ablate",
    ):
        assert command in text
        assert "Usage" in run(command, "--help").stdout


def test_help_has_the_order_of_the_stages(run: Run) -> None:
    shown = re.findall(r"^│ (\w+) ", run("--help").stdout.partition("stage by stage")[2].partition("Results")[0], re.MULTILINE)
    assert shown == ["plan", "check", "run", *(command for stage in STAGES.values() for command in stage.commands)]


def test_runs_as_a_module() -> None:
    shown = subprocess.run([sys.executable, "-m", "syno", "--help"], capture_output=True, text=True, check=True)
    assert "Usage" in shown.stdout


class TestRulesAndSpec:
    def test_rules_lists_every_rule(self, run: Run) -> None:
        shown = run("rules").stdout
        assert {line.split()[0] for line in shown.splitlines() if line[:1].strip()} >= set(RULES)
        assert run("rules", "--markdown").stdout.startswith("| id |")

    def test_spec_prints_what_can_be_read_again(self, run: Run, folder: Path) -> None:
        text = run("spec", "resnet18").stdout
        (folder / "again.yaml").write_text(text, encoding="utf-8")
        assert run("spec", "again.yaml").stdout == text


class TestErrors:
    def test_errors_are_one_line(self, run: Run) -> None:
        assert "presets are: resnet18" in one_line(run("sample", "resnet1", code=2))

    def test_debug_shows_the_traceback(self, folder: Path) -> None:
        result = CliRunner().invoke(app, ["--debug", "sample", "resnet1"])
        assert isinstance(result.exception, SpecError)

    def test_a_file_that_cannot_be_written_is_an_error(self, run: Run, folder: Path) -> None:
        (folder / "taken").write_text("", encoding="utf-8")
        assert "cannot be written" in one_line_at_end(run("sample", "small.yaml", "-n", "1", "--output", "taken/here", code=2))

    def test_an_unknown_choice_of_an_option_is_an_error(self, run: Run) -> None:
        assert "neither kind nor all" in run("sample", "small.yaml", "--by", "size", code=2).stderr
