"""An experiment from synthesis to figures, and what is run again when something changes.

There is one run (conftest.py), which takes most of a minute; each test has a copy of its folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from finished_run import CONFIG, Done
from small_run import RESULTS, planned, snakemake

from syno.config import Experiment
from syno.stages.selection import read_selected
from syno.train.training_record import TrainingRecord

pytestmark = pytest.mark.slow
FIGURES = ("learning", "reward", "score-flops", "score-latency", "score-speedup", "search-time", "speedup")
DRAWN = {"tables": 1, "figure": len(FIGURES), "report": 1}


def shuffle_times(folder: Path) -> None:
    """What was made first is newest."""
    for age, file in enumerate(sorted(folder.rglob("*.*"))):
        os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))


class TestResults:
    def test_all_files_are_there(self, done: Done) -> None:
        (selected,) = read_selected(done.results / "selected.json")
        expected = [
            "data.json",
            "experiment.yaml",
            "report.html",
            "search/worker1.json",
            "trials.parquet",
            *(f"figures/{name}.{ending}" for name in FIGURES for ending in ("svg", "png", "pdf")),
            *(f"tables/{name}.{ending}" for name in ("scores", "latency") for ending in ("parquet", "csv")),
            *(f"train/{key}/seed1.json" for key in ("original", selected.key)),
            *(f"tune/{key}/eager-cpu.json" for key in ("original", selected.key)),
        ]
        assert [name for name in expected if not (done.results / name).is_file()] == []

    def test_the_experiment_beside_them_is_the_one_that_was_run(self, done: Done) -> None:
        assert Experiment.load(done.results / "experiment.yaml") == Experiment.load(done.config)

    def test_every_job_has_a_log(self, done: Done) -> None:
        logs = sorted(file.relative_to(done.results / "log").parts[0] for file in (done.results / "log").iterdir())
        plain = [f"{name}.log" for name in ("data", "freeze", "report", "select", "tables", "worker1")]
        assert logs == sorted([*plain, "figures", "train", "tune"])


class TestWhatIsRunAgain:
    def test_nothing_runs_again_when_nothing_changed(self, done: Done) -> None:
        printed = snakemake(done.folder, done.config, "--dry-run").stdout
        assert "Nothing to be done" in printed

    @pytest.mark.parametrize(
        ("changes", "jobs"),
        [
            ({"tune": {"latency": {"batch": 3}}}, {"tune": 2, **DRAWN}),
            # which trainings are new is not known before
            ({"select": {"count": 2}}, {"select": 1, **DRAWN}),
            ({"train": {"seeds": [1, 2]}}, {"train": 2, **DRAWN}),
            ({"train": {"baselines": ["conv1x1"]}}, {"train": 1, "tune": 1, **DRAWN}),
        ],
        ids=["batch", "count", "seeds", "baselines"],
    )
    def test_jobs_that_depend_on_a_change_run_again(self, changes: dict[str, Any], jobs: dict[str, int], done: Done) -> None:
        assert planned(done.folder, done.changed(**changes)) == jobs

    def test_a_training_whose_record_is_gone(self, done: Done) -> None:
        (done.results / "train" / "original" / "seed1.json").unlink()
        assert planned(done.folder, done.config) == {"train": 1, **DRAWN}

    @pytest.mark.parametrize(
        ("gone", "jobs"),
        [
            ("figures/reward.pdf", {"figure": 1, "report": 1}),
            ("tables/latency.csv", DRAWN),
            ("trials.parquet", {"freeze": 1, "select": 1, **DRAWN}),
        ],
    )
    def test_jobs_that_depend_on_a_deleted_file_run_again(self, gone: str, jobs: dict[str, int], done: Done) -> None:
        (done.results / gone).unlink()
        assert planned(done.folder, done.config) == jobs


class TestDamagedFiles:
    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("selected.json", "holds no selection"),
            ("train/original/seed1.json", "holds no training record"),
        ],
    )
    def test_the_file_is_named_and_the_rest_stays(self, name: str, message: str, done: Done) -> None:
        (done.results / name).write_text("[{", encoding="utf-8")
        before = done.kept()
        ended = snakemake(done.folder, done.config)
        assert ended.returncode != 0
        assert f"error: {RESULTS}/{name} {message}" in ended.stdout
        assert done.kept() == before

    def test_figures_and_pages_are_made_again(self, done: Done) -> None:
        """Whatever has become of them: nothing but their checksums tells."""
        picture = done.results / "figures" / "reward.png"
        content = bytearray(picture.read_bytes())
        content[len(content) // 2] ^= 1
        picture.write_bytes(content)
        assert planned(done.folder, done.config) == {"figure": 1, "report": 1}

    # Without Snakemake: tests/stages/test_restore.py.
    def test_an_operator_that_is_gone_is_written_and_trained_again(self, done: Done) -> None:
        (selected,) = read_selected(done.results / "selected.json")
        text = done.results / "operators" / f"{selected.key}.txt"
        record = done.results / "train" / selected.key / "seed1.json"
        operator, score = text.read_text(encoding="utf-8"), TrainingRecord.read(record).score
        text.unlink()
        record.unlink()
        ended = snakemake(done.folder, done.config)
        assert ended.returncode == 0, ended.stdout
        assert (text.read_text(encoding="utf-8"), TrainingRecord.read(record).score) == (operator, score)


class TestOtherSettings:
    def test_a_study_of_other_settings_is_refused_and_its_own_are_kept(self, done: Done) -> None:
        before = done.kept(), (done.results / "experiment.yaml").read_bytes()
        ended = snakemake(done.folder, done.changed(workload={"training": {"epochs": 3}}))
        assert ended.returncode != 0 and "Traceback" not in ended.stdout
        assert f"error: {RESULTS} holds trials of other settings" in ended.stdout
        assert "workload.training.epochs is 1 there, 3 here" in ended.stdout
        assert (done.kept(), (done.results / "experiment.yaml").read_bytes()) == before

    def test_what_other_settings_change_is_made_again_in_a_copy_too(self, done: Done) -> None:
        """Snakemake's own notes stay where it ran; a copy has the manifest."""
        shutil.rmtree(done.folder / ".snakemake")
        assert planned(done.folder, done.changed(tune={"latency": {"batch": 3}})) == {"tune": 2, **DRAWN}


class TestCopied:
    """A folder of results is whole in itself, and can be taken to another machine."""

    @pytest.fixture
    def copied(self, finished: Path, tmp_path: Path) -> Done:
        """The results and the config, without what Snakemake keeps for itself."""
        there = tmp_path / "another machine"
        shutil.copytree(finished / RESULTS, there / RESULTS)
        shutil.copy2(finished / CONFIG, there)
        return Done(there)

    def test_nothing_is_done_again(self, copied: Done) -> None:
        assert "Nothing to be done" in snakemake(copied.folder, copied.config, "--dry-run").stdout

    def test_no_file_says_where_it_was_made(self, finished: Path) -> None:
        files = [file for file in (finished / RESULTS).rglob("*") if file.is_file()]
        assert len(files) > 30
        assert [str(file) for file in files if str(finished).encode() in file.read_bytes()] == []

    def test_times_that_were_lost_are_put_in_order(self, copied: Done) -> None:
        """The manifest has them. Where there is none, as in results of older versions, `--touch` sets them."""
        shuffle_times(copied.results)
        assert planned(copied.folder, copied.config) == {}
        (copied.results / "manifest.json").unlink()
        shuffle_times(copied.results)
        assert planned(copied.folder, copied.config) != {}
        touched = snakemake(copied.folder, copied.config, "--touch")
        assert touched.returncode == 0, touched.stdout
        assert "Nothing to be done" in snakemake(copied.folder, copied.config, "--dry-run").stdout

    def test_files_that_a_copy_lacks_are_made_there(self, copied: Done) -> None:
        """A training that nobody did before, on results of others."""
        (copied.results / "train" / "original" / "seed1.json").unlink()
        assert planned(copied.folder, copied.config) == {"train": 1, **DRAWN}

    def test_the_study_goes_on_with_more_trials(self, done: Done) -> None:
        jobs = planned(done.folder, done.changed(study={"n_trials": 4}))
        assert jobs == {"worker": 1, "freeze": 1, "select": 1, **DRAWN}
