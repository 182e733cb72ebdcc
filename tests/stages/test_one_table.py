"""One table of measurements: its views, and mixtures of origins in the paper's figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pandas
import pytest
from small_artifact import imported_once

from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.paper.figures.catalogue import PAPER_FIGURES
from syno.paper.numbers import A100, INDUCTOR, SEARCH_DATA
from syno.paper.stages.figures import draw_paper, read_numbers, write_headlines
from syno.run import MEASUREMENTS
from syno.run.measurement import Measurement
from syno.run.rows import DIVERGED
from syno.run.table import (
    latency_table,
    measurement_table,
    read_losses,
    read_measurements,
    score_table,
    write_table,
)
from syno.stages.measurements import KINDS
from syno.stages.places import training_file
from syno.stages.results import StoredRun
from syno.stages.tables import collect, make_tables
from syno.train.training_record import TrainingRecord


@pytest.fixture
def copied(done: Experiment, tmp_path: Path) -> Experiment:
    """The experiment with its results, which a test may change."""
    shutil.copytree(done.folder, tmp_path / "small")
    return done.model_copy(update={"output": tmp_path / "small"})


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An import of a small artifact. Not to be changed."""
    return imported_once(tmp_path_factory)


class TestViews:
    def test_they_are_made_of_the_stored_table_alone(self, done: Experiment) -> None:
        run = StoredRun(done)
        for name, view in (("scores", score_table(run.scores)), ("latency", latency_table(run.latencies))):
            assert view.equals(pandas.read_parquet(done.folder / "tables" / f"{name}.parquet"))

    def test_the_loss_curves_of_trainings_are_beside_it(self, done: Experiment) -> None:
        losses, seeds = read_losses(done.folder, "syno tables"), list(done.train.seeds)
        original = losses[losses["key"] == "original"]
        assert original["seed"].tolist() == sorted(original["seed"]) and set(original["seed"]) == set(seeds)
        assert set(losses["origin"]) == {"measured"} and set(losses["experiment"]) == {done.name}
        record = TrainingRecord.read(training_file(done, "original", seeds[0]))
        assert original.loc[original["seed"] == seeds[0], "loss"].tolist() == list(record.curve_losses)

    def test_a_failed_measurement_is_a_row_with_its_reason(self, copied: Experiment) -> None:
        file = KINDS["tune"].file(copied, "original", "eager", "cpu")
        nothing = dict.fromkeys(("latency_ms", "latency_low_ms", "latency_high_ms", "latency_minimum_ms"))
        TuningRecord.read(file).model_copy(update={**nothing, "status": "timeout", "reason": "too slow"}).write(file)
        latencies = make_tables(copied).latencies
        table = read_measurements(copied.folder, "syno tables")
        assert table[table["status"] != "ok"][["key", "metric", "reason"]].values.tolist() == [
            ["original", "latency", "too slow"]
        ]
        assert [(one.status, one.speedup) for one in latencies] == [("timeout", None), ("ok", None)]

    def test_a_diverged_training_has_an_infinite_loss(self, copied: Experiment) -> None:
        for file in copied.folder.glob("train/*/*.json"):
            TrainingRecord.read(file).model_copy(update={"metric": "loss", "score": 2.5, "scores": (2.5,)}).write(file)
        file = training_file(copied, "original", copied.train.seeds[0])
        TrainingRecord.read(file).model_copy(update={"score": inf}).write(file)
        scores = {one.key: one.score for one in make_tables(copied).scores}
        assert scores["original"] == inf and set(scores.values()) == {2.5, inf}
        table = read_measurements(copied.folder, "syno tables")
        assert table[table["value"].isna()]["reason"].tolist() == [DIVERGED]

    def test_records_that_are_no_longer_selected_have_no_role(self, copied: Experiment) -> None:
        before = StoredRun(copied)
        assert before.scores and before.latencies
        shutil.copytree(copied.folder / "train" / "original", copied.folder / "train" / "0123456789ab")
        table = collect(copied)
        assert table["role"].isna().sum() == 3 * len(copied.train.seeds)  # score, FLOPs, parameters
        assert (StoredRun(copied).scores, StoredRun(copied).latencies) == (before.scores, before.latencies)


class TestMixtures:
    @pytest.fixture
    def mixed(self, imported: Path, tmp_path: Path) -> Path:
        """A folder with accuracies of the artifact and of the paper, and latencies measured here; without a loss curve."""
        known = read_measurements(imported, "syno artifact import")
        known = known[known["metric"] == "accuracy"]
        write_table(pandas.concat([known, measurement_table(self.latencies())], ignore_index=True), tmp_path, MEASUREMENTS)
        return tmp_path

    def latencies(self) -> Iterator[Measurement]:
        fields = {"model": "resnet18", "device": "a processor", "compiler": INDUCTOR, "origin": "measured", "source": "here"}
        for operator, value in (("original", 12.0), ("operator_1", 4.0)):
            yield Measurement.of("latency", value, operator=operator, **fields)
        yield Measurement.of("latency", None, operator="published_07801", status="failed", reason="it broke", **fields)

    @pytest.mark.slow
    def test_speedups_are_of_own_latencies_and_published_accuracies(self, mixed: Path) -> None:
        draw_paper(mixed, ["figure-5"])
        (row,) = pandas.read_csv(mixed / "tables" / "figure-5.csv").to_dict("records")
        assert (row["operator"], row["device"], row["speedup"], row["accuracy"]) == ("operator_1", "a processor", 3.0, 0.799)
        (note,) = [note for note in PAPER_FIGURES["figure-5"].notes(read_numbers(mixed)) if note.startswith("Sources: ")]
        assert note == ("Sources: latency: measurements made here; accuracy: the authors' published data and the paper.")

    @pytest.mark.slow
    def test_every_figure_is_drawn_of_what_there_is(self, mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno.paper.stages.figures.FORMATS", ("svg",))
        files = draw_paper(mixed)
        assert {file.stem for file in files if file.suffix == ".svg"} == set(PAPER_FIGURES)
        assert write_headlines(mixed).dropna(subset=["computed"])["what"].tolist() == [
            "TorchInductor, a processor: mean speedup of networks",
            "TorchInductor: largest speedup that loses at most 0.02 on ImageNet",
            "Operator 1, TorchInductor, a processor: speedup of ResNet-18",
            "Operator 1: accuracy of ResNet-18 on ImageNet",
        ]

    def test_an_experiments_own_table_is_enough(self, done: Experiment) -> None:
        tables = PAPER_FIGURES["figure-5"].tables(read_numbers(done.folder))
        assert set(tables) == {"figure-5", "figure-5-means"}  # empty: it has no network or data set of the paper
        assert not read_measurements(done.folder, "syno tables")["device"].eq(A100).any()
        assert SEARCH_DATA not in set(read_measurements(done.folder, "syno tables")["data"])
