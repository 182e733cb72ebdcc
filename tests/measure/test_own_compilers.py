"""Compilers of a user's own, by `package.module:name`: they are measured as others are, and each mistake is one clear error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from syno.base.errors import MissingPackageError, SpecError, UnknownNameError
from syno.cli import app
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.measure.compilers import Compiler, compiler_named, name_in_files, reaches
from syno.measure.measuring import findings
from syno.measure.protocol import Findings, Request
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune
from syno.measure.tuning_record import TuningRecord
from syno.stages.measurements import KINDS
from syno.stages.places import compiler_in_files

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
MINE = """
import time

from pydantic import BaseModel
from syno.measure.compilers import Compiler

def plain(job):
    return lambda *inputs: job.module(*inputs)

def doubled(job):
    return lambda *inputs: 2 * job.module(*inputs)

def slow(job):
    def call(*inputs):
        time.sleep(0.02)
        return job.module(*inputs)

    return call

def forgetful(job):
    job.module(*job.example)

class Factor(BaseModel):
    factor: float = 1.0

def scaled(job):
    return lambda *inputs: job.options.factor * job.module(*inputs)

with_settings = Compiler(scaled, settings=Factor, group="factor", tolerance=0.5)
lacking = Compiler(plain, requires={"no_such_package": "mine"})
for_gpus = Compiler(plain, devices=("cuda",))
not_a_compiler = 3
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_compilers.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "my_broken.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    for name in ("my_compilers", "my_broken"):
        sys.modules.pop(name, None)


def measured(name: str, **rest: Any) -> TuningRecord:
    return tune(CONV2D, f"my_compilers:{name}", settings=FAST, time_limit_s=200, **rest)


def experiment(*compilers: str) -> Experiment:
    return Experiment(name="x", workload={}, tune={"compilers": list(compilers)})


@pytest.mark.slow
def test_its_latency_is_recorded_under_its_name() -> None:
    record = measured("plain")
    assert (record.status, record.compiler, record.checked) == ("ok", "my_compilers:plain", True)
    assert record.latency_ms is not None and record.latency_ms > 0


@pytest.mark.slow
def test_it_has_settings_and_a_tolerance_of_its_own() -> None:
    from my_compilers import Factor

    assert measured("with_settings").status == "ok"
    record = measured("with_settings", factor=Factor(factor=1.25))
    assert (record.status, record.settings.tolerance) == ("ok", 0.5)
    assert record.largest_relative_error == pytest.approx(0.25, rel=1e-3)
    with pytest.raises(TypeError, match=r"tune\(\) got factor=...; there are settings of compilers: fastest, int8, tvm"):
        tune(CONV2D, "eager", factor=Factor())


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("doubled", "wrong_output", "differs from its reference"),
        ("forgetful", "compile_failed", "the compiler my_compilers:forgetful returned NoneType, not a function of tensors"),
        ("for_gpus", "compile_failed", 'my_compilers:for_gpus has kernels for the device "cuda" only; it was given "cpu"'),
    ],
)
def test_what_goes_wrong_in_it_has_a_status_and_a_reason(name: str, status: str, reason: str, tmp_path: Path) -> None:
    compiler = f"my_compilers:{name}"
    request = Request(subject=CONV2D, compiler=compiler, device="cpu", settings=FAST, folder=tmp_path)
    found = findings(request)  # what the process does
    assert found.status == status and reason in found.reason and "latency_ms" not in found.fields


def test_fastest_takes_the_fastest_compiler_that_computes_the_network(tmp_path: Path) -> None:
    """Others are in the choice with their times, or with the reason why they took no part."""

    def found(*names: str) -> Findings:
        options = {"compilers": [f"my_compilers:{name}" for name in names]}
        return findings(
            Request(subject=CONV2D, compiler="fastest", device="cpu", settings=FAST, folder=tmp_path, options=options)
        )

    choice = found("slow", "plain", "doubled", "lacking", "for_gpus").fields["choice"]
    assert choice.compiler == "my_compilers:plain"
    assert choice.latencies_ms["my_compilers:slow"] > 10 > choice.latencies_ms["my_compilers:plain"]
    assert {name.partition(":")[2]: reason[:40] for name, reason in choice.failures.items()} == {
        "doubled": "the output differs from its reference by",
        "lacking": "the compiler my_compilers:lacking needs ",
        "for_gpus": "the compiler my_compilers:for_gpus has k",
    }
    lines = [line.text for line in choice.lines("conv2d")]
    assert len(lines) == 3 and lines[1].startswith(
        "conv2d: the fastest compiler was chosen without my_compilers:lacking: the compiler my_compilers:lacking needs"
    )
    none = found("doubled", "lacking")
    assert none.status == "compile_failed" and "my_compilers:lacking: " in none.reason


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("my_compilers:plane", SpecError, 'has no "plane". Did you mean "plain"?'),
        ("my_compilers:not_a_compiler", SpecError, "which is 3; it must be a Compiler, or a function that takes a Job"),
        ("my_absent:plain", SpecError, "cannot be imported: No module named 'my_absent'"),
        ("my_broken:plain", SpecError, "my_broken fails as it is imported: ZeroDivisionError"),
        ("my_compilers:", SpecError, '"package.module:name"'),
        ("inducto", UnknownNameError, 'unknown compiler "inducto"'),
    ],
)
def test_each_mistake_is_one_clear_error(given: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        tune(CONV2D, given)
    assert message in str(raised.value)
    with pytest.raises(SpecError) as in_config:
        experiment(given).use_code()
    assert message in str(in_config.value)


def test_a_package_that_it_needs_is_named() -> None:
    with pytest.raises(MissingPackageError, match=r'my_compilers:lacking needs no_such_package.*"syno-operators\[mine\]"'):
        measured("lacking")


def test_names_in_files_are_told_apart() -> None:
    names = ["inductor", "inductor-int8", "my_compilers:plain", "my_compilers:doubled"]
    described = experiment(*names)
    files = {KINDS["tune"].file(described, "key", name, "cpu").stem: name for name in names}
    assert sorted(files) == ["inductor-cpu", "inductor-int8-cpu", "my_compilers.doubled-cpu", "my_compilers.plain-cpu"]
    for stem, name in files.items():
        assert compiler_in_files(described, stem.rpartition("-")[0]) == name
    with pytest.raises(SpecError, match="a compiler's name has 10\\d characters"):
        name_in_files(f"{'p' * 99}:plain")


def test_a_function_is_a_compiler_for_this_machine() -> None:
    found = compiler_named("my_compilers:plain")
    assert isinstance(found, Compiler) and found.name == "my_compilers:plain"
    assert reaches("my_compilers:plain", None) and not found.tunes and found.tolerance is None


@pytest.mark.slow
def test_commands_take_it(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    given = ["tune", "operator", "conv2d", "--set", "C_in=4,C_out=4,H=4", "--compiler", "my_compilers:plain"]
    done = CliRunner().invoke(app, [*given, "--output", str(file)])
    assert done.exit_code == 0, done.output
    assert TuningRecord.read(file).compiler == "my_compilers:plain"


@pytest.mark.slow
def test_a_stage_measures_the_network_with_it(tmp_path: Path) -> None:
    workload = {"model": "resnet8", "width": 0.25, "data": "glyphs", "data_settings": {"preset": "micro"}}
    tuning = {"compilers": ["my_compilers:plain"], "latency": FAST.model_dump(mode="json")}
    config = {"name": "small", "workload": workload, "output": str(tmp_path / "results"), "tune": tuning}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    done = CliRunner().invoke(app, ["tune", "model", "small.yaml", "original", "--compiler", "my_compilers:plain"])
    assert done.exit_code == 0, done.output
    (file,) = (tmp_path / "results").rglob("tune/original/*.json")
    assert (file.name, TuningRecord.read(file).compiler) == ("my_compilers.plain-cpu.json", "my_compilers:plain")
