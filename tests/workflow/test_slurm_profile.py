"""`snakemake --profile slurm`: what jobs ask a cluster for. It takes the plugin of Snakemake, and nothing of Slurm itself."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from dry_run import Job, dry_run
from made_once import made_once
from small_run import ROOT, planned, write_config
from typer.testing import CliRunner

from syno.cli import app
from syno.config import load_experiments
from syno.config.left_out import DevicesRecord, devices_file
from syno.stages.workflow_stages import has_operators

PROFILE = ROOT / "workflow" / "profiles" / "slurm"
LONG = ("worker", "train", "tune", "speed")
SHORT = ("freeze", "shortlist", "select", "tables", "figure", "report")

needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec("snakemake_executor_plugin_slurm") is None,
    reason='the plugin for Slurm is not installed: pip install "syno-operators[slurm]"',
)


def test_the_profile_is_found_by_its_name_in_a_fresh_clone() -> None:
    link = ROOT / "slurm"
    assert link.is_symlink() and link.resolve() == PROFILE
    assert not link.readlink().is_absolute()


def test_no_profile_is_loaded_that_was_not_asked_for() -> None:
    assert not any((folder / "profiles" / "default").exists() for folder in (ROOT, ROOT / "workflow"))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    def make(folder: Path) -> None:
        found = dry_run(folder, ROOT / "config" / "paper.yaml", "slurm")
        (folder / "jobs.json").write_text(json.dumps([asdict(job) for job in found]), encoding="utf-8")

    file = made_once(tmp_path_factory, "paper-on-slurm", make) / "jobs.json"
    return [Job(**fields) for fields in json.loads(file.read_text(encoding="utf-8"))]


@needs_plugin
@pytest.mark.slow
class TestPaper:
    def test_every_job_says_how_long_and_how_much_memory(self, jobs: list[Job]) -> None:
        assert {job.rule for job in jobs} >= {*LONG, *SHORT, "data"}
        for job in jobs:
            if job.rule != "all":
                assert int(job.resources["runtime"]) > 0 and int(job.resources["mem_mb"]) > 0, job

    def test_jobs_that_train_on_a_gpu_ask_for_one(self, jobs: list[Job]) -> None:
        assert {job.resources["gpu"] for job in jobs if job.rule in ("data", "worker", "train")} == {"1"}
        assert not any(job.resources.get("gpu", "0") != "0" for job in jobs if job.rule in SHORT)

    @pytest.mark.parametrize(
        ("measured", "gpu", "extra", "jetson"),
        [
            ("tvm-cpu", "0", "--exclusive", "0"),
            ("tvm-cuda", "1", "", "0"),
            ("tvm-jetson.gpu", "0", "", "1"),
            ("inductor-jetson.gpu", "0", "", "1"),  # by ssh
        ],
    )
    def test_a_measurement_asks_for_what_its_device_takes(
        self, jobs: list[Job], measured: str, gpu: str, extra: str, jetson: str
    ) -> None:
        found = [job for job in jobs if job.rule == "tune" and job.outputs.endswith(f"/{measured}.json")]
        assert found
        for job in found:
            asked = job.resources
            assert (asked["gpu"], asked["slurm_extra"], asked["device_jetson"]) == (gpu, extra, jetson)
            assert int(asked["runtime"]) > 24 * 60  # its limit of time is a day


@needs_plugin
@pytest.mark.slow
def test_a_dry_run_has_the_jobs_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optional GPUs of a cluster's nodes count as there; boards that do not answer do not, nor does a GPU that is not here."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    config = ROOT / "config" / "paper-from-published.yaml"
    for one in filter(
        has_operators, load_experiments(config).values()
    ):  # no network is asked for the boards, and nothing is decided of the GPU
        boards = {name: "it does not answer" for name in one.tune.optional_devices if name.startswith("jetson")}
        if boards:
            DevicesRecord(there=(), left_out=boards, date=datetime.now(UTC)).write(devices_file(one))
    on_a_cluster = Counter(job.rule for job in dry_run(tmp_path, config, "slurm", "--nolock", "figures"))
    del on_a_cluster["figures"]  # the target
    for profile, jobs in (("slurm", dict(on_a_cluster)), ("local", planned(tmp_path, config, "figures"))):
        assert jobs["tune"] == 5 * 13 * 2 * (2 if profile == "slurm" else 1)
        done = CliRunner().invoke(app, ["plan", f"{config}:figures", "--profile", profile])
        rows = dict(re.findall(r"^\| (\w+) +\| +([\d,]+) ", done.stdout.partition("\n\n")[0], re.MULTILINE))
        assert {rule: int(count) for rule, count in rows.items()} == {**jobs, "all": sum(jobs.values())}


@needs_plugin
class TestAttempts:
    def short(self, tmp_path: Path, attempt: int) -> Mapping[str, int]:
        jobs = dry_run(tmp_path, write_config(tmp_path / "small.yaml"), "slurm", "--attempt", str(attempt))
        (tables,) = [job for job in jobs if job.rule == "tables"]
        return {name: int(tables.resources[name]) for name in ("mem_mb", "runtime")}

    @pytest.mark.slow
    def test_later_attempts_have_more_memory_and_time_up_to_a_limit(self, tmp_path: Path) -> None:
        first, second, tenth = (self.short(tmp_path, attempt) for attempt in (1, 2, 10))
        assert second == {name: 2 * value for name, value in first.items()}
        assert tenth == {name: 8 * value for name, value in first.items()}


@needs_plugin
class TestPartitions:
    @pytest.mark.parametrize(
        ("resources", "threads", "partition"),
        [
            ({"mem_mb": 2000, "runtime": 10}, 1, "main"),
            ({"mem_mb": 32000, "runtime": 1470}, 8, "main"),
            ({"mem_mb": 4000, "runtime": 1440, "gpu": 1}, 1, "gpu"),
            ({"mem_mb": 4000, "runtime": 10**6}, 1, None),
        ],
        ids=["short", "large", "gpu", "too long"],
    )
    def test_a_job_goes_where_it_fits(self, resources: Mapping[str, int], threads: int, partition: str | None) -> None:
        from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file

        job = SimpleNamespace(name="job", resources=dict(resources), threads=threads)
        found = get_best_partition(read_partition_file(PROFILE / "partitions.yaml"), job, logging.getLogger("partitions"))
        assert found == partition


def test_groups_are_of_rules_that_there_are() -> None:
    profile = yaml.safe_load((PROFILE / "config.v9+.yaml").read_text(encoding="utf-8"))
    # Each stage that measures latencies has a node of its own.
    assert set(profile["set-resources"]) == {"tune", "layers", "breakdown", "speedup", "speed"}
    assert set(profile["groups"]) < set(SHORT)
