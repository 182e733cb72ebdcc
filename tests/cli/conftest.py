"""A folder to run commands in, and what runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from command_lines import Run
from small_specs import convolution
from typer.testing import CliRunner

from syno.cli import app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, with the spec of a small space."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(convolution(depth=5).dump(), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    def call(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, (result.output, result.stderr, result.exception)
        return result

    return call
