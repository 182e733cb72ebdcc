"""The cores that a process may use: by its affinity, its container and its Slurm job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syno.base import devices
from syno.base.devices import _quotas, usable_cores
from syno.stages.workflow.command import command

V1, V2 = "5:cpuset:/\n3:cpu,cpuacct:/jobs/one\n", "0::/jobs/one\n"


@pytest.mark.parametrize(
    ("groups", "files", "limits"),
    [
        (V2, {"jobs/one/cpu.max": "150000 100000"}, [1.5]),
        (V2, {"jobs/one/cpu.max": "max 100000", "jobs/cpu.max": "400000 100000"}, [4.0]),  # of the group above
        (V2, {"cpu.max": "200000 100000"}, [2.0]),  # a container sees its own group as the root
        (V1, {"cpu,cpuacct/jobs/one/cpu.cfs_quota_us": "50000", "cpu,cpuacct/jobs/one/cpu.cfs_period_us": "100000"}, [0.5]),
        (V1, {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, [3.0]),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, []),
        (V2, {}, []),
        ("", {}, []),
    ],
)
def test_limits_of_control_groups(groups: str, files: dict[str, str], limits: list[float], tmp_path: Path) -> None:
    (tmp_path / "groups").write_text(groups, encoding="ascii")
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text, encoding="ascii")
    assert list(_quotas(tmp_path / "groups", tmp_path / "root")) == limits


@pytest.mark.parametrize(
    ("affinity", "quotas", "slurm", "cores"),
    [(8, [], None, 8), (8, [2.5], None, 3), (8, [0.5], None, 1), (8, [], "4", 4), (2, [6.0], "4", 2), (8, [], "x", 8)],
)
def test_the_least_of_them_counts(
    affinity: int, quotas: list[float], slurm: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    monkeypatch.setattr(devices, "_quotas", lambda *_: quotas)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    if slurm is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", slurm)
    assert usable_cores() == cores
    line = command("quickstart", "local", None, [], tmp_path)
    assert line[line.index("--cores") + 1] == str(cores)
