"""Studies on a disk that is full at some moment, and enlarged later: every finished trial is there, the study goes on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import search_worker

from syno.base.errors import StorageError
from syno.ir.graph import PGraph
from syno.search.study import Study
from syno.train.contract import Report

PROGRAM = Path(__file__).parents[1] / "support" / "disk_workers.py"
FULL = ("No space left on device", "disk is full", "disk I/O error", "unable to open database file")
WORKERS, MOMENTS, MANY = 3, 4, 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or shutil.which("mount") is None:
        pytest.skip("only root mounts disks")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def place(kind: str, folder: Path) -> str:
    return f"sqlite:///{folder}/trials.db" if kind == "sqlite" else f"journal:{folder}/trials.log"


def fill(disk: Path, leave: int = 0) -> None:
    """Take all room but so many pages."""
    with (disk / "filler").open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        file.truncate(max(0, file.tell() - leave * 4096))


def check(study: Study, acknowledged: Mapping[int, float], count: int) -> None:
    """Every acknowledged trial is there, and the study has just as many as it was to have."""
    trials = study.trials.set_index("number")
    for number, reward in acknowledged.items():
        assert trials.outcome[number] == "complete" and trials.reward[number] == reward
    ended = trials[trials.outcome == "complete"]
    assert len(ended) == ended.fingerprint.nunique() == count
    assert set(trials.outcome) <= {"complete", "interrupted", "duplicate"}


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_a_study_goes_on_when_the_disk_is_enlarged(disk: Path, kind: str) -> None:
    done: list[float] = []

    def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
        if len(done) == 5:
            fill(disk)
        done.append(0.5 + len(done) / 100)
        return {"accuracy": done[-1]}

    storage = place(kind, disk)
    with pytest.raises(StorageError, match=rf"cannot be used: .*({'|'.join(FULL)})"):
        search_worker.open_study(storage, "random").run(evaluate, 50)
    acknowledged = {number: 0.5 + number / 100 for number in range(5)}
    with pytest.raises(StorageError, match=rf"cannot be used: .*({'|'.join(FULL)})"):
        search_worker.open_study(storage, "random").run(evaluate, 50)
    subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
    study = search_worker.open_study(storage, "random")
    study.run(evaluate, 10)
    check(study, acknowledged, 10)


def noted(notes: Path) -> dict[int, float]:
    """The rewards of trials whose ends were acknowledged, by number."""
    lines = [line.split() for line in notes.read_text(encoding="utf-8").splitlines()] if notes.exists() else []
    assert len({number for number, _ in lines}) == len(lines)
    return {int(number): float(reward) for number, reward in lines}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_full_at_random_moments(disk: Path, tmp_path: Path, kind: str) -> None:
    """Again and again another file takes all the room from three workers, and goes away when they have ended."""
    rng, storage, notes, said = random.Random(kind), place(kind, disk), tmp_path / "notes", tmp_path / "said"
    command = [sys.executable, str(PROGRAM), storage, str(notes), str(WORKERS)]
    with said.open("w") as errors, subprocess.Popen(command, stdin=-1, stdout=-1, stderr=errors, text=True) as program:
        assert program.stdin is not None and program.stdout is not None

        def begin(trials: int) -> None:
            program.stdin.write(f"{trials}\n")
            program.stdin.flush()

        for _ in range(MOMENTS):
            before = len(noted(notes))
            begin(MANY)
            target = before + rng.randrange(1, 12)
            while len(noted(notes)) < target:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.05))
            fill(disk, leave=rng.choice([0, 0, 1, 3]))
            assert program.stdout.readline().split() == ["2"] * WORKERS, said.read_text()
            (disk / "filler").unlink()
        count = len(noted(notes)) + WORKERS * MOMENTS + 10  # each worker may have stored one more than it could say, each time
        begin(count)
        assert program.stdout.readline().split() == ["0"] * WORKERS, said.read_text()
        program.stdin.close()
    lines = said.read_text().splitlines()
    ends = [line for line in lines if line.startswith("error: ")]
    assert len(ends) == WORKERS * MOMENTS and all(any(reason in line for reason in FULL) for line in ends)
    assert "Traceback" not in said.read_text()
    check(search_worker.open_study(storage, "random"), noted(notes), count)
