"""The compiler "tvm", from a request to a record."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

from tvm_doubles import CountingRunner, NoBuilder

from syno.ir.library import OPERATORS
from syno.measure.measuring import findings
from syno.measure.network_subject import NetworkSubject
from syno.measure.protocol import Findings, Request
from syno.measure.subjects import ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune
from syno.measure.tuning_record import AnySubject, TaskResult, TuningSummary
from syno.measure.tvm import network
from syno.measure.tvm.search import only_writer
from syno.measure.tvm.targets import TvmSettings

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
SETTINGS = TvmSettings(trials_per_task=2, trials_per_iteration=2, cost_model="random", least_ms=4)
CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})

Measure = Callable[..., Findings]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """What the process finds, in this process, with trials that nothing is measured for."""
    from syno.measure.machine import Peak

    monkeypatch.setattr("syno.measure.machine.peak", lambda *_, **again: Peak(1e15, 1e15))

    def measure(subject: AnySubject = CONV2D, settings: TvmSettings = SETTINGS, fails: bool = False) -> Findings:
        monkeypatch.setattr("syno.measure.tvm.search.local_builder", lambda _: NoBuilder())
        monkeypatch.setattr("syno.measure.tvm.search.local_runner", lambda _: CountingRunner(fails))
        options, folder = settings.model_dump(), tmp_path / "tvm"
        request = Request(subject=subject, compiler="tvm", device="cpu", settings=FAST, options=options, folder=folder)
        return findings(request)

    return measure


def summary(found: Findings) -> TuningSummary:
    return TuningSummary.model_validate(found.fields["tuning"])


@pytest.mark.slow
def test_a_tuned_operator(measured: Measure, tmp_path: Path) -> None:
    found = measured()
    assert (found.status, found.reason, found.phase) == ("ok", "", "measuring")
    assert found.fields["checked"] and found.fields["reference"] == "interpreter" and found.fields["latency_ms"] > 0
    tuning = summary(found)
    assert (tuning.trials_wanted, tuning.trials, tuning.measured, tuning.complete) == (2, 2, 2, True)
    assert tuning.target["kind"] == "llvm" and tuning.target["num-cores"] == 1 and tuning.dtype == "float32"
    assert tuning.untuned_ms is not None and tuning.untuned_ms > 0
    (folder,) = (tmp_path / "tvm").iterdir()
    assert [path.suffix for path in (folder / "modules").iterdir()] == [".tar"]
    assert "conv2d_stage_1: 2 of 2 trials" in (folder / "progress.log").read_text(encoding="utf-8")
    again = measured()
    assert again.status == "ok" and (summary(again).trials, summary(again).measured) == (2, 0)


@pytest.mark.slow
def test_tasks_without_a_schedule_make_it_partial(measured: Measure) -> None:
    found = measured(fails=True)
    assert found.status == "partial" and found.fields["latency_ms"] > 0
    assert found.reason == "1 of 1 tasks run untuned (conv2d_stage_1): their trials failed"
    assert summary(found).without_schedule == ("conv2d_stage_1",)


def test_without_trials_it_is_not_tuned(measured: Measure) -> None:
    found = measured(settings=SETTINGS.model_copy(update={"trials_per_task": 0}))
    assert (found.status, found.reason) == ("ok", "")
    assert summary(found).trials_wanted == 0 and summary(found).untuned_ms is None


def test_a_wrong_output_is_found_before_tuning(measured: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = network.constant_weights
    monkeypatch.setattr(network, "constant_weights", lambda *given: [2 * weight for weight in weights(*given)])
    found = measured()
    assert (
        found.status == "wrong_output"
        and "the output of the network compiled by TVM differs from its reference" in found.reason
    )
    assert "tuning" not in found.fields and "latency_ms" not in found.fields


def test_an_operation_that_tvm_does_not_have(measured: Measure) -> None:
    found = measured(ModelSubject(factory="tuned_modules:decomposition", input_shape=(3,)))
    assert found.status == "compile_failed" and "LoweringError" in found.reason and "aten." in found.reason


def test_the_reason_names_three_tasks_at_most() -> None:
    tasks = [TaskResult(name=f"task_{number}", calls=1, trials=1, measured=1, best_ms=None) for number in range(5)]
    said = TuningSummary.of(tasks, {}, 4, 0.0, None).shortcoming
    assert said.startswith("5 of 5 tasks run untuned (task_0, task_1, task_2, ...): tuning was not finished")


@pytest.mark.slow
def test_a_network_is_tuned_and_then_tuned_no_more(tmp_path: Path) -> None:
    operator = str(OPERATORS["separable_conv2d"]())
    subject = NetworkSubject(model="own_functions:network", classes=4, image_shape=(3, 8, 8), operator=operator)
    records = [tune(subject, "tvm", settings=FAST, time_limit_s=1800, tvm=SETTINGS, folder=tmp_path) for _ in range(2)]
    for record in records:
        assert (record.status, record.reason) == ("ok", "") and record.reference == "network of literal modules"
        assert record.tuning is not None and record.tuning.complete and {"apache-tvm", "torch"} <= record.versions.keys()
    first, second = (record.tuning for record in records)
    # A small space may have fewer schedules than are wanted: then the tuning is complete, too.
    assert first is not None and 0 < first.measured == first.trials <= first.trials_wanted
    assert second is not None and (second.measured, second.trials) == (0, first.trials)


@pytest.mark.slow(minutes=1.5)
def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    many = SETTINGS.model_copy(update={"trials_per_task": 100})  # more take a search that begins with more schedules
    code = (
        "import pathlib, sys\n"
        "from syno.measure.tuning import LatencySettings, OperatorSubject, TvmSettings, tune\n"
        "subject, settings, tvm = (kind.model_validate_json(text) for kind, text in\n"
        "    zip((OperatorSubject, LatencySettings, TvmSettings), sys.argv[1:]))\n"
        "tune(subject, 'tvm', settings=settings, time_limit_s=1000, tvm=tvm, folder=pathlib.Path(sys.argv[4]))"
    )
    given = [value.model_dump_json() for value in (CONV2D, FAST, many)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code, *given, str(tmp_path)], env=environment) as killed:
        while trials(tmp_path) < 2:
            assert killed.poll() is None
            time.sleep(0.1)
        killed.kill()
    (folder,) = tmp_path.glob("*")
    with only_writer(folder, time.monotonic() + 60):  # what it started ends by itself
        there = trials(tmp_path)
    more = SETTINGS.model_copy(update={"trials_per_task": there + 2})
    record = tune(CONV2D, "tvm", settings=FAST, time_limit_s=600, tvm=more, folder=tmp_path)
    assert record.status == "ok" and record.tuning is not None and record.tuning.trials == there + 2
    assert record.tuning.measured in (2, 3)  # the last line may have been torn


def trials(folder: Path) -> int:
    """Lines of trials in whatever database there is."""
    return sum(file.read_bytes().count(b"[0,[[") for file in folder.glob("*/database_tuning_record.json"))
