"""The command that compiles and measures one operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from syno.cli import app
from syno.ir.library import OPERATORS
from syno.measure.network_subject import NetworkSubject
from syno.measure.tuning_record import TuningRecord


def tune(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["tune", "operator", "conv1x1", *arguments, "--output", str(file)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[TuningRecord, str]:
    """A record, and what was printed."""
    file = tmp_path_factory.mktemp("tuned") / "record.json"
    result = tune(file, "--set", "C_in=4,C_out=4,H=4", "--batch", "2")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("conv1x1, eager on cpu: starting, 0 s elapsed\n")
    return TuningRecord.read(file), result.stdout


def test_it_prints_the_latency_and_writes_the_record(whole: tuple[TuningRecord, str]) -> None:
    record, printed = whole
    assert record.status == "ok" and record.checked and record.settings.batch == 2
    assert f"{record.latency_ms:.4g} ms" in printed


def test_what_fails_is_a_record_too(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    result = tune(file, "--set", "C_in=4,C_out=4,H=4", "--time-limit", "0.01")
    assert result.exit_code == 1
    assert "timeout" in result.stderr
    assert TuningRecord.read(file).status == "timeout"


def test_wrong_arguments_end_before_anything_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    for arguments, message in (
        (("--set", "C_in=4,H=4"), "C_out"),
        (("--set", "C_in=4,C_out=4,H=4", "--compiler", "eeger"), "eager"),
        (("--set", "C_in=4,C_out=4,H=4", "--device", "tpu"), "cuda"),
        (("--set", "C_in=4,C_out=4,H=4", "--compiler", "tvm", "--target", "jetson"), "there are: host, jetson-orin-nano-cpu"),
    ):
        result = tune(file, *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
    assert not file.exists()


def tune_network(given: str, file: Path, *arguments: str) -> Result:
    """ResNet-8 on small pictures, as it would be on another machine."""
    network = ("--model", "resnet8", "--classes", "5", "--width", "0.25", "--image", "3x16x16", "--compiler", "eager")
    return CliRunner().invoke(app, ["tune", "network", given, *network, *arguments, "--output", str(file)])


@pytest.mark.slow
def test_a_network_is_measured_without_its_experiment(tmp_path: Path) -> None:
    operator, file = tmp_path / "brought.txt", tmp_path / "taken" / "record.json"
    operator.write_text(str(OPERATORS["separable_conv2d"]()), encoding="utf-8")
    result = tune_network(str(operator), file, "--batch", "2", "--layers", "paper-3x3")
    assert result.exit_code == 0, result.output
    record = TuningRecord.read(file)
    assert (record.status, record.operator_id, record.settings.batch) == ("ok", OPERATORS["separable_conv2d"]().id, 2)
    assert isinstance(record.subject, NetworkSubject)
    assert (record.subject.model, record.subject.layers, record.subject.image_shape) == ("resnet8", "paper-3x3", (3, 16, 16))
    assert f"separable_conv2d, eager on {record.device.name}: {record.latency_ms:.4g} ms" in result.stdout


@pytest.mark.slow
def test_the_network_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    assert tune_network("original", file).exit_code == 0
    record = TuningRecord.read(file)
    assert (record.name, record.operator_id, record.status) == ("original", None, "ok")


def test_what_a_picture_is(tmp_path: Path) -> None:
    result = tune_network("original", tmp_path / "record.json", "--image", "224x224")
    assert result.exit_code == 2 and '"224x224" is no CxHxW' in result.stderr


@pytest.mark.slow
def test_an_unknown_rule_is_a_record_with_the_names(tmp_path: Path) -> None:
    result = tune_network("conv2d", tmp_path / "record.json", "--layers", "all")
    assert result.exit_code == 1 and "the rules are: spatial, pointwise, grouped, transposed, paper-3x3, paper" in result.stderr


def test_what_is_tuned_in_part_is_said(
    whole: tuple[TuningRecord, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = whole[0].model_copy(update={"status": "partial", "reason": "a part is not tuned"})
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("syno.measure.tuning.tune", lambda *_, **rest: asked.append(rest) or partial)
    options = ("--compiler", "tvm", "--target", "host", "--trials", "7", "--folder", str(tmp_path / "trials"))
    result = tune(tmp_path / "partial.json", "--set", "C_in=4,C_out=4,H=4", *options)
    assert result.exit_code == 1 and "ms (95 %" in result.stdout and "partial: a part is not tuned" in result.stderr
    assert (asked[0]["tvm"].target, asked[0]["tvm"].trials_per_task) == ("host", 7)
    assert asked[0]["folder"] == tmp_path / "trials"
