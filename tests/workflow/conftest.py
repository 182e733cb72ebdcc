"""One run of the small experiment for all tests of the workflow, each of which has a copy of its folder.

It is made by whichever process of pytest comes first. (A fixture of a module would be made in every process, and with tests
kept together in one process the others would have nothing to do.)
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from finished_run import CONFIG, PRINTED, Done
from small_run import snakemake, write_config


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run, for all processes of pytest. Not to be changed."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "finished"
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / PRINTED).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            done = snakemake(folder, write_config(folder / CONFIG))
            assert done.returncode == 0, done.stdout
            (folder / PRINTED).write_text(done.stdout, encoding="utf-8")
    return folder


@pytest.fixture
def done(finished: Path, tmp_path: Path) -> Done:
    return Done(shutil.copytree(finished, tmp_path / "run"))  # with the times of files, by which Snakemake goes
