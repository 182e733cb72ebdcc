"""Operators are selected by latency: within the margin, the fastest, or a front, for each compiler on each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import pytest
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.measure.compilers import compiler_facts
from syno.measure.network_subject import NetworkSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tolerant
from syno.measure.tuning_record import Device, TuningRecord
from syno.stages import select
from syno.stages.fastest import fastest
from syno.stages.measurements import KINDS
from syno.stages.opening import keep_config
from syno.stages.places import SELECTED, SHORTLIST, training_file
from syno.stages.restore import expected
from syno.stages.selection import FastestOn, Selected, read_selected, read_selection, why_none, write_selected
from syno.stages.store import OperatorStore
from syno.stages.workflow_stages import jobs
from syno.train.settings import WorkloadSettings
from syno.train.training_record import TrainingRecord

WHEN = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = ("conv2d", "conv1x1", "separable_conv2d")  # the best by reward first
KEYS = {name: OPERATORS[name]().id[:12] for name in NAMES}
BY_KEY = {key: name for name, key in KEYS.items()}
SUBJECT = NetworkSubject(model="resnet8", classes=5, image_shape=(3, 16, 16))


def experiment(folder: Path, **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "workload": {}, "select": {"by": "latency", "within": 0.01}, "train": {"seeds": [1, 2]}, "output": folder,
        "tune": {"compilers": ["eager", "inductor"]},
    }  # fmt: skip
    return Experiment(name="fast", **{**fields, **changes})


def measured(one: Experiment, compiler: str, latencies: Mapping[str, float | str]) -> None:
    """Records of the network with each of these; a text in place of milliseconds is a status."""
    for name, given in {"original": 10.0, **latencies}.items():
        key, suspicious = KEYS.get(name, name), given == "suspicious"
        status = "ok" if suspicious or not isinstance(given, str) else given
        record = TuningRecord(
            name=name, operator_id=None if name == "original" else OPERATORS[name]().id, subject=SUBJECT, compiler=compiler,
            device=Device(kind="cpu", name="a processor", threads=1), suspicious=suspicious,
            settings=tolerant(LatencySettings(), compiler_facts(compiler)), status=status,
            reason="" if status == "ok" else "a reason", versions={}, date=WHEN,
            latency_ms=1.0 if suspicious or status == "partial" else given if status == "ok" else None,
        )  # fmt: skip
        record.write(KINDS["tune"].file(one, key, compiler, "cpu"))


def trained(one: Experiment, scores: Mapping[int, float], **changes: Any) -> None:
    """Records of the original network's trainings, by seed."""
    for seed, score in scores.items():
        record = TrainingRecord(
            name="original", operator=None, operator_id=None, workload=WorkloadSettings(**changes), data_hash="ab", seed=seed,
            metric="accuracy", score=score, scores=(score,), losses=(1.0,), stopped=None, flops=1.0, parameters=1,
            cpu_seconds=1.0, threads=1, device="cpu", versions={}, date=WHEN,
        )  # fmt: skip
        record.write(training_file(one, "original", seed))


def trials(accuracies: Mapping[str, float], flops: Sequence[float] = (100.0,) * len(NAMES)) -> pandas.DataFrame:
    rows = [
        {"number": number, "outcome": "complete", "reward": 1 - number / 10, "operator": str(OPERATORS[name]()),
         "metric_accuracy": accuracy, "metric_flops": flops[number]}
        for number, (name, accuracy) in enumerate(accuracies.items())
    ]  # fmt: skip
    return pandas.DataFrame(rows)


class TestFastest:
    def test_each_pair_takes_its_own(self, tmp_path: Path) -> None:
        one = experiment(tmp_path)
        measured(one, "eager", {"conv2d": 8.0, "conv1x1": 4.0, "separable_conv2d": 5.0})
        measured(one, "inductor", {"conv2d": 8.0, "conv1x1": 4.0, "separable_conv2d": 2.5})
        assert fastest(one, BY_KEY) == {
            KEYS["conv1x1"]: (FastestOn(compiler="eager", device="cpu", latency_ms=4.0, speedup=2.5),),
            KEYS["separable_conv2d"]: (FastestOn(compiler="inductor", device="cpu", latency_ms=2.5, speedup=4.0),),
        }

    @pytest.mark.parametrize("status", ["partial", "timeout", "wrong_output", "suspicious"])
    def test_what_does_not_compare_is_left_out(self, status: str, tmp_path: Path) -> None:
        one = experiment(tmp_path, tune={"compilers": ["eager"]})
        measured(one, "eager", {"conv2d": 4.0, "conv1x1": 4.0, "separable_conv2d": status})
        assert list(fastest(one, BY_KEY)) == [KEYS["conv2d"]]  # of equal ones, the first of the shortlist

    def test_a_compiler_with_a_tolerance_of_its_own_is_compared_with_that(self, tmp_path: Path) -> None:
        one = experiment(tmp_path, tune={"compilers": ["inductor-int8"]})
        measured(one, "inductor-int8", {"conv2d": 8.0, "conv1x1": 4.0, "separable_conv2d": 5.0})
        assert list(fastest(one, BY_KEY)) == [KEYS["conv1x1"]]

    def test_without_the_originals_latency_no_speedup_is_known(self, tmp_path: Path) -> None:
        one = experiment(tmp_path, tune={"compilers": ["eager"]})
        measured(one, "eager", {"original": "timeout", "conv2d": 4.0, "conv1x1": 5.0, "separable_conv2d": "crashed"})
        ((place,),) = fastest(one, BY_KEY).values()
        assert (place.latency_ms, place.speedup) == (4.0, None)

    def test_if_there_are_more_than_wanted_those_of_most_pairs_are_taken(self, tmp_path: Path) -> None:
        tune = {"compilers": ["eager", "inductor", "inductor-max-autotune"]}
        one = experiment(tmp_path, tune=tune, select={"by": "latency", "count": 1})
        measured(one, "eager", {"conv2d": 1.0, "conv1x1": 4.0, "separable_conv2d": 5.0})
        for compiler in tune["compilers"][1:]:
            measured(one, compiler, {"conv2d": 8.0, "conv1x1": 4.0, "separable_conv2d": 5.0})
        assert list(fastest(one, BY_KEY)) == [KEYS["conv1x1"]]

    def test_where_nothing_was_measured_the_reasons_are_named(self, tmp_path: Path) -> None:
        one = experiment(tmp_path, tune={"compilers": ["eager"]})
        with pytest.raises(
            SpecError, match=r"eager-cpu.json is not there, .* `syno tune model CONFIG \w+ --compiler eager --dev"
        ):
            fastest(one, BY_KEY)
        measured(one, "eager", dict.fromkeys(NAMES, "timeout"))
        with pytest.raises(
            SpecError, match="no operator .* conv2d with eager on cpu: timeout: a reason; .* select by pareto or"
        ):
            fastest(one, BY_KEY)
        other = one.model_copy(update={"tune": one.tune.model_copy(update={"latency": LatencySettings(batch=2)})})
        with pytest.raises(
            SpecError,
            match=r"of other settings than the experiment: latency.batch is 1 there, 2 here.* run `syno tune model CONFIG",
        ):
            fastest(other, BY_KEY)


class TestShortlist:
    @pytest.fixture(autouse=True)
    def frozen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = trials({"conv2d": 0.795, "conv1x1": 0.70, "separable_conv2d": 0.79})
        monkeypatch.setattr(select, "read_frozen", lambda experiment: table)

    def test_it_has_the_best_by_reward_within_the_margin_of_the_trained_original(self, tmp_path: Path) -> None:
        one = experiment(tmp_path)
        trained(one, {1: 0.81, 2: 0.79})  # 0.80
        assert [found.key for found in select.shortlist(one)] == [KEYS["conv2d"], KEYS["separable_conv2d"]]
        short = experiment(tmp_path, select={"by": "latency", "within": 0.01, "shortlist": 1})
        assert [found.trial for found in select.shortlist(short)] == [0]
        wide = experiment(tmp_path, select={"by": "latency"})
        assert len(select.shortlist(wide)) == 3  # without a margin
        assert read_selected(tmp_path / SHORTLIST) == select.shortlist(wide)

    def test_the_margin_is_for_other_selections_too(self, tmp_path: Path) -> None:
        one = experiment(tmp_path, select={"by": "pareto", "within": 0.006})
        trained(one, {1: 0.80, 2: 0.80})
        assert [found.key for found in select.select(one)] == [KEYS["conv2d"]]
        with pytest.raises(SpecError, match="selects by pareto .*, which needs no shortlist"):
            select.shortlist(one)

    def test_if_no_operator_is_good_enough_it_says_how_near_the_best_came(self, tmp_path: Path) -> None:
        one = experiment(tmp_path)
        trained(one, {1: 0.90, 2: 0.90})
        assert select.shortlist(one) == [] == select.select(one)  # without a measurement
        for file in (SHORTLIST, SELECTED):
            assert "accuracy 0.9000, and the nearest trial, 0, has 0.7950, which is 0.105 worse" in str(
                why_none(read_selection(tmp_path / file))
            )

    def test_an_original_that_is_not_trained_or_otherwise_is_named(self, tmp_path: Path) -> None:
        one = experiment(tmp_path)
        trained(one, {1: 0.80})
        with pytest.raises(SpecError, match=r"seed2.json is not there, .* train it \(`syno baseline`\)"):
            select.shortlist(one)
        trained(one, {2: 0.80}, training={"epochs": 9})
        with pytest.raises(SpecError, match="seed2.json is of another network or training than the search's"):
            select.shortlist(one)

    def test_then_the_fastest_of_it_are_selected(self, tmp_path: Path) -> None:
        one = experiment(tmp_path)
        trained(one, {1: 0.80, 2: 0.80})
        select.shortlist(one)
        keep_config(one)
        for compiler in one.tune.compilers:
            measured(one, compiler, {"conv2d": 9.0, "separable_conv2d": 5.0})
        (tmp_path / SHORTLIST).rename(tmp_path / "taken")
        with pytest.raises(SpecError, match="shortlist.json cannot be read: .*; `syno shortlist` makes it"):
            select.select(one)
        (tmp_path / "taken").rename(tmp_path / SHORTLIST)
        done = CliRunner().invoke(app, ["select", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert "  the fastest with inductor on cpu: 5 ms, 2.00 times as fast as the original" in done.stdout
        (chosen,) = read_selected(tmp_path / SELECTED)
        assert (chosen.trial, [place.compiler for place in chosen.fastest_on]) == (2, ["eager", "inductor"])


class TestFront:
    """Of operators that lose 0.5, 2 and 1 points of accuracy."""

    FRONT: Mapping[str, Any] = {"by": "front", "within": 0.02}

    @pytest.fixture(autouse=True)
    def frozen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = trials({"conv2d": 0.795, "conv1x1": 0.78, "separable_conv2d": 0.79}, flops=(80, 60, 90))
        monkeypatch.setattr(select, "read_frozen", lambda experiment: table)

    @pytest.mark.parametrize(
        ("limits", "names"),
        [
            ({}, ["conv2d", "conv1x1", "separable_conv2d"]),  # on two fronts, and on that with eager, the faster first
            ({"count": 2}, ["conv2d", "conv1x1"]),
            ({"within": 0.01}, ["conv2d", "separable_conv2d"]),
        ],
    )
    def test_all_that_no_other_surpasses_for_a_pair_are_selected(
        self, limits: dict[str, Any], names: list[str], tmp_path: Path
    ) -> None:
        one = experiment(tmp_path, select={**self.FRONT, **limits})
        trained(one, {1: 0.80, 2: 0.80})
        select.shortlist(one)
        measured(one, "eager", {"conv2d": 9.0, "conv1x1": 4.0, "separable_conv2d": 5.0})
        measured(one, "inductor", {"conv2d": 4.0, "conv1x1": 4.0, "separable_conv2d": 6.0})
        found = {BY_KEY[chosen.key]: chosen.fastest_on for chosen in select.select(one)}
        assert list(found) == names
        assert [place.compiler for place in found["conv2d"]] == ["inductor"]

    def test_without_latencies_it_is_the_front_of_the_search(self, tmp_path: Path) -> None:
        one = experiment(tmp_path, select=self.FRONT, tune={"compilers": []})
        trained(one, {1: 0.80, 2: 0.80})
        assert [BY_KEY[chosen.key] for chosen in select.select(one)] == ["conv2d", "conv1x1"]
        assert "shortlist" not in jobs(one)
        with pytest.raises(SpecError, match="selects by front .*, which needs no shortlist"):
            select.shortlist(one)

    def test_at_most_so_many_are_trained_as_may_be_selected(self, tmp_path: Path) -> None:
        found = jobs(experiment(tmp_path, select={**self.FRONT, "count": 3, "shortlist": 4}))
        assert len(found["train"]) == 2 * (1 + 3) and len(found["tune"]) == 2 * (1 + 4)


class TestStages:
    def test_all_of_the_shortlist_are_measured_and_only_the_selected_are_trained(self, tmp_path: Path) -> None:
        found = jobs(experiment(tmp_path, select={"by": "latency", "shortlist": 4}))
        assert len(found["shortlist"]) == 1
        assert len(found["tune"]) == 2 * (1 + 4)  # the original, too
        assert len(found["train"]) == 2 * (1 + 2)  # two pairs have at most two fastest operators
        by_reward = jobs(experiment(tmp_path, select={"by": "reward", "count": 4}))
        assert "shortlist" not in by_reward and len(by_reward["tune"]) == len(by_reward["train"]) == 10

    def test_records_of_the_shortlist_are_expected(self, tmp_path: Path) -> None:
        one = experiment(tmp_path)
        chosen = [Selected(key=OperatorStore(tmp_path).add(OPERATORS[name]()), name=name, metrics={}) for name in NAMES]
        write_selected(chosen, tmp_path / SHORTLIST)
        write_selected(chosen[:1], tmp_path / SELECTED)
        files = set(expected(one))
        assert KINDS["tune"].file(one, KEYS["conv1x1"], "eager", "cpu") in files
        assert training_file(one, KEYS["conv1x1"], 1) not in files

    def test_the_margin_needs_the_original_only_without_a_source(self, tmp_path: Path) -> None:
        assert len(select.compared_trainings(experiment(tmp_path))) == 2
        assert select.compared_trainings(experiment(tmp_path, select={"by": "reward"})) == []
        assert select.compared_trainings(experiment(tmp_path, select={"within": 0.1, "source": "x"})) == []

    def test_other_selections_depend_on_what_they_did(self, tmp_path: Path) -> None:
        assert "shortlist" not in experiment(tmp_path, select={}).part("select")
        assert "shortlist" in experiment(tmp_path).part("select")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": {"compilers": []}}, "by: latency needs compilers and devices"),
        ({"workload": None, "spec": "resnet18", "evaluate": "m:f"}, "by: latency needs a workload"),
        ({"select": {"within": 0.1}, "evaluate": "cost"}, "trials must be trainings of a workload"),
        ({"train": {"training": {"epochs": 9}}}, "train: training would train in another way"),
        ({"select": {"by": "latency", "shortlist": 0}}, "shortlist"),
    ],
)
def test_settings_that_do_not_agree(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        experiment(tmp_path, **changes)
