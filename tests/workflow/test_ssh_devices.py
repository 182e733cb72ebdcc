"""Jobs that measure on machines that are reached by ssh."""

from __future__ import annotations

from pathlib import Path

import pytest
from dry_run import dry_run
from small_run import ROOT, write_config

LOCAL = ROOT / "workflow" / "profiles" / "local"


@pytest.mark.slow
def test_a_dry_run_has_a_job_for_each_compiler_on_each_machine(tmp_path: Path) -> None:
    boards = {
        "board": {"kind": "ssh", "host": "pi@10.0.0.7", "compilers": ["inductor", "inductor-int8"]},
        "board-gpu": {"kind": "ssh", "host": "pi@10.0.0.7", "device": "cuda"},
    }
    tune = {"compilers": ["eager", "inductor", "inductor-int8"], "devices": ["cpu", *boards], "remote_devices": boards}
    config = write_config(tmp_path / "small.yaml", {"tune": {**tune, "baselines": False}})
    jobs = {
        Path(job.outputs).name: job
        for job in dry_run(tmp_path, config, str(LOCAL), "--cores", "2", "--quiet", "host")
        if job.rule == "tune" and "original" in job.outputs
    }
    places = {
        "cpu": ("eager", "inductor", "inductor-int8"),  # a compiler's name may have digits
        "board": ("inductor", "inductor-int8"),
        "board.gpu": ("eager", "inductor", "inductor-int8"),
    }
    assert sorted(jobs) == sorted(f"{one}-{place}.json" for place, compilers in places.items() for one in compilers)
    for name, job in jobs.items():
        elsewhere = "board" in name
        assert job.threads == (1 if elsewhere else 2)  # this machine only waits
        assert job.resources["device_pi_10_0_0_7"] == str(int(elsewhere))  # one at a time on a host
