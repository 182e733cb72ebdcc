"""The benchmark of native kernels: a row, a run that goes on, what failed, and what is said to limit a kernel."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from syno.measure.machine import Peak

ROOT = Path(__file__).parents[2]
PEAK = Peak(1e11, 2e11, ((2**20, 2e11),))


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with one small layer, few rounds, no operators but the library's, and a peak that takes no time."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delenv("SYNO_ARTIFACT", raising=False)
    program = importlib.import_module("native")
    monkeypatch.setattr(program, "LAYERS", ((16, 7, 1),))
    monkeypatch.setattr(program, "ROUNDS", program.LatencySettings(warm_up_ms=0, least_repeats=6))
    monkeypatch.setattr(program, "peak", lambda *_: PEAK)
    return program


def arguments(records: Path) -> list[str]:
    return [
        "--records",
        str(records),
        "--drawn",
        "0",
        "--quick",
        "--only",
        "separable_conv2d",
        "--output",
        str(records / "page"),
    ]


@pytest.mark.slow
def test_a_row_is_measured_once(native: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.main(arguments(tmp_path)) == 0
    monkeypatch.setattr(native, "_row", lambda *_: pytest.fail("it is measured again"))
    assert native.main(arguments(tmp_path)) == 0
    page = (tmp_path / "page").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| separable_conv2d")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "16, 7x7, batch 1" and cells[4] == cells[6] == "–"
    times = [float(cells[place]) for place in (3, 5, 8)]
    assert min(times) > 0 and float(cells[9]) == pytest.approx(49 * 16 * (9 + 16) / times[0] / 1e6, rel=0.1)
    assert "## Summary of 1 rows of 1" in page


def test_what_failed_is_said(native: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("there is no such thing")

    monkeypatch.setattr(native, "kernel_for", fail)
    assert native.main(arguments(tmp_path)) == 1
    assert json.loads((tmp_path / native.QUICK_ROWS).read_text().splitlines()[-1])["failure"].startswith("RuntimeError")
    (kept,) = (tmp_path / native.FAILURES).iterdir()
    assert "there is no such thing" in kept.read_text() and "operator separable_conv2d" in kept.read_text()


def test_a_row_that_ended_the_process_is_not_started_for_ever(native: ModuleType, tmp_path: Path) -> None:
    case = native._chosen(native.argparse.Namespace(records=tmp_path, drawn=0, seed=0, only="separable_conv2d", count=1))[0]
    begun = json.dumps({"key": case.key, "threads": 1, "begun": True})
    (tmp_path / native.QUICK_ROWS).write_text(f"{begun}\n{begun}\n")
    assert native.main(arguments(tmp_path)) == 1
    assert "the process ended in this row, 2 times" in (tmp_path / "page").read_text()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ms": {"native": 0.1, "convolution, eager": 1.0}}, ""),  # as many multiply-adds per second
        ({}, "not known"),
        ({"limit": (0.1, 0.9)}, "bandwidth"),
        ({"kernel": {"vector_use": 0.5}}, "tiny axes (50 % of the lanes used)"),
        ({"kernel": {"products": 9.0}}, "short sums (9)"),
        ({"kernel": {"loads": 1.5}}, "registers (1.5 loads a product)"),
    ],
)
def test_what_limits_a_kernel(native: ModuleType, changes: dict[str, Any], said: str) -> None:
    kernel = {"vector_use": 1.0, "products": 100.0, "loads": 0.7, "scratch": 1024}
    row = {
        "multiply_adds": 10**6, "convolution_multiply_adds": 10**7, "bytes": 4 * 10**4, "limit": (0.1, 0.1),
        "ms": {"native": 1.0, "convolution, eager": 1.0},
    }  # fmt: skip
    assert native.limit({**row, "kernel": {**kernel, **changes.pop("kernel", {})}, **changes}) == said


def test_a_page_of_networks_compares_with_the_faster_original(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    program = importlib.import_module("native_networks")
    table = program.OperatorTable.read()
    first, second = program.best(table, 2)
    assert first.accuracy() >= second.accuracy() and max(first.flops, second.flops) <= 0.2 * table.original.flops
    both = {"inductor": 4.0, "native": 8.0}
    rows = [
        program.Row(
            operator=entry.id, flops=0.1, accuracy=0.9, original_ms=both, latency_ms={"inductor": 2.0, "native": 4.0 / speedup},
            speedup=speedup, low=speedup, high=speedup, seconds=both, cpu_seconds=both, kernels=12, layers=13, error=1e-7,
        )
        for entry, speedup in ((first, 2.0), (second, 8.0))
    ]  # fmt: skip
    text = " ".join(program.page(table, rows, 1))
    assert "95 % interval: 4.00 (0.00 to 26" in text and "with TorchInductor 2.00 (2.00 to 2.00)" in text
    assert "inductor 4.0 CPU-seconds, 4.0 s; native 8.0 CPU-seconds, 8.0 s" in text
