"""On a machine with eight GPUs, jobs run on all of them at once; the workflow finds out how many there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dry_run import dry_run
from pretended_gpus import pretend
from small_run import FIELDS, merged, snakemake, write_config

from syno.stages.workflow_stages import STAGES

OPTIONS = ("workflow/profiles/local", "--cores", "64", "--quiet", "host")
ON_GPUS = merged(
    FIELDS,
    {
        "workload": {"training": {**FIELDS["workload"]["training"], "device": "cuda"}},
        "train": {"training": {**FIELDS["workload"]["training"], "device": "cuda:1"}},
        "tune": {"devices": ["cpu", "cuda", "cuda:2"]},
    },
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on a machine with eight pretended GPUs."""
    for name, value in pretend(tmp_path / "machine").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.slow
def test_each_job_has_one_gpu_and_its_part_of_the_cores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(folder / "gpus.yaml", base=ON_GPUS)
    for more, cores in (((), 8), (("--resources", "gpu=4"), 16)):
        jobs = dry_run(folder, config, *OPTIONS, *more)
        asked = {
            (job.rule, job.resources["gpu"], job.resources["cuda_1"], job.resources["cuda_2"])
            for job in jobs
            if "gpu" in job.resources
        }
        assert asked == {
            *(("data", "1", "0", "0"), ("worker", "1", "0", "0"), ("train", "1", "1", "0")),
            *(("tune", "0", "0", "0"), ("tune", "1", "0", "0"), ("tune", "1", "0", "1")),
        }
        threads = {(job.resources["gpu"], job.threads) for job in jobs if job.rule == "tune"}
        assert threads == {("0", 64), ("1", cores)}  # latencies of the processor run alone
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,5")
    assert {job.threads for job in dry_run(folder, config, *OPTIONS) if job.rule == "tune"} == {64, 32}


@pytest.mark.slow
def test_a_training_of_several_processes_has_as_many_gpus(folder: Path) -> None:
    changes = {"train": {"training": {**FIELDS["workload"]["training"], "device": "cuda", "processes": 4, "threads": 2}}}
    (asked,) = {
        (job.resources["gpu"], job.resources["mem_mb"], job.threads)
        for job in dry_run(folder, write_config(folder / "four.yaml", changes), *OPTIONS)
        if job.rule == "train"
    }
    assert asked == ("4", str(4 * STAGES["train"].memory_mib), 8)


@pytest.mark.slow
def test_the_workflow_says_how_many_gpus_it_found(folder: Path) -> None:
    config = write_config(folder / "small.yaml", {"tune": {"devices": ["cuda"]}})
    done = snakemake(folder, config, "out/data.json")
    assert done.returncode == 0, done.stdout
    (log,) = (folder / ".snakemake" / "log").glob("*.log")
    assert re.search(r"Provided resources: .*gpu=\D*8\b", log.read_text(encoding="utf-8"))
