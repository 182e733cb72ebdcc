"""A small made-up experiment whose scores are losses: all that follows training takes less for better."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from result_tables import made_tables, read_tables
from scipy.stats import ttest_ind
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.run.parquet import write_parquet
from syno.stages import figures, results
from syno.stages.figures import write_report
from syno.stages.opening import keep_config
from syno.stages.operators import network_of
from syno.stages.places import FROZEN, SELECTED, training_file
from syno.stages.select import select
from syno.stages.selection import read_selected, read_selection, why_none
from syno.stages.tables import make_tables
from syno.stages.top import top
from syno.train.settings import WorkloadSettings
from syno.train.training_record import TrainingRecord
from syno.train.workload import Workload

WORKLOAD: dict[str, Any] = {
    "width": 0.25,
    "data_settings": {"preset": "micro", "train": 64, "test": 64},
    "training": {"epochs": 1, "batch": 32},
}
SEEDS = (1, 2, 3)
# Of each trial: loss, FLOPs. The first beats the second in both; the third is cheaper; the fourth is worst, and the last has
# the fewest FLOPs of all, for a loss above the limit.
TRIALS = ((2.0, 2e6), (2.1, 3e6), (2.5, 1e6), (2.9, 3.5e6), (3.5, 5e5))
NAMES = ("separable_conv2d", "operator_1", "conv1x1", "conv2d", "shift_conv1x1")
LOSSES = {"original": (2.01, 2.02, 1.99), 0: (2.11, 2.16, 2.12), 2: (2.61, 2.44, 2.53)}


@pytest.fixture(scope="module")
def record() -> TrainingRecord:
    """A real one, to make others of."""
    return TrainingRecord.make(Workload.of(WorkloadSettings(**WORKLOAD)), None, 1)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """One that has been searched."""
    made = of(tmp_path, most_loss=3.0)
    rows = [
        {
            "number": number, "outcome": "complete", "reward": 0.9 - 0.1 * number, "metric_loss": loss, "metric_flops": flops,
            "metric_original_flops": 4e6, "metric_parameters": 1000.0, "seconds": 1.0, "message": "",
            "operator": str(OPERATORS[name]()), "name": name, "ended": pandas.Timestamp("2026-01-01"),
        }
        for number, (name, (loss, flops)) in enumerate(zip(NAMES, TRIALS, strict=True))
    ]  # fmt: skip
    rows.append({**rows[0], "number": len(rows), "outcome": "failed", "reward": None, "metric_loss": np.inf})
    write_parquet(pandas.DataFrame(rows), made.folder / FROZEN)
    return made


@pytest.fixture
def trained(experiment: Experiment, record: TrainingRecord) -> Experiment:
    """One with records of the original and of two operators, and its tables."""
    chosen = {one.trial: one.key for one in select(experiment)}
    for trial, losses in LOSSES.items():
        key = chosen.get(trial, "original")  # type: ignore[call-overload]
        operator = network_of(experiment, key).replacement
        share, name = (1.0, "original") if operator is None else (TRIALS[int(trial)][1] / 4e6, operator.name)
        for seed, loss in zip(SEEDS, losses, strict=True):
            of_metric = {"metric": "loss", "score": loss, "scores": (loss,), "seed": seed, "name": name}
            of_operator = {"operator": operator and str(operator), "operator_id": operator and operator.id}
            made = record.model_copy(update={**of_metric, **of_operator, "flops": record.flops * share})
            made.write(training_file(experiment, key, seed))
    make_tables(experiment)
    keep_config(experiment)
    return experiment


def of(folder: Path, **options: Any) -> Experiment:
    return Experiment(
        name="losses", workload=WORKLOAD, spec={"depth": 4}, reward={"name": "loss"}, select={"count": 2, **options},
        train={"seeds": SEEDS}, tune={"compilers": []}, output=folder,
    )  # fmt: skip


class TestSelect:
    def chosen(self, experiment: Experiment, **options: Any) -> set[int]:
        """The trials that are selected."""
        select(of(experiment.folder, **options))
        return {one.trial for one in read_selected(experiment.folder / SELECTED)}

    def test_the_front_is_of_low_losses(self, experiment: Experiment) -> None:
        assert self.chosen(experiment, most_loss=3.0) == {0, 2}
        assert self.chosen(experiment, most_loss=3.0, by="reward") == {0, 1}

    def test_a_loss_above_the_limit_is_not_selected(self, experiment: Experiment) -> None:
        assert self.chosen(experiment, count=3) == {0, 2, 4}
        assert self.chosen(experiment, count=3, most_loss=3.0) == {0, 1, 2}
        assert self.chosen(experiment, count=3, most_loss=2.0) == {0}  # the limit itself is allowed

    def test_a_limit_that_none_meets_is_named(self, experiment: Experiment) -> None:
        assert select(of(experiment.folder, most_loss=1.5)) == []
        assert "none that is complete meets select: most_loss: 1.5" in str(
            why_none(read_selection(experiment.folder / SELECTED))
        )

    def test_a_limit_on_another_metric_is_refused(self, experiment: Experiment) -> None:
        with pytest.raises(SpecError, match=r"least_accuracy is 0\.5, but the trials of \"losses\" have no accuracy"):
            select(of(experiment.folder, least_accuracy=0.5))

    @pytest.mark.parametrize("column", ["metric_loss", "metric_flops"])
    def test_without_a_score_or_a_cost_there_is_no_front(self, experiment: Experiment, column: str) -> None:
        write_parquet(pandas.read_parquet(experiment.folder / FROZEN).drop(columns=column), experiment.folder / FROZEN)
        with pytest.raises(SpecError, match="have no score, or no flops; give select: {by: reward}"):
            select(of(experiment.folder))
        assert self.chosen(experiment, by="reward") == {0, 1}

    def test_where_no_trial_is_complete_it_says_so(self, experiment: Experiment) -> None:
        table = pandas.read_parquet(experiment.folder / FROZEN)
        write_parquet(table.assign(outcome="failed"), experiment.folder / FROZEN)
        assert select(experiment) == [] and "none is complete" in str(why_none(read_selection(experiment.folder / SELECTED)))

    def test_the_command_names_the_metric(self, trained: Experiment) -> None:
        result = CliRunner().invoke(app, ["select", str(trained.folder / "experiment.yaml")])
        assert result.exit_code == 0, result.output
        assert "reward 0.9000, loss 2.0000 in the search" in result.stdout


class TestTables:
    def test_the_least_loss_is_first(self, trained: Experiment) -> None:
        scores = read_tables(trained).scores
        assert list(scores["operator"]) == ["original", "losses_0", "losses_2"]
        assert set(scores["metric"]) == {"loss"}
        assert list(scores["score"]) == pytest.approx([np.mean(losses) for losses in LOSSES.values()])
        assert list(scores["score_std"]) == pytest.approx([np.std(losses, ddof=1) for losses in LOSSES.values()])

    def test_differences_have_welch_s_interval(self, trained: Experiment) -> None:
        scores = read_tables(trained).scores.set_index("operator")
        for trial in (0, 2):
            row = scores.loc[f"losses_{trial}"]
            interval = ttest_ind(LOSSES[trial], LOSSES["original"], equal_var=False).confidence_interval()
            assert row["difference"] == pytest.approx(np.mean(LOSSES[trial]) - np.mean(LOSSES["original"]))
            assert (row["difference_low"], row["difference_high"]) == pytest.approx(tuple(interval))
        itself = scores.loc["original"]
        assert itself["difference"] == 0 and itself[["difference_low", "difference_high"]].isna().all()

    def test_with_one_seed_there_is_no_interval(self, trained: Experiment) -> None:
        for seed in SEEDS[1:]:
            training_file(trained, "original", seed).unlink()
        made = made_tables(trained).scores
        assert made["difference"].notna().all()
        assert made[["difference_low", "difference_high"]].isna().all(axis=None)
        assert "nats (" not in top(str(trained.folder), 5)

    def test_without_the_original_there_is_no_difference(self, trained: Experiment) -> None:
        for seed in SEEDS:
            training_file(trained, "original", seed).unlink()
        made = made_tables(trained).scores
        assert list(made["operator"]) == ["losses_0", "losses_2"]
        assert made[["difference", "difference_low", "difference_high", "flops_share"]].isna().all(axis=None)

    def test_the_csv_has_the_same_columns(self, trained: Experiment) -> None:
        with (trained.folder / "tables" / "scores.csv").open(newline="", encoding="utf-8") as file:
            assert next(csv.reader(file)) == list(read_tables(trained).scores.columns)


class TestWhatIsShown:
    def test_top_tells_losses_with_their_unit_and_interval(self, trained: Experiment) -> None:
        heading, _, *lines = top(str(trained.folder), 5).splitlines()
        assert "| loss (nats per token) | seeds |" in " ".join(heading.split())
        assert [line.split()[1] for line in lines] == ["original", "losses_0", "losses_2"]
        low, high = ttest_ind(LOSSES[0], LOSSES["original"], equal_var=False).confidence_interval()
        assert f"+0.123 nats (95 %: {low:+.3f} to {high:+.3f})" in lines[1]
        assert "2.0067 ± 0.0153" in lines[0] and "nats" not in lines[0]

    def test_before_training_top_tells_the_trials(self, experiment: Experiment) -> None:
        keep_config(experiment)
        lines = top(str(experiment.folder), 2).splitlines()
        assert "loss" in lines[0]
        assert [line.split()[1] for line in lines[2:4]] == ["losses_0", "losses_1"]

    @pytest.mark.slow
    def test_figures_and_page(self, trained: Experiment) -> None:
        assert figures.names(trained) == ("score-flops", "learning", "reward", "search-time")
        for name in figures.names(trained):
            assert all(file.stat().st_size for file in figures.draw(trained, name))
        assert results.read(trained).metric.name == "loss"
        text = write_report(trained).read_text(encoding="utf-8")
        assert "Loss against FLOPs" in text and "loss (nats per token)" in text
        assert "nats (95 %: " in text
        shown, _, settings = text.partition('<section id="experiment">')  # the settings have one of `least_accuracy`
        assert "accuracy" not in shown.lower() and "least_accuracy" in settings
