"""The stages of an experiment, one after another, in a small one: what they write."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from result_tables import read_tables
from small_experiment import FIELDS

from syno.base.errors import UnknownNameError
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.measure.tuning_record import TuningRecord
from syno.run.table import SCORE_COLUMNS
from syno.search import study, workers
from syno.stages import search as stage
from syno.stages.data import DataRecord, prepare
from syno.stages.measurements import KINDS, measure
from syno.stages.operators import compared_networks
from syno.stages.search import WorkerRecord, work
from syno.stages.selection import read_selected
from syno.stages.store import OperatorStore, find_stored
from syno.stages.study import freeze, read_frozen
from syno.stages.top import find_experiment, top
from syno.train.contract import evaluation_of


def test_the_data_record_says_what_there_is(done: Experiment) -> None:
    record = DataRecord.read(done.folder / "data.json")
    assert (record.train_images, record.test_images, len(record.layers)) == (128, 64, 6)
    assert record.flops == done.network.original.flops / 32


def test_the_worker_record_counts_its_trials(done: Experiment) -> None:
    record = WorkerRecord.read(done.folder / "search" / "worker1.json")
    assert (record.trials, record.finished) == (4, 4)


@pytest.mark.slow
def test_a_worker_does_not_wait_for_the_last_trials_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would use its core, or GPU, for nothing: a job that fails is run again, with its trial.

    But a worker on another node may have died, and the job that is run again would leave its own trial.
    """
    experiment = Experiment(**{**FIELDS, "study": {"n_trials": 1, "workers": 2}}, output=tmp_path / "small")
    seen = []

    def evaluate(*_: object) -> dict[str, float]:
        monkeypatch.setattr(stage, "make_evaluation", lambda *_: evaluation_of(broken))
        monkeypatch.setattr(study.time, "sleep", broken)
        seen.append(work(experiment, 2))
        monkeypatch.setattr(workers, "_system", lambda: "another node")
        with pytest.raises(AssertionError, match="waits"):
            work(experiment, 2)
        monkeypatch.undo()
        return {"accuracy": 0.5}

    def broken(*_: object) -> dict[str, float]:
        raise AssertionError("the second worker waits, or has begun with a trial")

    prepare(experiment)
    monkeypatch.setattr(stage, "make_evaluation", lambda *_: evaluation_of(evaluate))
    record = work(experiment, 1)
    assert [(one.trials, one.finished) for one in (*seen, record)] == [(0, 0), (1, 1)]


def test_every_operator_of_the_table_is_in_the_store(done: Experiment) -> None:
    table, store = read_frozen(done), OperatorStore(done.folder)
    for number, text in zip(table["number"], table["operator"], strict=True):
        operator = store.get(parse(text).id[:12])
        assert operator.id == parse(text).id
        assert operator.name == f"small_{number}"


def test_freezing_again_gives_the_same_table(done: Experiment) -> None:
    before = read_frozen(done)
    assert freeze(done).astype(str).equals(before.astype(str))


def test_selected_are_on_the_front_of_accuracy_and_flops(done: Experiment) -> None:
    table = read_frozen(done)
    points = list(zip(table["metric_flops"], table["metric_accuracy"], strict=True))

    def is_beaten(flops: float, accuracy: float) -> bool:
        return any(f <= flops and a >= accuracy and (f, a) != (flops, accuracy) for f, a in points)

    chosen = {one.trial for one in read_selected(done.folder / "selected.json")}
    front = {number for number, point in zip(table["number"], points, strict=True) if not is_beaten(*point)}
    assert len(chosen) == 2
    assert chosen <= front or front < chosen


def test_the_tables_compare_with_the_original(done: Experiment) -> None:
    scores, latency = read_tables(done)
    assert list(scores.columns) == [*SCORE_COLUMNS[:2], "key", *SCORE_COLUMNS[2:]]
    assert set(scores["role"]) == {"original", "baseline", "found"}
    assert list(scores["seeds"]) == [2, 2, 2]
    assert set(scores["metric"]) == {"accuracy"}
    assert scores["score"].is_monotonic_decreasing
    original = scores[scores["role"] == "original"].iloc[0]
    assert (original["flops_share"], original["parameters_share"]) == (1, 1)
    separable = scores[scores["role"] == "baseline"].iloc[0]
    assert separable["operator_id"] == OPERATORS["separable_conv2d"]().id
    assert separable["difference"] == pytest.approx(separable["score"] - original["score"])
    assert separable["flops_share"] == separable["flops"] / original["flops"] < 1
    assert list(latency["status"]) == ["ok", "ok"]
    assert latency["speedup"][0] == 1
    assert latency["speedup"][1] == latency["latency_ms"][0] / latency["latency_ms"][1]
    assert latency["checked"].all()


def test_networks_for_tvm_are_dense_and_share_their_trials(done: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    record = TuningRecord.read(KINDS["tune"].file(done, "original", "eager", "cpu"))

    def tuned(subject: Any, compiler: str, *_: Any, **rest: Any) -> TuningRecord:
        asked.append({"format": subject.memory_format, **rest})
        return record

    monkeypatch.setattr("syno.measure.tuning.tune", tuned)
    for compiler in ("eager", "tvm"):
        measure("tune", done, "original", compiler, "cpu", done.folder / "elsewhere.json")
    assert [given["format"] for given in asked] == ["channels_last", "contiguous"]
    assert {given["folder"] for given in asked} == {done.folder / "tvm" / "cpu"}
    assert asked[0]["tvm"] == done.tune.tvm


def test_what_is_trained_has_an_entry(done: Experiment) -> None:
    found = compared_networks(done)
    assert [entry.role for entry in found[:2]] == ["original", "baseline"]
    assert all(entry.role == "found" for entry in found[2:])


def test_a_folder_of_results_may_be_moved(done: Experiment, tmp_path: Path) -> None:
    """Once the results were looked for where they had been."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(done.folder, moved)
    config = (moved / "experiment.yaml").read_text(encoding="utf-8")
    (moved / "experiment.yaml").write_text(config.replace(f"output: {done.folder}", "output: null"), encoding="utf-8")
    assert find_experiment(str(moved)).folder == moved
    assert sum(line.startswith("|") for line in top(str(moved), 5).splitlines()) == 2 + 3


class TestStore:
    def test_an_operator_is_found_by_id_and_by_name(self, done: Experiment) -> None:
        one = read_selected(done.folder / "selected.json")[0]
        for given in (one.key, one.key[:6], one.name):
            assert find_stored(given, done.folder).name == one.name

    def test_what_is_not_there_is_said(self, done: Experiment) -> None:
        with pytest.raises(UnknownNameError, match=r"No operator in a store has this name.*operators"):
            find_stored("small_999", done.folder)

    def test_two_operators_of_one_beginning_are_told_apart(self, tmp_path: Path) -> None:
        for end in ("0", "1"):
            (tmp_path / "operators").mkdir(exist_ok=True)
            (tmp_path / "operators" / f"abcdef00000{end}.txt").write_text("operator x\n", encoding="utf-8")
        with pytest.raises(UnknownNameError, match="several operators"):
            find_stored("abcdef", tmp_path)

    def test_an_operator_that_is_there_keeps_its_name(self, tmp_path: Path) -> None:
        store, operator = OperatorStore(tmp_path), OPERATORS["conv1x1"]()
        key = store.add(operator)
        assert store.add(operator.renamed("other")) == key
        assert store.get(key).name == "conv1x1"
