"""Folders and files whose names a shell would split or expand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from small_run import COUNTED, snakemake, write_config

FOLDER = 'o\'ut $(touch pwned) `touch pwned` $HOME;touch pwned & "x" *'
FILE = "my $(touch pwned) config.yaml"


def test_commands_have_folders_as_one_word(tmp_path: Path) -> None:
    config = write_config(tmp_path / FILE, {"name": "counted", "output": FOLDER}, COUNTED)
    done = snakemake(tmp_path, config, "--dry-run", "--printshellcmds", "--quiet", "host")
    assert done.returncode == 0, done.stdout
    commands = [line for line in done.stdout.splitlines() if re.search(r"\bsyno \w+ .*experiment\.yaml", line)]
    assert len(commands) == 6, done.stdout  # worker, freeze, select, two figures, report
    for command in commands:
        words = shlex.split(command.replace("Shell command: ", ""))
        assert f"{FOLDER}/experiment.yaml" in words
        assert all(word.startswith(FOLDER) for word in words if "pwned" in word)


@pytest.mark.slow
def test_an_experiment_runs_in_a_folder_with_spaces_and_quotes(tmp_path: Path) -> None:
    """All of it, the settings given once more by the file that is kept beside the results."""
    config = write_config(tmp_path / FILE, {"name": "counted", "output": FOLDER}, COUNTED)
    done = snakemake(tmp_path, config)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / FOLDER / "report.html").is_file()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([".snakemake", FILE, FOLDER])
