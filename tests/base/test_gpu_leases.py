"""No two processes compute on one GPU, none is idle while jobs wait, and kills change neither."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_lines import HANGS_AFTER
from pretended_gpus import pretend, uuid
from typer.testing import CliRunner

from syno.base import gpu_leases
from syno.base.errors import DeviceError, MissingDeviceError
from syno.base.gpu_leases import holder, leased, lock, usage
from syno.cli import app

JOBS = Path(__file__).parents[1] / "support" / "gpu_jobs.py"
COMPUTES = """
import sys
from syno.base.gpu_leases import lease_descriptors, leased
from syno.measure import measuring_process
code = "import pathlib, time\\nopen('begun', 'w')\\nwhile not pathlib.Path('enough').exists(): time.sleep(0.01)"
measuring_process.COMMAND = (sys.executable, "-c", code)
with leased("cuda"), measuring_process.LocalProcess(1, lease_descriptors()) as process:
    process.process.wait()
"""


@pytest.fixture
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of leases of a machine with two pretended GPUs."""
    for name, value in pretend(tmp_path, 2).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "leases"


def file_of(leases: Path, number: int) -> Path:
    return leases / f"{uuid(number)}.lease"


def taken(leases: Path, number: int) -> int:
    """The descriptor of a lease that another process would have."""
    descriptor = lock(file_of(leases, number))
    assert descriptor is not None
    return descriptor


def never(seconds: float) -> None:
    raise AssertionError("it waits, and a GPU is free")


def jobs(folder: Path, *arguments: object) -> Any:
    (folder / "jobs").mkdir()
    command = [sys.executable, str(JOBS), str(folder / "jobs"), *map(str, arguments)]
    environment = {**os.environ, **pretend(folder, int(str(arguments[0])))}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_forty_jobs_with_ten_kills_on_eight_gpus(tmp_path: Path) -> None:
    """No two compute on one; after every end and kill, no GPU is idle while jobs wait."""
    assert jobs(tmp_path, 8, 40, 10, 0) == {"faults": [], "lost": [], "killed": 10}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize("more", [(), ("freely",)], ids=["in steps", "freely"])
def test_more_jobs_and_kills_at_any_time(seed: int, more: tuple[str, ...], tmp_path: Path) -> None:
    assert jobs(tmp_path, 8, 100, 30, seed, *more) == {"faults": [], "lost": [], "killed": 30}


def test_the_first_look_after_a_gpu_is_free_takes_it(leases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others, looks = [taken(leases, 0), taken(leases, 1)], []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            os.close(others[1])

    with leased("cuda", sleep=sleep) as gpu:
        assert gpu is not None and gpu.name == os.environ["CUDA_VISIBLE_DEVICES"] == uuid(1)
    assert len(looks) == 3
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"waiting for a GPU: 2 of 2 are in use, by pid {os.getpid()} (")
    assert last == f"waiting for a GPU: {uuid(1)} is free now"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    os.close(others[0])


def test_a_command_says_who_has_which_gpu(leases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = taken(leases, 1)
    printed = CliRunner().invoke(app, ["devices", "gpus"]).stdout
    assert re.findall(r"^\| (cuda:\d) +\| (\S+) +\| Pretended +\| (–|pid \d+)", printed, re.MULTILINE) == [
        ("cuda:0", uuid(0), "–"),
        ("cuda:1", uuid(1), f"pid {os.getpid()}"),
    ]
    os.close(other)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "lists no GPU" in CliRunner().invoke(app, ["devices", "gpus"]).stdout


def test_waiting_can_be_interrupted(leases: Path) -> None:
    others = [taken(leases, 0), taken(leases, 1)]

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), leased("cuda", sleep=interrupt):
        never(0)
    for other in others:
        os.close(other)


@pytest.mark.parametrize(
    ("visible", "device", "expected", "then"),
    [
        ("1", "cuda", 1, uuid(1)),  # what Slurm gives a job
        ("1,0", "cuda", 1, uuid(1)),
        (None, "cuda:1", 1, f"{uuid(0)},{uuid(1)}"),  # the device keeps its number
        ("1,0", "cuda:1", 0, f"{uuid(1)},{uuid(0)}"),
    ],
)
def test_a_variable_from_outside_and_a_number_say_which(
    visible: str | None, device: str, expected: int, then: str, leases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with leased(device, sleep=never) as gpu:
        assert gpu is not None and gpu.name == uuid(expected)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == then
        assert [number for number in (0, 1) if holder(file_of(leases, number))] == [expected]
        with leased(device, sleep=never) as again:  # a block in another: one process, one GPU
            assert again == gpu
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible
    assert [said for _, said in usage() if said] == []


def test_a_numbered_gpu_is_waited_for_while_another_is_free(leases: Path) -> None:
    other = taken(leases, 1)
    with leased("cuda:1", sleep=lambda seconds: os.close(other)) as gpu:
        assert gpu is not None and gpu.name == uuid(1)


def test_a_process_that_has_started_cuda_stays_with_its_gpu(leases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA reads the variable once."""
    other = taken(leases, 0)
    with leased("cuda") as first:
        pass
    os.close(other)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    with leased("cuda", sleep=never) as second:
        assert first == second and first is not None and first.name == uuid(1)


def test_a_gpu_that_is_not_there_is_an_error_before_anything_waits(leases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device, found in (("cuda:2", "finds 2 GPUs here"), ("gpu", 'must be "cpu", "cuda"')):
        with pytest.raises(MissingDeviceError, match=f"training.device.*{found}"), leased(device, "training.device"):
            never(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(MissingDeviceError, match="finds no GPU here"), leased("cuda"):
        never(0)
    with leased("cpu") as gpu:
        assert gpu is None


def test_leases_can_be_turned_off(leases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNO_GPU_LEASES", "off")
    with leased("cuda") as gpu:
        assert gpu is None and "CUDA_VISIBLE_DEVICES" not in os.environ


def test_all_users_share_the_files(leases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o077)
    with leased("cuda"):
        pass
    os.umask(before)
    assert leases.stat().st_mode & 0o7777 == 0o1777 and file_of(leases, 0).stat().st_mode & 0o777 == 0o666
    (leases.parent / "file").touch()
    monkeypatch.setenv("SYNO_GPU_LEASES", str(leases.parent / "file"))
    with pytest.raises(DeviceError, match=r"/file/GPU-.* cannot be used: .*SYNO_GPU_LEASES"), leased("cuda"):
        never(0)


def test_a_file_that_is_deleted_and_made_again_is_locked_in_its_new_form(leases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, real, done = file_of(leases, 0), fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if not done:
            done.append(True)
            file.unlink()  # between opening and locking
        real(descriptor, how)

    monkeypatch.setattr("fcntl.flock", flock)
    assert lock(file) is None  # others lock the new one
    os.close(taken(leases, 0))


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": "x"}', '{"pid": 1, "job": "", "user": "", "since": 5}'])
def test_a_text_of_who_has_it_may_be_damaged(text: str, leases: Path) -> None:
    descriptor = taken(leases, 0)
    file_of(leases, 0).write_text(text)
    assert holder(file_of(leases, 0)) == "another process"
    os.close(descriptor)


def test_a_gpu_stays_leased_until_the_child_of_a_killed_process_has_ended(leases: Path) -> None:
    """The child measures, in a session of its own."""
    folder = leases.parent
    process = subprocess.Popen([sys.executable, "-c", COMPUTES], cwd=folder, env={**os.environ, "TMPDIR": str(folder)})
    while not (folder / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert holder(file_of(leases, 0)).startswith(f"children of pid {process.pid} (")
    with leased("cuda", sleep=never) as gpu:
        assert gpu is not None and gpu.name == uuid(1)
    (folder / "enough").touch()
    with leased("cuda:0", sleep=lambda seconds: time.sleep(0.01)) as gpu:  # it ends, and then the GPU is free
        assert gpu is not None and gpu_leases.usage()[1][1] == ""


def test_several_gpus_are_leased_at_once_or_none_is_held_while_waiting(leases: Path) -> None:
    descriptor, waits = taken(leases, 1), list[int]()

    def wait(seconds: float) -> None:
        waits.append(taken(leases, 0))  # another process can take it
        os.close(waits[-1])
        os.close(descriptor)

    with leased("cuda", count=2, sleep=wait) as gpu:
        assert gpu is not None and os.environ["CUDA_VISIBLE_DEVICES"] == f"{uuid(0)},{uuid(1)}" and len(waits) == 1
        assert lock(file_of(leases, 0)) is None and lock(file_of(leases, 1)) is None
    with pytest.raises(MissingDeviceError, match="needs 3 GPUs, and this machine has 2"), leased("cuda", count=3):
        pass
