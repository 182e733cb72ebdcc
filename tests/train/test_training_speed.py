"""The speed of training: networks in turns, their records, the rows of the table, and the jobs of the stage."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.base.interval import Interval
from syno.base.record import PositiveInterval
from syno.cli import app
from syno.config import Experiment
from syno.data import TokenSet
from syno.ir.library import OPERATORS
from syno.measure.timing import median_interval
from syno.model.networks import Network, Role
from syno.run.measurement import UNITS
from syno.run.rows import rows_of
from syno.run.views import latencies_of, scores_of
from syno.stages.measurements import KINDS
from syno.stages.tables import records
from syno.stages.workflow_stages import jobs
from syno.train import speed_record
from syno.train.settings import SpeedSettings, TrainingSettings, WorkloadSettings
from syno.train.speed_record import SpeedRecord, TrainingSpeed, measured_training

SMALL = {"width": 0.25, "data_settings": {"preset": "micro", "train": 32, "test": 8}, "training": {"batch": 16}}
CONV = OPERATORS["conv1x1"]()


def experiment(folder: Path, **tune: Any) -> Experiment:
    settings = {"training": True, "speed": {"steps": 1, "turns": 6}, **tune}
    return Experiment(name="small", workload=SMALL, train={"baselines": ["conv1x1"]}, tune=settings, output=folder)


def around(value: float) -> Interval:
    return Interval(value=value, low=0.9 * value, high=1.1 * value)


def a_record(**changes: Any) -> SpeedRecord:
    speeds = [
        TrainingSpeed(forward_ms=around(1.0), forward_backward_ms=around(3.0), samples_per_second=around(value))
        for value in (1000.0, 1100.0)
    ]
    fields: dict[str, Any] = {
        "name": CONV.name, "operator": str(CONV), "operator_id": CONV.id,
        "workload": WorkloadSettings(**{**SMALL, "milestones": {}}),
        "settings": SpeedSettings(steps=1, turns=6), "device_setting": "cpu", "device": "a processor", "batch": 16,
        "sample": "picture", "samples": 16, "original": speeds[0], "changed": speeds[1], "ratio": around(1.1), "versions": {},
        "date": datetime(2030, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    return SpeedRecord(**{**fields, **changes})


def test_networks_train_in_turns_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int | None, int]] = []
    seconds = iter([1.0, 1.0, 2.0, 1.0, 4.0, 2.0])  # the machine gets slower: the ratio stays

    def train(network: str, data: object, settings: TrainingSettings, seed: int = 0) -> SimpleNamespace:
        seen.append((network, settings.most_steps, seed))
        return SimpleNamespace(steps=8, step_seconds=next(seconds))

    monkeypatch.setattr(speed_record, "train", train)
    networks: Any = ["original", "changed"]
    found = speed_record.steps_per_second(networks, SimpleNamespace(), TrainingSettings(most_steps=8), 2)  # type: ignore[arg-type]
    assert found == [[4.0, 8.0], [2.0, 4.0]]
    turns = [(name, 8, turn) for turn in range(2) for name in networks]
    assert seen == [(name, speed_record.WARM_UP_STEPS, 0) for name in networks] + turns


def test_a_measured_training_is_the_experiments_but_for_its_length_and_device() -> None:
    given = TrainingSettings(recipe="paper-gpt2")
    found = measured_training(given, SpeedSettings(steps=5), "cpu")
    changed = {name for name in TrainingSettings.model_fields if getattr(found, name) != getattr(given, name)}
    assert changed == {"device", "epochs", "most_steps", "most_minutes", "round_steps", "most_tests"}
    assert found.most_steps == 5 and measured_training(given, SpeedSettings(batch=4), "cpu").batch == 4


def test_the_command_measures_and_writes_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = experiment(tmp_path / "out")
    (tmp_path / "small.yaml").write_text(one.model_dump_json(exclude_defaults=True), encoding="utf-8")
    done = CliRunner().invoke(app, ["tune", "training", "small.yaml", "conv1x1"])
    assert done.exit_code == 0, done.output
    record = SpeedRecord.read(KINDS["speed"].file(one, "conv1x1", "", "cpu"))
    assert (record.name, record.sample, record.samples, record.batch) == ("conv1x1", "picture", 16, 16)
    assert record.original.forward_ms.value < record.original.forward_backward_ms.value
    assert f"conv1x1 trains {record.ratio.value:.3f} times as fast" in done.stdout
    networks = [Network("original", role=Role.ORIGINAL), Network("conv1x1", role=Role.BASELINE)]
    ((file, network, place, found),) = records(KINDS["speed"], one, networks)
    assert (file.name, network.key, place, found) == ("cpu.json", "conv1x1", ("", "cpu"), record)
    other = experiment(tmp_path / "out", speed={"steps": 2, "turns": 6})
    with pytest.raises(SpecError, match="speed/conv1x1/cpu.json .*other settings"):
        list(records(KINDS["speed"], other, networks))
    wrong = CliRunner().invoke(app, ["tune", "training", "small.yaml", "original"])
    assert wrong.exit_code == 2 and "give an operator or a baseline" in wrong.stderr


def test_rows_are_of_both_networks_and_of_one_source() -> None:
    original, changed = rows_of(a_record(), "speed/conv1x1/cpu.json", key="conv1x1", role="baseline")
    assert {row.metric for row in (original, changed)} == {"training_throughput"}
    assert original.unit == UNITS["training_throughput"] == "samples per second"
    assert (original.key, original.value, changed.key, changed.value) == ("original", 1000.0, "conv1x1", 1100.0)
    assert (changed.low, changed.high) == (pytest.approx(990), pytest.approx(1210))
    assert "1.100 times as fast as the original" in changed.note and original.source == changed.source
    assert not scores_of([original, changed]) and not latencies_of([original, changed])


def test_an_interval_holds_its_value() -> None:
    assert median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == Interval(value=3.5, low=1.0, high=6.0)
    with pytest.raises(ValidationError, match="is not in its interval"):
        TypeAdapter(PositiveInterval).validate_python({"value": 2.0, "low": 3.0, "high": 4.0})


def test_there_is_a_job_for_each_operator_and_device_of_this_machine(tmp_path: Path) -> None:
    remote = {"board": {"kind": "cpu", "target": "host", "tracker": "127.0.0.1:9190"}}
    one = experiment(tmp_path, compilers=["eager", "tvm"], devices=["cpu", "cuda", "board"], remote_devices=remote)
    found = [file.relative_to(tmp_path).as_posix() for file in jobs(one, ["ab12"])["speed"]]
    assert found == [f"speed/{key}/{device}.json" for device in ("cpu", "cuda") for key in ("conv1x1", "ab12")]
    assert "speed" not in jobs(experiment(tmp_path, training=False))


def test_measurements_of_latency_do_not_depend_on_it(tmp_path: Path) -> None:
    assert experiment(tmp_path).part("tune") == experiment(tmp_path, training=False, speed={"steps": 9}).part("tune")
    assert experiment(tmp_path).part("speed") != experiment(tmp_path, speed={"steps": 9}).part("speed")


def test_text_is_counted_in_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has 3 sequences of 8 tokens, so a step has 24 tokens."""
    monkeypatch.setattr(speed_record, "passes", lambda *given: [[speed_record.Passes(1.0, 3.0)] * 2] * 6)
    monkeypatch.setattr(speed_record, "steps_per_second", lambda *given: [[2.0, 3.0]] * 6)
    numbers = np.zeros(100, dtype=np.uint16)
    settings = WorkloadSettings(training={"recipe": "quick-text", "batch": 3})
    workload: Any = SimpleNamespace(
        settings=settings, data=TokenSet("zeros", numbers, numbers, 7, 8, ""), network=lambda *given: torch.nn.Linear(1, 1)
    )
    record = SpeedRecord.make(workload, CONV, SpeedSettings(turns=6), "cpu")
    assert (record.sample, record.samples, record.batch) == ("token", 24, 3)
    assert (record.original.samples_per_second.value, record.changed.samples_per_second.value) == (48.0, 72.0)
    assert record.ratio == Interval(value=1.5, low=1.5, high=1.5)
