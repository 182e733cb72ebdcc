"""Published data as the start of a workflow: an import, the paper's figures of it, and its operators trained again here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_once import made_once
from small_artifact import write_artifact
from small_run import FIELDS, ROOT, merged, planned, snakemake

from syno.config import AnyExperiment, load_experiments
from syno.config.left_out import leaving_out, record_devices
from syno.ir.library import OPERATORS
from syno.paper.figures.catalogue import PAPER_FIGURES
from syno.stages.selection import read_selected
from syno.stages.workflow_stages import has_operators
from syno.train.training_record import TrainingRecord

pytestmark = pytest.mark.slow  # most of a minute

QUICK = merged(FIELDS, {"tune": {"compilers": []}})
GROUP: Mapping[str, Any] = {
    "name": "group",
    "common": {key: value for key, value in QUICK.items() if key not in ("name", "output")},
    "experiments": {
        "published": {"artifact": "data"},
        "again": {"workload": {"model": "resnet18", "width": 1.0}, "select": {"source": "published", "within": 0.01}},
    },
}
TABLES = [f"tables/{name}.{ending}" for name in ("measurements", "losses", "headlines") for ending in ("parquet", "csv")]
FIGURES = len(PAPER_FIGURES)


def write(folder: Path, content: Mapping[str, Any] = GROUP) -> Path:
    file = folder / "group.yaml"
    file.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the published data was imported and drawn, without that data. Not to be changed."""

    def run(folder: Path) -> None:
        write_artifact(folder / "data")
        done = snakemake(folder, write(folder), "published")
        assert done.returncode == 0, done.stdout
        shutil.rmtree(folder / "data")

    return made_once(tmp_path_factory, "published", run)


@pytest.fixture
def run(imported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(imported, tmp_path / "run"))  # with the times of files, by which Snakemake goes


def test_figures_and_numbers_are_there_and_nothing_was_searched_or_trained(imported: Path) -> None:
    results = imported / "results" / "group" / "published"
    figures = [f"figures/{name}.{ending}" for name in PAPER_FIGURES for ending in ("svg", "png", "pdf")]
    expected = ["artifact.json", "measurements.json", "experiment.yaml", "report.html", *TABLES, *figures]
    assert [name for name in expected if not (results / name).is_file()] == []
    assert {file.name for file in (imported / "results" / "group").iterdir()} == {"published"}  # which was asked for
    assert AnyExperiment.load(results / "experiment.yaml").artifact == Path("data")


def test_nothing_is_done_twice_and_the_data_need_not_stay(run: Path) -> None:
    assert "Nothing to be done" in snakemake(run, write(run), "--dry-run", "published").stdout


@pytest.mark.parametrize(
    ("gone", "jobs"),
    [
        ("figures/figure-5.svg", {"figure": 1, "report": 1}),
        ("tables/headlines.csv", {"headlines": 1, "report": 1}),
        ("tables/losses.parquet", {"artifact": 1, "headlines": 1, "figure": FIGURES, "report": 1}),
        ("artifact.json", {"artifact": 1, "headlines": 1, "figure": FIGURES, "report": 1}),
    ],
)
def test_jobs_that_depend_on_a_deleted_file_run_again(gone: str, jobs: dict[str, int], run: Path) -> None:
    (run / "results" / "group" / "published" / gone).unlink()
    assert planned(run, write(run), "published") == jobs


def test_taking_operators_is_planned_without_a_search(run: Path) -> None:
    """At most one is taken, so there are two trainings, of it and of the network as it is."""
    jobs = planned(run, write(run), "again")
    assert jobs == {"data": 1, "select": 1, "train": 2, "tables": 1, "figure": 2, "report": 1}


def test_the_example_is_planned_up_to_the_joined_page_without_a_training(tmp_path: Path) -> None:
    """config/published-again.yaml, where nothing is there yet, not even the artifact."""
    jobs = planned(tmp_path, ROOT / "config" / "published-again.yaml", "figures")
    of_each = {"data": 2, "select": 2, "tune": 12, "tables": 2}
    assert jobs == {"artifact": 1, **of_each, "join": 1, "headlines": 1, "figure": FIGURES, "report": 1}


def test_of_the_paper_as_much_is_planned_as_the_machines_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """config/paper-from-published.yaml, where a GPU is there and no Jetson, and nobody has the data."""
    monkeypatch.chdir(tmp_path)
    file = ROOT / "config" / "paper-from-published.yaml"
    for one in filter(has_operators, load_experiments(file).values()):
        boards = [name for name in one.tune.optional_devices if name.startswith("jetson")]
        record_devices(leaving_out(one, dict.fromkeys(boards, "it does not answer")))
    jobs = planned(tmp_path, file, "figures")
    devices, networks, shown, compilers = 2, 5, 13, 2  # the original and at most 12 operators
    layers = (1 + 2 + 3) * compilers * devices
    assert jobs == {
        "artifact": 1, "data": networks + 1, "select": networks + 1, "tune": networks * shown * compilers * devices,
        "layers": layers, "tables": networks + 1, "join": 1, "headlines": 1, "figure": FIGURES, "report": 1,
    }  # fmt: skip


@pytest.mark.slow
def test_a_published_operator_is_trained_again(run: Path) -> None:
    done = snakemake(run, write(run), "again")
    assert done.returncode == 0, done.stdout
    results = run / "results" / "group" / "again"
    (taken,) = read_selected(results / "selected.json")
    assert (taken.name, taken.metrics, taken.trial, taken.reward) == ("operator_1", {"accuracy": 0.799}, None, None)
    record = TrainingRecord.read(results / "train" / taken.key / "seed1.json")
    assert record.operator_id == OPERATORS["operator_1"]().id
    assert not (results / "trials.db").exists()
    assert "Nothing to be done" in snakemake(run, write(run), "--dry-run", "published", "again").stdout
    (run / "results" / "group" / "published" / "artifact.json").unlink()
    assert "train" not in planned(run, write(run), "published", "again")


def test_a_wrong_folder_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done = snakemake(tmp_path, write(tmp_path), "published")
    assert done.returncode != 0 and "Traceback" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if "error: data" in line]
    log = "results/group/published/log/artifact.log"
    assert lines[-1] == f"{lines[0]} ({log})" and len(lines) == 2  # where it fails, and as the last of the run, with its log
