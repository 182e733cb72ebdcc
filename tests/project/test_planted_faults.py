"""Small faults that are planted into networks are found when latency is measured, and honest compilers are not accused."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

import syno
from syno.measure.machine import Peak
from syno.measure.measuring import findings
from syno.measure.network_subject import NetworkSubject
from syno.measure.protocol import Findings, Request
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FAULTS = ("channel", "corner", "factor", "border", "bfloat16", "operator-in-bfloat16")
FAST = LatencySettings(warm_up_ms=0, least_repeats=6, most_repeats=6, least_ms=0)
SEPARABLE = str(syno.OPERATORS["separable_conv2d"]())


@pytest.fixture(autouse=True)
def faulty_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers that plant faults; and a machine that can do everything, which need not be measured."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    assert tuple(importlib.import_module("planted_faults").FAULTS) == FAULTS
    monkeypatch.setattr("syno.measure.machine.peak", lambda *_, **again: Peak(1e15, 1e15))


def resnet8(size: int, operator: str | None = SEPARABLE, **rest: object) -> NetworkSubject:
    return NetworkSubject.model_validate(
        {"model": "resnet8", "classes": 10, "image_shape": (3, size, size), "operator": operator, **rest}
    )


def measured(subject: AnySubject, compiler: str, folder: Path, batch: int = 1) -> Findings:
    """What the process that measures finds, in this process."""
    settings = FAST.model_copy(update={"batch": batch})
    request = Request(subject=subject, compiler=compiler, device="cpu", settings=settings, folder=folder)
    return findings(request)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_small_fault_is_found(fault: str, tmp_path: Path) -> None:
    found = measured(resnet8(16, None), f"test-fault-{fault}", tmp_path)
    assert found.status == "wrong_output", found.fields
    assert "latency_ms" not in found.fields


@pytest.fixture
def output_checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark of the check."""
    return importlib.import_module("output_checks")


def test_honest_compilers_are_not_accused(tmp_path: Path) -> None:
    for operator in (None, SEPARABLE):
        found = measured(resnet8(16, operator, width=0.5), "eager", tmp_path, batch=2)
        assert (found.status, found.reason) == ("ok", "") and found.fields["checked"]
        assert 0 < found.fields["share_of_allowed"] < 0.5 and 1e-8 < found.fields["rounding_error"] < 1e-5


@pytest.mark.parametrize("model", ["resnet8", "resnet18"])
@pytest.mark.slow
def test_small_faults_are_found_in_residual_networks(
    model: str, output_checks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are and with operators, on pictures of several sizes; one operator times 1.001 is each of them."""
    _, *others = output_checks.PLANTED["resnet18"]
    monkeypatch.setitem(output_checks.PLANTED, "resnet18", ((64,), *others))  # pictures of 224x224 take long
    found = list(output_checks.planted(model))
    assert len({fault for _, fault, *_ in found}) >= 7
    assert [row for row in found if row[-1] <= 3] == []


@pytest.mark.slow(minutes=1.5)
def test_compilers_raise_no_false_alarms(output_checks: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A part of what docs/measured/check.md has."""
    assert output_checks.main(["--operators", "3", "--networks", "1", "--models", ""]) == 0
    assert "## Honest compilations: 14, false alarms: 0" in capsys.readouterr().out
