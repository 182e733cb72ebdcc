"""The benchmark of whole networks: what is measured, in which order, and what the table says of it."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from syno.measure.tuning_record import Device, TaskResult, TuningRecord, TuningSummary

ROOT = Path(__file__).parents[2]
TASKS = (TaskResult(name="conv", calls=1, trials=4, measured=4, best_ms=1.0),)


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("networks")


@pytest.fixture
def measured(networks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was measured: the original takes 8 ms, with an operator 2 ms; with TVM it is 30 ms before tuning."""
    subjects: list[Any] = []

    def tune(subject: Any, compiler: str, device: str, settings: Any, *, tvm: Any = None, **rest: Any) -> TuningRecord:
        subjects.append((subject.image_shape[1], subject.title, compiler))
        latency = 8.0 if subject.operator is None else 2.0
        return TuningRecord(
            name=subject.title,
            operator_id=None if subject.graph is None else subject.graph.id,
            subject=subject,
            compiler=compiler,
            device=Device(kind=device, name="a processor", threads=settings.threads),
            settings=settings,
            status="ok",
            latency_ms=latency,
            latency_low_ms=latency - 1,
            latency_high_ms=latency + 1,
            flops=1000,
            parameters=10,
            tuning=None if tvm is None else TuningSummary.of(list(TASKS), {"kind": "llvm"}, tvm.trials_per_task, 60.0, 30.0),
            versions={"torch": "9.9"},
            date=datetime(2030, 1, 1, tzinfo=UTC),
        )

    monkeypatch.setattr(networks.records, "tune", tune)
    return subjects


def test_the_report_has_latencies_and_speedups_of_each_compiler(
    networks: ModuleType, measured: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--sizes", "32", "--compilers", "eager,tvm", "--trials", "4", "--records", str(tmp_path)]
    assert networks.main(arguments) == 0
    assert measured == [(32, name, compiler) for name in ("original", "operator_1") for compiler in ("eager", "tvm")]
    report = capsys.readouterr().out
    assert [line for line in report.splitlines() if line.startswith("| ")] == [
        "| network | operator | FLOPs | parameters | eager | tvm | tvm, untuned |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        "| resnet18, 32x32 | original | 1,000 | 10 | 8 [7, 9] | 8 [7, 9] | 30 |",
        "| resnet18, 32x32 | operator_1 | 1,000 | 10 | 2 [1, 3] (4.00x) | 2 [1, 3] (4.00x) | 30 |",
    ]
    assert "- TVM: 4 trials of each task, 8 together, 2 minutes; target {'kind': 'llvm'}" in report

    assert networks.main(arguments) == 0 and len(measured) == 4  # all from records
