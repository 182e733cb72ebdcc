"""The benchmark of ResNet-34's layers: what is measured, what is not measured again, and the paper's figures beside it."""

from __future__ import annotations

import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from syno.ir.library import OPERATORS
from syno.measure.layers_record import LayersRecord, MeasuredLayer
from syno.measure.network_subject import NetworkSubject
from syno.measure.tuning_record import Device, TuningRecord

ROOT = Path(__file__).parents[2]
COMPILER = "inductor-max-autotune"  # which the paper's numbers of TorchInductor are with
PUBLISHED = {"baseline-latency": 4.0, "nas-pte/seq_3": 8.0, "good-kernels-imagenet/resnet34/found": 1.0}  # milliseconds


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("layers")


def record(operator: str | None, place: str, **changes: Any) -> TuningRecord:
    """A measurement of a layer: convolutions take 2 ms, all else 0.5 ms."""
    names = {"model": "resnet34", "classes": 5, "image_shape": (3, 224, 224), "layers": "paper", "layer": place}
    subject = NetworkSubject(**names, operator=operator)
    found = subject.replacement
    return TuningRecord(**{
        "name": subject.title, "operator_id": None if found is None else found.id, "subject": subject, "compiler": COMPILER,
        "device": Device(kind="cpu", name="a processor", threads=1), "settings": {}, "status": "ok",
        "latency_ms": 2.0 if found is None else 0.5, "versions": {"torch": "9.9"}, "date": datetime(2030, 1, 1, tzinfo=UTC),
        **changes,
    })  # fmt: skip


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A folder with records of two layers: NAS-PTE's sequence 3 fails in one and does not fit the other."""
    broken = [
        {"status": "failed", "reason": "compiling: it is too hard", "latency_ms": None},
        {"status": "misfit", "reason": "it is too small", "latency_ms": None},
    ]
    for operator, changes in ((None, [{}, {}]), ("module nas_pte_3", broken), (str(OPERATORS["operator_1"]()), [{}, {}])):
        layers = [
            MeasuredLayer(name="conv_i64_o128", position=7, record=record(operator, "layer2.0.conv1", **changes[0])),
            MeasuredLayer(
                name="residual_i256_o512", position=31, record=record(operator, "layer4.0.downsample.0", **changes[1])
            ),
        ]
        first = layers[0].record
        made = LayersRecord(name=first.name, operator_id=first.operator_id, compiler=COMPILER, layers=tuple(layers))
        made.write(tmp_path / "small" / "layers" / first.name / f"{COMPILER}-cpu.json")
    return tmp_path / "small"


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


def test_the_page_has_the_papers_speedups(layers: ModuleType, measured: Path, artifact: Path, tmp_path: Path) -> None:
    arguments = [str(measured), "--artifact", str(artifact), "--output", str(tmp_path / "page.md")]
    assert layers.main(arguments) == 1  # one could not be measured
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert rows(page) == [
        ["L7", "conv_i64_o128", "2", "–; paper 1.00x", "0.5 (4.00x); paper 8.00x"],
        ["L31", "residual_i256_o512", "2", "–", "0.5 (4.00x)"],
    ]
    assert "| layer | name | original | nas_pte_3 | operator_1 |" in page and "## inductor-max-autotune on cpu" in page
    assert "- L7 nas_pte_3, inductor-max-autotune: failed: compiling: it is too hard" in page
    assert "- L31 nas_pte_3, inductor-max-autotune: misfit: it is too small" in page
    assert "on a processor, 1 thread, batch 1" in page and "torch 9.9" in page


def test_without_records_the_command_is_named(layers: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        layers.main([str(tmp_path)])
    assert ended.value.code == 2 and "has no record of layers; `syno tune layers` writes them" in capsys.readouterr().err


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


@pytest.mark.slow
def test_a_layer_by_itself_has_its_picture_and_pooling() -> None:
    """The layer by itself, with the pooling that stands for its stride, on the picture that it gets in the network."""
    material = record(str(OPERATORS["operator_1"]()), "layer4.0.downsample.0").subject.make("cpu", 1)
    (x,) = material.make_inputs()
    assert tuple(x.shape) == (1, 256, 14, 14) and tuple(material.module(x).shape) == (1, 512, 7, 7)
    assert material.parameters == 512 * 32 * 9 * 8 + 256 * 3 * 8
