"""What is shown of a small experiment: tables, figures, the page."""

from __future__ import annotations

import html
import shlex
import shutil
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from result_tables import made_tables, read_tables
from small_experiment import FIELDS
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.report import commands, page_tables
from syno.report.commands import best_to_take
from syno.run.parquet import write_parquet
from syno.run.story import verdict_lines
from syno.run.table import latencies_in
from syno.stages import figures, results
from syno.stages.figures import write_report
from syno.stages.measurements import KINDS
from syno.stages.operators import compared_networks
from syno.stages.places import FROZEN, training_file
from syno.stages.search import work
from syno.stages.select import select
from syno.stages.study import freeze, read_frozen
from syno.stages.tables import make_tables
from syno.stages.top import summary, top
from syno.train.training_record import TrainingRecord


def test_a_measurement_without_the_original_has_no_speedup(done: Experiment) -> None:
    file = KINDS["tune"].file(done, "original", "eager", "cpu")
    kept = file.read_text(encoding="utf-8")
    file.unlink()
    try:
        made = make_tables(done)
        assert [one.speedup for one in made.latencies] == [None]
        shown = [row["eager on cpu/ms"] for row in summary(made) if "eager on cpu/ms" in row]
        assert shown == [f"{made.latencies[0].ms.value:.3f}"]
    finally:
        file.write_text(kept, encoding="utf-8")
        make_tables(done)


@pytest.mark.parametrize("partial", ["original", "selected"])
def test_what_is_tuned_in_part_is_not_compared(done: Experiment, partial: str) -> None:
    key = partial if partial == "original" else next(entry.key for entry in compared_networks(done) if entry.role == "found")
    file = KINDS["tune"].file(done, key, "eager", "cpu")
    kept = file.read_text(encoding="utf-8")
    TuningRecord.read(file).model_copy(update={"status": "partial", "reason": "a part is not tuned"}).write(file)
    try:
        latency = made_tables(done).latency
        assert latency["latency_ms"].notna().all()
        assert latency["speedup"].isna()[1] and latency["speedup"].isna()[0] == (partial == "original")
        (row,) = (one for one in latencies_in(latency) if one.status == "partial")
        cell = page_tables.latency(row)
        assert (cell.text, cell.note, cell.warns) == ("partial", "a part is not tuned", True)
    finally:
        file.write_text(kept, encoding="utf-8")
        make_tables(done)


def test_records_of_another_training_do_not_compare(done: Experiment, tmp_path: Path) -> None:
    file = training_file(done, "original", 1)
    kept = file.read_text(encoding="utf-8")
    TrainingRecord.read(file).model_copy(update={"data_hash": "0"}).write(file)
    try:
        with pytest.raises(SpecError, match="another network, data set or training"):
            make_tables(done)
    finally:
        file.write_text(kept, encoding="utf-8")


def test_top_shows_what_is_known(done: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    text = top(str(done.folder), 1)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3  # the original, the baseline, one operator
    assert "separable_conv2d (baseline)" in text
    monkeypatch.chdir(done.folder.parent)
    with pytest.raises(SpecError, match="neither a config nor a folder of results"):
        top("larger", 1)


@pytest.mark.slow
def test_every_figure_is_drawn_in_all_formats(done: Experiment) -> None:
    for name in figures.names(done):
        files = figures.draw(done, name)
        assert [file.suffix for file in files] == [".svg", ".png", ".pdf"]
        assert "measured here on" in files[0].read_text(encoding="utf-8")
    names = ("score-speedup", "score-latency", "speedup", "score-flops", "learning", "reward", "search-time")
    assert figures.names(done) == names
    with pytest.raises(SpecError, match=f"it has: {', '.join(names)}"):
        figures.draw(done, "rewards")


def test_the_page_shows_every_operator_of_the_tables_and_the_file_of_the_experiment(done: Experiment) -> None:
    text = html.unescape(write_report(done).read_text(encoding="utf-8"))
    assert len(results.read(done).rounds) == sum(
        len(TrainingRecord.read(training_file(done, key, seed)).scores)
        for key in read_tables(done).scores["key"]
        for seed in done.train.seeds
    )
    for name in read_tables(done).scores["operator"]:
        assert name in text
    assert (done.folder / "experiment.yaml").read_text(encoding="utf-8").strip() in text


@pytest.mark.slow
def test_a_search_that_meets_nothing_is_in_tables_and_page(done: Experiment, tmp_path: Path) -> None:
    """All its operators were screened out, so the original and the baseline are all that was trained and measured."""
    shutil.copytree(done.folder, tmp_path / "small")
    for file in ("experiment.yaml", "trials.db"):
        (tmp_path / "small" / file).unlink()
    goal = {"speedup": 1.5, "compiler": "eager"}
    one = Experiment(**{**FIELDS, "goal": goal, "reward": {"name": "accuracy"}, "output": tmp_path / "small"})
    trials = read_frozen(done).assign(outcome="screened", reward=None, message="too slow: as slow as before")
    fast = {
        f"metric_speedup{end}": 1 + (trials["number"] + shift) / 100 for end, shift in (("", 0), ("_low", -1), ("_high", 1))
    }
    write_parquet(trials.assign(**fast), one.folder / FROZEN)
    assert select(one) == []
    scores, _ = made_tables(one)
    assert list(scores["role"]) == ["original", "baseline"] or list(scores["role"]) == ["baseline", "original"]
    judged = pandas.read_csv(one.folder / "tables" / "goal.csv")
    best = f"small_{trials['number'].max()}"
    assert list(judged["role"]) == ["baseline"] + ["screened"] * len(trials) and judged["operator"].iloc[1] == best
    text = html.unescape(write_report(one).read_text(encoding="utf-8"))
    nearest = f"the fastest of {len(trials)} is {fast['metric_speedup'].max():.2f} times as fast"
    assert f"No operator is selected, since nothing meets the goal: {nearest}" in text
    assert set(results.read(one).operators) >= {best, "separable_conv2d"}


def test_what_the_page_says_takes_operators_and_networks_home(
    done: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = results.read(done)
    best = best_to_take(found, verdict_lines(found))
    assert best is not None and set(found.kept.networks) == {one.operator for one in found.scores}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shapes = {"The trained network": (2, 3, 16, 16), "The operator as a layer": (2, 64, 8, 8)}
    usages = commands.usages(found, best)
    assert [usage.heading for usage in usages] == list(shapes)
    for usage in usages:
        program, *arguments = shlex.split(usage.command)
        ended = CliRunner().invoke(app, arguments)
        assert (program, ended.exit_code) == ("syno", 0), ended.output
        names: dict[str, Any] = {"x": torch.zeros(shapes[usage.heading])}
        exec(usage.code, names)
        assert names["output"].shape[0] == 2


@pytest.mark.slow
def test_where_nothing_is_trained_the_page_shows_the_best_of_the_search(tmp_path: Path) -> None:
    fields = {
        "name": "counted",
        "spec": {"preset": "resnet18", "depth": 4},
        "original": {"flops": 233.5e9, "parameters": 11.23e6},
        "policy": {"name": "random"},
        "study": {"n_trials": 4},
        "output": tmp_path,
    }
    experiment = Experiment(**fields, select={"by": "reward", "count": 2})
    work(experiment, 1)
    table = freeze(experiment)
    chosen = select(experiment)
    best = table.sort_values(["reward", "number"], ascending=[False, True]).head(2)
    assert [one.trial for one in chosen] == list(best["number"])
    assert figures.names(experiment) == ("reward", "search-time")
    text = write_report(experiment).read_text(encoding="utf-8")
    assert all(one.name in text for one in chosen) and "the best 2 operators of the search" in text
    assert 'id="home"' in text and '<option data-first="most">reward</option>' in text  # no accuracy is known
    with pytest.raises(SpecError, match="give select: {by: reward}"):
        select(Experiment(**fields))
