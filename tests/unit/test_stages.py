"""The stages of an experiment, one after another, in a small one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from syno.cli import app
from syno.config import Experiment
from syno.errors import SpecError, UnknownNameError
from syno.evaluate.training_record import TrainingRecord
from syno.evaluate.tuning_record import TuningRecord
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.model.backbones import BACKBONES
from syno.report import page_tables
from syno.report.results import SCORE_COLUMNS
from syno.stages import figures
from syno.stages.data import DataRecord, prepare
from syno.stages.freeze import freeze, read_frozen
from syno.stages.places import entries, training_file, tuning_file
from syno.stages.report import write_report
from syno.stages.search import WorkerRecord, work
from syno.stages.select import read_selected, select
from syno.stages.store import OperatorStore, find_stored
from syno.stages.tables import make_tables, read_tables
from syno.stages.top import find_experiment, summary, top
from syno.stages.train import train
from syno.stages.tune import tune

FIELDS: dict[str, Any] = {
    "name": "small",
    "workload": {
        "width": 0.25,
        "data_settings": {"preset": "micro", "train": 128, "test": 64},
        "training": {"epochs": 1, "batch": 32},
    },
    "spec": {"depth": 4},
    "reward": {"name": "accuracy", "low": 0.0},
    "policy": {"name": "random"},
    "study": {"n_trials": 4},
    "select": {"count": 2},
    "train": {"seeds": [1, 2], "baselines": ["separable_conv2d"]},
    "tune": {"compilers": ["eager"], "latency": {"least_ms": 1, "warm_up_ms": 0, "most_repeats": 6, "least_repeats": 6}},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An experiment that has been searched, with some operators trained and measured again."""
    experiment = Experiment(**FIELDS, output=tmp_path_factory.mktemp("results") / "small")
    prepare(experiment)
    work(experiment, 1)
    freeze(experiment)
    chosen = select(experiment)
    for key in ("original", "separable_conv2d", chosen[0].key):
        for seed in experiment.train.seeds:
            train(experiment, key, seed)
    tune(experiment, "original", "eager", "cpu")
    tune(experiment, chosen[0].key, "eager", "cpu")
    make_tables(experiment)
    return experiment


def test_the_data_record_says_what_there_is(done: Experiment) -> None:
    record = DataRecord.read(done.folder / "data.json")
    assert (record.train_images, record.test_images, len(record.layers)) == (128, 64, 6)
    assert record.flops == done.network.original.flops / 32


def test_the_worker_record_counts_its_trials(done: Experiment) -> None:
    record = WorkerRecord.read(done.folder / "search" / "worker1.json")
    assert (record.trials, record.finished) == (4, 4)


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
    assert not latency["checked"][0] and latency["checked"][1]  # the original has nothing to be compared with


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
    key = partial if partial == "original" else next(entry.key for entry in entries(done) if entry.role == "found")
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


def test_networks_for_tvm_are_dense_and_share_their_trials(done: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    record = TuningRecord.read(tuning_file(done, "original", "eager", "cpu"))

    def tuned(subject: Any, compiler: str, *_: Any, **rest: Any) -> TuningRecord:
        asked.append({"format": subject.memory_format, **rest})
        return record

    monkeypatch.setattr("syno.evaluate.tuning.tune", tuned)
    for compiler in ("eager", "tvm"):
        tune(done, "original", compiler, "cpu", done.folder / "elsewhere.json")
    assert [given["format"] for given in asked] == ["channels_last", "contiguous"]
    assert {given["folder"] for given in asked} == {done.folder / "tvm" / "cpu"}
    assert asked[0]["tvm"] == done.tune.tvm


def test_records_of_another_training_do_not_compare(done: Experiment, tmp_path: Path) -> None:
    file = training_file(done, "original", 1)
    kept = file.read_text(encoding="utf-8")
    TrainingRecord.read(file).model_copy(update={"data_hash": "0"}).write(file)
    try:
        with pytest.raises(SpecError, match="another network, data set or training"):
            make_tables(done)
    finally:
        file.write_text(kept, encoding="utf-8")


def test_what_is_trained_has_an_entry(done: Experiment) -> None:
    found = entries(done)
    assert [entry.role for entry in found[:2]] == ["original", "baseline"]
    assert all(entry.role == "found" for entry in found[2:])


def test_a_folder_of_results_may_be_moved(done: Experiment, tmp_path: Path) -> None:
    """Once the results were looked for where they had been."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(done.folder, moved)
    config = (moved / "experiment.yaml").read_text(encoding="utf-8")
    (moved / "experiment.yaml").write_text(config.replace(f"output: {done.folder}", "output: null"), encoding="utf-8")
    assert find_experiment(str(moved)).folder == moved
    assert len(top(str(moved), 5).splitlines()) == 2 + 3


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
    assert figures.names(done) == ("score-latency", "speedup", "score-flops", "reward")
    with pytest.raises(SpecError, match="it has: score-latency, speedup, score-flops, reward"):
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
    assert figures.names(experiment) == ("reward",)
    text = write_report(experiment).read_text(encoding="utf-8")
    assert all(one.name in text for one in chosen)
    with pytest.raises(SpecError, match="give select: {by: reward}"):
        select(Experiment(**fields))


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


class TestWrongInput:
    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"nmae": "x"}, 'Did you mean "name"'),
            ({"study": {"n_trails": 3}}, 'Did you mean "n_trials"'),
            ({"study": {"n_trials": "many"}}, "valid integer"),
            ({"study": {"pruner": {"name": "medain"}}}, 'Did you mean "median"'),
            ({"study": {"pruner": {"name": "median", "startup": 3}}}, "n_startup_trials"),
            ({"tune": {"compilers": ["inductr"]}}, "inductor"),
            ({"tune": {"devices": ["gpu"]}}, "cuda"),
            ({"tune": {"compilers": ["tvm"], "devices": ["cpu", "cuda:1"]}}, "CUDA_VISIBLE_DEVICES"),
            ({"tune": {"tvm": {"target": "jetson"}}}, "jetson-orin-nano-cpu"),
            ({"tune": {"tvm": {"trials": 9}}}, "trials_per_task"),
            ({"train": {"seeds": [1, 1]}}, "twice"),
            ({"spec": {"deepth": 4}}, 'Did you mean "depth"'),
            ({"name": "a/b"}, "names no folder"),
        ],
    )
    def test_in_the_config(self, fields: dict[str, Any], message: str, tmp_path: Path) -> None:
        file = tmp_path / "wrong.yaml"
        file.write_text(json.dumps({**FIELDS, **fields}), encoding="utf-8")
        result = self.run("search", str(file))
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert message in line

    def test_stages_before_are_named(self, tmp_path: Path) -> None:
        file = tmp_path / "small.yaml"
        file.write_text(json.dumps({**FIELDS, "output": str(tmp_path / "small")}), encoding="utf-8")
        for command, message in (
            ("freeze", "`syno search` makes it"),
            ("select", "`syno freeze` makes it"),
            ("tables", "`syno select` makes it"),
        ):
            result = self.run(command, str(file))
            assert (result.exit_code, message in result.stderr) == (2, True), result.stderr

    def test_a_network_without_a_layer_to_replace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def pointwise(*, classes: int, channels: int, width: float, seed: int) -> torch.nn.Module:
            layers = [torch.nn.Conv2d(channels, 4, 3, padding=1), torch.nn.Conv2d(4, classes, 1), torch.nn.AdaptiveAvgPool2d(1)]
            return torch.nn.Sequential(*layers, torch.nn.Flatten())

        monkeypatch.setitem(BACKBONES._entries, "pointwise", pointwise)
        file = tmp_path / "small.yaml"
        fields = {**FIELDS, "workload": {**FIELDS["workload"], "model": "pointwise"}, "output": str(tmp_path / "small")}
        file.write_text(json.dumps(fields), encoding="utf-8")
        result = self.run("data", str(file))
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert "has no layer to replace (0: it is the first convolution; 1: its kernel is 1x1)" in line
        assert not (tmp_path / "small").exists()

    def test_a_damaged_study_is_named_and_stays(self, tmp_path: Path) -> None:
        file, study = tmp_path / "small.yaml", tmp_path / "small" / "trials.db"
        file.write_text(json.dumps({**FIELDS, "output": str(tmp_path / "small")}), encoding="utf-8")
        study.parent.mkdir()
        study.write_bytes(b"this is no database" * 100)
        for command in ("search", "freeze"):
            result = self.run(command, str(file))
            assert result.exit_code == 2
            assert "file is not a database" in result.stderr.splitlines()[-1]
        assert study.read_bytes() == b"this is no database" * 100

    @pytest.mark.parametrize("name", ["trials.parquet", "selected.json"])
    def test_a_damaged_file_is_named(self, name: str, tmp_path: Path) -> None:
        experiment = Experiment(**FIELDS, output=tmp_path)
        (tmp_path / name).write_text("[{", encoding="utf-8")
        with pytest.raises(SpecError, match=rf"{name} holds no .* again"):
            read_frozen(experiment) if name == "trials.parquet" else read_selected(tmp_path / name)
