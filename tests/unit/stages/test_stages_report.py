"""What is shown of a small experiment: tables, figures, the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.report import page_tables
from syno.stages import figures
from syno.stages.figures import write_report
from syno.stages.operators import compared_networks
from syno.stages.places import training_file, tuning_file
from syno.stages.search import work
from syno.stages.select import select
from syno.stages.study import freeze
from syno.stages.tables import make_tables, read_tables
from syno.stages.top import summary, top
from syno.train.training_record import TrainingRecord


def test_a_measurement_without_the_original_has_no_speedup(done: Experiment) -> None:
    file = tuning_file(done, "original", "eager", "cpu")
    kept = file.read_text(encoding="utf-8")
    file.unlink()
    try:
        made = make_tables(done)
        assert list(made.latency["speedup"].isna()) == [True]
        shown = [row["eager on cpu/ms"] for row in summary(made) if "eager on cpu/ms" in row]
        assert shown == [f"{made.latency['latency_ms'][0]:.3f}"]
    finally:
        file.write_text(kept, encoding="utf-8")
        make_tables(done)


@pytest.mark.parametrize("partial", ["original", "selected"])
def test_what_is_tuned_in_part_is_not_compared(done: Experiment, partial: str) -> None:
    key = partial if partial == "original" else next(entry.key for entry in compared_networks(done) if entry.role == "found")
    file = tuning_file(done, key, "eager", "cpu")
    kept = file.read_text(encoding="utf-8")
    TuningRecord.read(file).model_copy(update={"status": "partial", "reason": "a part is not tuned"}).write(file)
    try:
        latency = make_tables(done).latency
        assert latency["latency_ms"].notna().all()
        assert latency["speedup"].isna()[1] and latency["speedup"].isna()[0] == (partial == "original")
        row = latency[latency["status"] == "partial"].to_dict("records")[0]
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
    assert len(text.splitlines()) == 2 + 3  # the original, the baseline, one operator
    assert "separable_conv2d (baseline)" in text
    monkeypatch.chdir(done.folder.parent)
    with pytest.raises(SpecError, match="neither a config nor a folder of results"):
        top("larger", 1)


def test_every_figure_is_drawn_in_all_formats(done: Experiment) -> None:
    for name in figures.names(done):
        files = figures.draw(done, name)
        assert [file.suffix for file in files] == [".svg", ".png", ".pdf"]
        assert "measured here on" in files[0].read_text(encoding="utf-8")
    assert figures.names(done) == ("score-speedup", "score-latency", "speedup", "score-flops", "reward", "search-time")
    with pytest.raises(SpecError, match="it has: score-speedup, score-latency, speedup, score-flops, reward, search-time"):
        figures.draw(done, "rewards")


def test_the_page_shows_every_operator_of_the_tables(done: Experiment) -> None:
    text = write_report(done).read_text(encoding="utf-8")
    for name in read_tables(done).scores["operator"]:
        assert name in text


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
    assert all(one.name in text for one in chosen)
    with pytest.raises(SpecError, match="give select: {by: reward}"):
        select(Experiment(**fields))
