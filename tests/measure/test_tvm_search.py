"""Tuning goes on where it was stopped, counts what failed, and survives torn files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("tvm", reason="TVM is not installed")

from made_once import made_once
from tvm_doubles import CountingRunner, NoBuilder

from syno.base.errors import SpecError
from syno.ir.library import OPERATORS
from syno.measure.job import TrialCount
from syno.measure.tuning_record import TaskResult, TuningSummary
from syno.measure.tvm.compilation import fused
from syno.measure.tvm.network import import_network
from syno.measure.tvm.search import RECORDS, WORKLOADS, TrialDatabase, folder_for, only_writer, repair, tune_network
from syno.measure.tvm.targets import TvmSettings, host, target
from syno.model import build

pytestmark = pytest.mark.slow  # most of a minute

SETTINGS = TvmSettings(trials_per_task=4, trials_per_iteration=2, cost_model="random")


@pytest.fixture(scope="module")
def to() -> Any:
    return target(host(1))


@pytest.fixture(scope="module")
def two_stages(to: Any) -> Any:
    operator = build(OPERATORS["separable_conv2d"](), {"C_in": 4, "C_out": 5, "H": 6}, seed=0)
    return fused(import_network(operator, torch.rand(1, 4, 6, 6)), to)


def tuned(module: Any, to: Any, folder: Path, runner: Any = None, **rest: Any) -> tuple[list[TaskResult], int]:
    """The tasks' results, and how many trials were measured."""
    runner = runner or CountingRunner()
    settings = rest.pop("settings", SETTINGS)
    return tune_network(module, to, folder, settings, runner=runner, builder=NoBuilder(), **rest), runner.count


@pytest.fixture(scope="module")
def once_searched(
    two_stages: Any, to: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[TaskResult], int, list[str]]:
    """A folder with the trials of both tasks, the tasks' results, how many trials were measured, and what was told."""

    def search(folder: Path) -> None:
        told = list[str]()
        tasks, count = tuned(two_stages, to, folder / "trials", progress=told.append)
        (folder / "found.json").write_text(json.dumps([[task.model_dump() for task in tasks], count, told]), encoding="utf-8")

    folder = made_once(tmp_path_factory, "searched-by-tvm", search)
    tasks, count, told = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return folder / "trials", [TaskResult(**task) for task in tasks], count, told


@pytest.fixture
def searched(once_searched: tuple[Path, Any, Any, Any], tmp_path: Path) -> Path:
    """A folder with the trials of both tasks, to be changed."""
    return Path(shutil.copytree(once_searched[0], tmp_path / "searched"))


def lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if line.strip()]


def test_each_task_gets_its_trials_and_a_second_run_measures_nothing(
    two_stages: Any, to: Any, once_searched: tuple[Path, list[TaskResult], int, list[str]], searched: Path
) -> None:
    _, tasks, count, told = once_searched
    assert count == 8 and [(task.trials, task.measured, task.calls) for task in tasks] == [(4, 4, 1)] * 2
    assert [task.best_ms for task in tasks] == [pytest.approx(1e3 / 4), pytest.approx(1e3 / 8)]
    assert len(told) == 4 and told[1].startswith(f"task 1 of 2, {tasks[0].name}: 4 of 4 trials, best 250")
    again, count = tuned(two_stages, to, searched)
    assert count == 0 and [(task.trials, task.measured) for task in again] == [(4, 0)] * 2


def test_an_interrupted_run_goes_on(two_stages: Any, to: Any, tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("task 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(two_stages, to, tmp_path, progress=stop)
    assert len(lines(tmp_path / RECORDS)) == 6
    tasks, count = tuned(two_stages, to, tmp_path)
    assert count == 2 and [(task.trials, task.measured) for task in tasks] == [(4, 0), (4, 2)]


def test_a_larger_budget_adds_to_what_there_is(two_stages: Any, to: Any, searched: Path) -> None:
    counts: list[TrialCount] = []
    more = SETTINGS.model_copy(update={"trials_per_task": 6})
    tasks, count = tuned(two_stages, to, searched, settings=more, count=counts.append)
    assert count == 4 and [task.trials for task in tasks] == [6, 6]
    assert [(one.task, one.trials) for one in counts] == [(0, 8), (1, 8), (1, 10), (2, 10), (2, 12)]
    assert {(one.tasks, one.trials_wanted) for one in counts} == {(2, 12)}


def test_trials_that_failed_count(two_stages: Any, to: Any, tmp_path: Path) -> None:
    tasks, count = tuned(two_stages, to, tmp_path, CountingRunner(fails=True))
    assert count == 8 and [(task.trials, task.best_ms) for task in tasks] == [(4, None)] * 2
    assert tuned(two_stages, to, tmp_path)[1] == 0
    summary = TuningSummary.of(tasks, {}, 4, 0.0, None)
    assert summary.complete and summary.shortcoming.startswith("2 of 2 tasks run untuned (") and "failed" in summary.shortcoming


def test_tuning_ends_at_its_deadline(two_stages: Any, to: Any, tmp_path: Path) -> None:
    tasks, count = tuned(two_stages, to, tmp_path, deadline=time.monotonic() - 1)
    assert count == 0 and [task.trials for task in tasks] == [0, 0]
    summary = TuningSummary.of(tasks, {}, 4, 0.0, None)
    assert not summary.complete and "tune again, and it goes on" in summary.shortcoming


def test_it_ends_before_an_iteration_that_would_be_too_late(two_stages: Any, to: Any, tmp_path: Path) -> None:
    deadline = time.monotonic() + 1000

    class Slow:
        """A clock that jumps by 600 seconds with each batch of trials."""

        moved = 0.0

        def tell(self, line: str) -> None:
            self.moved += 600

    slow, clock = Slow(), time.monotonic
    patch = pytest.MonkeyPatch()
    patch.setattr("syno.measure.tvm.search.time.monotonic", lambda: clock() + slow.moved)
    try:
        _, count = tuned(two_stages, to, tmp_path, progress=slow.tell, deadline=deadline)
    finally:
        patch.undo()
    assert count == 2


def test_a_search_without_more_schedules_is_not_begun_again(
    two_stages: Any, to: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvm.s_tir import meta_schedule

    begun: list[int] = []
    monkeypatch.setattr(meta_schedule, "tune_tasks", lambda **_: begun.append(1))
    tasks, _ = tuned(two_stages, to, tmp_path)
    assert len(begun) == 2 and all(task.exhausted for task in tasks)
    assert TuningSummary.of(tasks, {}, 4, 0.0, None).complete
    tuned(two_stages, to, tmp_path)
    assert len(begun) == 2
    tuned(two_stages, to, tmp_path, settings=SETTINGS.model_copy(update={"trials_per_task": 6}))
    assert len(begun) == 4  # a search that begins with more may find some


@pytest.mark.parametrize("torn", [RECORDS, WORKLOADS])
def test_a_torn_last_line_is_removed(two_stages: Any, to: Any, searched: Path, torn: str) -> None:
    path = searched / torn
    path.write_bytes(path.read_bytes().rstrip()[:-40])
    tasks, count = tuned(two_stages, to, searched)
    # with the second task, its four trials are gone
    assert count == (1 if torn == RECORDS else 4)
    assert [task.trials for task in tasks] == [4, 4] and len(lines(searched / RECORDS)) == 8


def test_what_is_whole_stays(searched: Path) -> None:
    before = (searched / RECORDS).read_bytes()
    assert repair(searched) == 0 and (searched / RECORDS).read_bytes() == before


def test_damage_that_no_killed_process_does_is_an_error(searched: Path) -> None:
    path = searched / RECORDS
    path.write_bytes(b"[0,\n" + path.read_bytes())
    with pytest.raises(SpecError, match=r"line 1 of .*database_tuning_record\.json is damaged"):
        TrialDatabase(searched)


def test_targets_and_devices_have_folders_of_their_own(tmp_path: Path) -> None:
    folders = {
        folder_for(tmp_path, target({"kind": "llvm", "mcpu": processor, "mtriple": "x86_64-linux-gnu"}), device, version)
        for processor in ("znver3", "znver4")
        for device in ("one", "another")
        for version in ("0.27", "0.28")
    }
    assert len(folders) == 8 and all((folder / "target.json").exists() for folder in folders)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\n"
        "from syno.measure.tvm.search import only_writer\n"
        "with only_writer(pathlib.Path(sys.argv[1]), 0):\n"
        "    print('in', flush=True)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"in\n"
        with pytest.raises(SpecError, match="another process tunes with"), only_writer(tmp_path, time.monotonic()):
            pytest.fail("there are two")
        other.kill()  # the lock does not outlive it
        other.wait()
        with only_writer(tmp_path, time.monotonic() + 30):
            pass
