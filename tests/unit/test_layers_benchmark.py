"""The benchmark of ResNet-34's layers: what is measured, what is not measured again, and the paper's figures beside it."""

from __future__ import annotations

import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from syno.measure.tuning_record import Device, TuningRecord

ROOT = Path(__file__).parents[2]
PUBLISHED = {"baseline-latency": 4.0, "nas-pte/seq_3": 8.0, "good-kernels-imagenet/resnet34/found": 1.0}  # milliseconds


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("layers")


@pytest.fixture
def measured(layers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was measured: convolutions take 2 ms, NAS-PTE fails, all else takes 0.5 ms."""
    subjects: list[Any] = []

    def tune(subject: Any, compiler: str, device: str, settings: Any, **limits: Any) -> TuningRecord:
        subjects.append(subject)
        fails = subject.title.startswith("nas_pte")
        return TuningRecord(
            name=subject.title,
            operator_id=None if subject.graph is None else subject.graph.id,
            subject=subject,
            compiler=compiler,
            device=Device(kind=device, name="a processor", threads=settings.threads),
            settings=settings,
            status="failed" if fails else "ok",
            reason="compiling: it is too hard" if fails else "",
            latency_ms=None if fails else 2.0 if subject.operator is None else 0.5,
            versions={"torch": "9.9"},
            date=datetime(2030, 1, 1, tzinfo=UTC),
        )

    monkeypatch.setattr(layers.records, "tune", tune)
    return subjects


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """A folder as the paper's artifact has it, with latencies of one layer under two compilers."""
    root = tmp_path / "artifact"
    machine = root / "vision" / "mdev"
    for folder, latency in PUBLISHED.items():
        baseline = folder == "baseline-latency"
        for kind in ("llvm", "inductor-cpu"):
            place = machine / folder / ("" if baseline else "perf") / kind / "resnet34layers"
            table = place / "conv_i64_o128-N=1" / "benchmark_results.csv"
            table.parent.mkdir(parents=True)
            if kind == "llvm":
                table.write_text(f'input_shape,"(1, 64, 28, 28)"\nlatency_mean,{latency / 1e3}\n0.5\n', encoding="utf-8")
            else:
                file = place / f"conv_i64_o128-N=1{'-orig' if baseline else ''}.txt"
                file.write_text(f"{2 * latency if baseline else latency}", encoding="utf-8")
    meta = {"original_dir": "results/pareto_kernels/07889_15252107013978896537"}
    (machine / "good-kernels-imagenet/resnet34/found/meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return root


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| L")]


def test_a_report_with_the_papers_speedups(
    layers: ModuleType, measured: list[Any], artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--compilers", "inductor", "--layers", "L7,L31", "--operators", "nas_pte_sequence_3,operator_1"]
    arguments = [*chosen, "--records", str(tmp_path / "records"), "--artifact", str(artifact)]
    assert layers.main([*arguments, "--output", str(tmp_path / "report.md")]) == 1  # one could not be measured
    assert [(subject.layer, subject.title) for subject in measured] == [
        ("layer2.0.conv1", "original"), ("layer2.0.conv1", "nas_pte_sequence_3"), ("layer2.0.conv1", "operator_1"),
        ("layer4.0.downsample.0", "original"), ("layer4.0.downsample.0", "operator_1"),
    ]  # fmt: skip
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert rows(report) == [
        ["L7", "conv_i64_o128", "64->128 28x28", "2", "–; paper 1.00x", "0.5 (4.00x); paper 8.00x"],
        ["L31", "residual_i256_o512", "256->512 7x7", "2", "–", "0.5 (4.00x)"],
    ]
    assert "- L7 nas_pte_sequence_3, inductor: failed: compiling: it is too hard" in report
    assert "- L31: nas_pte_sequence_3 does not fit layer Conv2d (N=1, C_in=256, C_out=512, H=7)" in report
    assert "on a processor, 1 thread, batch 1" in report and "torch 9.9" in report

    assert layers.main(arguments) == 1 and len(measured) == 5  # all from records
    assert rows(capsys.readouterr().out)[-2:] == rows(report)


def test_records_of_another_run_are_not_taken(
    layers: ModuleType, measured: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--compilers", "eager", "--layers", "L1", "--operators", "operator_2", "--records", str(tmp_path)]
    assert layers.main(arguments) == 0
    with pytest.raises(SystemExit) as ended:
        layers.main([*arguments, "--threads", "2"])
    assert ended.value.code == 2 and "L1-conv-eager-cpu.json is of another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--layers", "L2"], 'no layer "L2"; there are: L1, L7, L8, L9, L16, L17, L18, L29, L30, L31'),
        (["--operators", "conv2d"], 'no operator "conv2d" here; there are: nas_pte_sequence_1'),
        (["--compilers", "gcc"], 'unknown compiler "gcc"'),
    ],
)
def test_wrong_choices_are_errors(
    layers: ModuleType, measured: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        layers.main(["--records", str(tmp_path), *wrong])
    assert ended.value.code == 2 and message in capsys.readouterr().err and not measured


def test_speedups_in_either_format(layers: ModuleType, artifact: Path) -> None:
    def speedup(compiler: str, operator: str, layer: str = "conv_i64_o128", kind: str = "cpu") -> float | None:
        found: float | None = layers.published_speedup(artifact, kind, compiler, operator, layer)
        return found

    assert speedup("tvm", "operator_1") == pytest.approx(4.0) and speedup("tvm", "nas_pte_sequence_3") == pytest.approx(0.5)
    for nothing in (
        speedup("eager", "operator_1"),
        speedup("tvm", "operator_2"),
        speedup("tvm", "operator_1", "conv_io64"),
        speedup("tvm", "operator_1", kind="cuda"),
    ):
        assert nothing is None


def test_the_record_of_a_layer(layers: ModuleType) -> None:
    """The layer by itself, with the pooling that stands for its stride, on the picture that it gets in the network."""
    (cell,) = [
        layers.Cell(one, "operator_1", "eager")
        for one in layers.distinct_layers(layers.BACKBONES["resnet34"](classes=5), layers.torch.zeros(1, *layers.IMAGE))
        if one.position == 31
    ]
    material = cell.subject.make("cpu", 1)
    (x,) = material.make_inputs()
    assert tuple(x.shape) == (1, 256, 14, 14) and tuple(material.module(x).shape) == (1, 512, 7, 7)
    assert material.parameters == 512 * 32 * 9 * 8 + 256 * 3 * 8
    assert cell.misfit is None
