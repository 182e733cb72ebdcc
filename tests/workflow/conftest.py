"""One run of the small experiment for all tests of the workflow, each of which has a copy of its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from finished_run import CONFIG, Done
from made_once import made_once
from small_run import snakemake, write_config


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run, for all processes of pytest. Not to be changed."""

    def run(folder: Path) -> None:
        done = snakemake(folder, write_config(folder / CONFIG))
        assert done.returncode == 0, done.stdout

    return made_once(tmp_path_factory, "finished", run)


@pytest.fixture
def done(finished: Path, tmp_path: Path) -> Done:
    return Done(shutil.copytree(finished, tmp_path / "run"))  # with the times of files, by which Snakemake goes
