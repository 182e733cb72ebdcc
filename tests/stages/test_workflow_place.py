"""`syno run`: Snakemake with the workflow that the package brings, from any folder."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from syno.base.errors import MissingPackageError, SpecError
from syno.stages.workflow.command import command, workflow_folder

ROOT = Path(__file__).parents[2]


def options(arguments: list[str]) -> dict[str, str]:
    """Options of Snakemake with one value."""
    return {name: value for name, value in pairwise(arguments) if name.startswith("--")}


def test_a_checkout_has_its_own_workflow(tmp_path: Path) -> None:
    assert workflow_folder() == ROOT
    made = command("quickstart", "local", 3, ["-n", "report.html"], tmp_path)
    assert made[:3] == [sys.executable, "-m", "snakemake"] and made[-2:] == ["-n", "report.html"]
    given = options(made)
    assert given["--configfile"] == str(ROOT / "config" / "quickstart.yaml") and given["--cores"] == "3"
    assert given["--directory"] == str(tmp_path) and given["--profile"] == str(ROOT / "workflow" / "profiles" / "local")


def test_a_file_of_one_s_own_and_a_profile_with_its_own_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text("name: mine\n", encoding="utf-8")  # a file goes before a name
    Path("cluster").mkdir()
    given = options(command("quickstart", "cluster", None, [], tmp_path))
    assert given["--configfile"] == "quickstart" and given["--profile"] == "cluster" and "--cores" not in given


def test_what_is_not_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match=r"quickstrat is no file; Syno brings .*quickstart.*Did you mean \"quickstart\"\?"):
        command("quickstrat", "local", 1, [], tmp_path)
    with pytest.raises(SpecError, match='no profile "slrm"; give local or slurm, or a folder'):
        command("quickstart", "slrm", 1, [], tmp_path)
    monkeypatch.setattr("syno.stages.workflow.command.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r'pip install "syno-operators\[workflow\]"'):
        command("quickstart", "local", 1, [], tmp_path)
