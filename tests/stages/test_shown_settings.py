"""Results are shown under the settings that they are of, and from the folder where they are."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.base.validation import read_mapping
from syno.cli import app
from syno.config import Experiment, load_experiment, load_experiments
from syno.measure.network_subject import NetworkSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import Device, TuningRecord
from syno.stages.figures import draw, write_report
from syno.stages.measurements import KINDS
from syno.stages.places import training_file
from syno.stages.selection import write_selected
from syno.stages.tables import make_tables
from syno.stages.train import train
from syno.train.training_record import TrainingRecord

FIELDS: dict[str, Any] = {
    "name": "shown",
    "workload": {
        "width": 0.25,
        "data_settings": {"preset": "micro", "train": 64, "test": 32},
        "training": {"epochs": 1, "batch": 32},
    },
    "select": {"source": "results/another"},
    "train": {"seeds": [1]},
    "tune": {"compilers": ["eager"]},
}


def changed(**training: Any) -> Experiment:
    return Experiment(**{**FIELDS, "workload": {**FIELDS["workload"], "training": {"batch": 32, **training}}})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of an experiment that trained the network as it is. Not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        experiment = Experiment(**FIELDS)
        write_selected([], experiment.folder / "selected.json")
        train(experiment, "original", 1)
        make_tables(experiment)
    return folder


@pytest.fixture
def results(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of results, in a copy of that folder, where the command runs."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("results/shown")


def test_records_of_another_training_are_in_no_table(results: Path) -> None:
    kept = (results / "experiment.yaml").read_bytes()
    message = r"train/original/seed1\.json is of other settings.*: workload\.training\.epochs is 1 there, 2 here.*`syno train`"
    with pytest.raises(SpecError, match=message):
        make_tables(changed(epochs=2))
    assert (results / "experiment.yaml").read_bytes() == kept


def test_trainings_on_changed_data_and_without_a_score_that_is_asked_for_are_in_no_table(results: Path) -> None:
    two = Experiment(**{**FIELDS, "train": {"seeds": [1, 2]}})
    record = TrainingRecord.read(training_file(two, "original", 1))
    record.model_copy(update={"seed": 2, "data_hash": "0" * 32}).write(training_file(two, "original", 2))
    with pytest.raises(SpecError, match="records of original in results/shown/train .* than others there; delete those"):
        make_tables(two)
    with pytest.raises(SpecError, match=r"seed1\.json is of other settings.*: train\.int8 is False there, True here"):
        make_tables(Experiment(**{**FIELDS, "train": {"seeds": [1], "int8": True}}))


def test_where_a_training_ran_makes_no_difference(results: Path) -> None:
    assert len(make_tables(changed(epochs=1, threads=2)).scores) == 1


@pytest.mark.parametrize(
    ("settings", "model", "message"),
    [
        (LatencySettings(batch=7), "resnet8", "latency.batch is 7 there, 1 here"),
        (LatencySettings(), "resnet18", "workload.model is 'resnet18' there, 'resnet8' here"),
    ],
)
def test_records_of_another_measurement_are_in_no_table(
    settings: LatencySettings, model: str, message: str, results: Path
) -> None:
    experiment = Experiment(**FIELDS)
    record = TuningRecord(
        name="original",
        operator_id=None,
        subject=NetworkSubject(model=model, width=0.25, layers="spatial", classes=10, image_shape=(1, 8, 8)),
        compiler="eager",
        device=Device(kind="cpu", name="", threads=1),
        settings=settings,
        status="failed",
        reason="it is an example",
        versions={},
        date=datetime.now(UTC),
    )
    record.write(KINDS["tune"].file(experiment, "original", "eager", "cpu"))
    with pytest.raises(SpecError, match=f"original/eager-cpu.json is of other settings.*: {message}.*`syno tune model`"):
        make_tables(experiment)


def test_the_page_and_figures_are_of_no_other_settings(results: Path) -> None:
    """Once trainings of one epoch were shown as trainings of two."""
    for shows in (write_report, lambda one: draw(one, "score-flops")):
        with pytest.raises(
            SpecError, match=r"are of other settings.*: workload\.training\.epochs is 1 there, 2 here.*Give results"
        ):
            shows(changed(epochs=2))


@pytest.mark.slow
@pytest.mark.parametrize("given", ["renamed", pytest.param("renamed/experiment.yaml", marks=pytest.mark.slow)])
def test_results_are_read_and_written_where_they_were_moved(given: str, results: Path) -> None:
    results.rename("renamed")
    for command in (["report", given], ["figure", given, "score-flops"], ["tables", given], ["top", given]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert Path("renamed/report.html").is_file() and Path("renamed/figures/score-flops.svg").is_file()
    assert not Path("results/shown").exists()


def test_the_workflow_takes_the_settings_beside_moved_results(results: Path) -> None:
    results.rename("renamed")
    file = Path("renamed/experiment.yaml").resolve()
    (found,) = load_experiments(read_mapping(file, "an experiment", Experiment), "x", file).values()
    assert found.folder == Path("renamed") and load_experiment("renamed") == found


def test_a_config_that_somebody_wrote_means_the_folder_that_it_says(results: Path) -> None:
    """Also where it is called as the one that is kept."""
    mine = Path("mine/experiment.yaml")
    mine.parent.mkdir()
    text = (results / "experiment.yaml").read_text(encoding="utf-8")
    mine.write_text(text.partition("\n")[2], encoding="utf-8")
    assert load_experiment(mine).folder == results


def test_a_training_that_is_missing_can_still_be_made(results: Path) -> None:
    experiment = Experiment(**FIELDS)
    training_file(experiment, "original", 1).unlink()
    with pytest.raises(SpecError, match="has no training record yet; `syno train` writes one"):
        make_tables(experiment)
