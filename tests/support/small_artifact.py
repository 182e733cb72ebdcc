"""A made-up artifact with the folders of the authors': whole, small, with numbers that are easy to follow.

On the target number i (from 1) a network takes 60 * i ms as it is; an operator's times are shares of that.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_once import made_once
from published_dot import published_dot

from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.paper.artifact.places import LANGUAGE_LOG, MACHINES, TARGETS, Target
from syno.paper.numbers import MODELS, NAS_PTE
from syno.paper.places import LAYERS
from syno.paper.stages.artifact import import_artifact
from syno.paper.stages.figures import write_page

SHARES = {"good": 1 / 2, "better": 1 / 3, "poor": 1 / 6}  # of the network's latency
ACCURACIES = {"good": 0.799, "better": 0.785, "poor": 0.70}  # on CIFAR-100: enough in both ResNets, in one, in none
PATHS = {"good": "01_02", "better": "01_03", "poor": "01_04"}  # in the search of the ResNets; "good" is Operator 1
OTHERS = {"densenet121": "02", "resnext29_2x64d": "03", "efficientnet_v2_s": "04"}  # the path of each one's only operator
LOSSES = [(6.0 - 0.001 * step, 1e9 + 2.0 * step) for step in range(1200)]  # 2 seconds a step, so 40 minutes
MEASURED, TOLD = 434, 17  # measurements in all of it; in the paper


def write_artifact(data: Path) -> Path:
    """Write it into `data`; returns the folder."""
    for number, target in enumerate(TARGETS, 1):
        _baselines(data, target, 60.0 * number)
        _operators(data, target, 60.0 * number)
    for machine in MACHINES:
        _searched(data / "vision" / machine / "good-kernels-cifar100")
    _language(data)
    return data


def imported_once(factory: pytest.TempPathFactory) -> Path:
    """Return what an import of it writes, for all processes of pytest. Not to be changed."""
    return made_once(factory, "imported", lambda made: import_artifact(write_artifact(made / "data"), made / "out")) / "out"


def page_once(factory: pytest.TempPathFactory) -> str:
    """Return the page of an import, whose figures take long to draw."""

    def make(folder: Path) -> None:
        write_page(shutil.copytree(imported_once(factory), folder / "out"))

    return (made_once(factory, "published-page", make) / "out" / "report.html").read_text(encoding="utf-8")


def time(file: Path, milliseconds: float) -> None:
    """Write a latency as the compiler's script would have."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".txt":
        file.write_text(f"{milliseconds!r}\n", encoding="utf-8")
    else:
        seconds = milliseconds / 1e3
        text = f'model,x\ninput_shape,"(1, 3, 224, 224)"\nlatency_mean,{seconds!r}\n{seconds!r}\n{seconds!r}\n{seconds!r}\n'
        file.write_text(text, encoding="utf-8")


def meta(folder: Path, path: str, accuracy: float, name: str = "meta.json", **more: Any) -> None:
    """Write the figures beside an operator."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"path": path, "accuracy": accuracy, "flops": 1000, "params": 100, "loss": 0, **more}
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def drawing(folder: Path, graph: PGraph) -> None:
    """Write an operator's graph, and the sizes of two layers."""
    (folder / "kernel_scheduler_dir").mkdir(parents=True, exist_ok=True)
    (folder / "graph.dot").write_text(published_dot(graph, 0), encoding="utf-8")
    shapes = [f"[{', '.join(str(dim.size) for dim in dims)}]" for dims in (graph.input, *graph.weights, graph.output)]
    layers = [_layer(C_in=64, C_out=64, H=56, N=1), _layer(C_in=64, C_out=128, H=28, N=1)]
    content = {
        "inputsShapes": shapes[:-1],
        "outputShape": shapes[-1],
        "validPlaceholders": layers,
        "validPlaceholdersIndices": [0, 1],
    }
    (folder / "kernel_scheduler_dir" / "metadata.json").write_text(json.dumps(content), encoding="utf-8")


def _layer(**values: int) -> dict[str, Any]:
    coefficients = {"g": 32, "k_1": 3, "s": 2}
    listed = [", ".join(f"{name}: {value}" for name, value in group.items()) for group in (values, coefficients)]
    consts = {"primary": list(values.values()), "coefficient": list(coefficients.values())}
    return {
        "constsDescription": f"Primary: {{ {listed[0]} }}, Coefficient {{ {listed[1]} }}",
        "consts": {"unpadded": consts, "padded": consts},
        "flops": 1000,
    }


def _baselines(data: Path, target: Target, whole: float) -> None:
    for model in MODELS:
        time(data / target.network(target.originals, model, is_original=True), whole)
    for layer in LAYERS:
        time(data / target.layer(target.originals, layer, is_original=True), whole / 10)
        for place, sequence in enumerate(NAS_PTE.values()):  # slower than the convolution: by a factor of 2, 3, 4
            time(
                data / target.layer(target.root / "nas-pte" / sequence / "perf" / target.folder, layer),
                whole / 10 * (2 + place),
            )
    if target.compiler == "tvm":
        time(data / target.originals / "qresnet18" / "benchmark_results.csv", whole * 3 / 4)
        stacked = target.root / "manual_kernels/bs1/Conv2d_Conv1d/perf" / target.folder
        time(data / target.network(stacked, "resnet18"), whole * 2 / 3)


def _operators(data: Path, target: Target, whole: float) -> None:
    """Those on ImageNet, with their latencies."""
    around = target.root / "good-kernels-imagenet"
    for model in ("resnet18", "resnet34"):
        for score, (name, path) in enumerate(PATHS.items(), 7000):
            folder = around / model / f"0{score}_9{score}"
            accuracy = {"good": 0.70, "better": 0.69, "poor": 0.0}[name]
            meta(data / folder, path, accuracy, flops=2000 + score)
            time(data / target.network(folder / "perf" / target.folder, model), whole * SHARES[name])
            if model == "resnet34" and name == "good":
                for layer in LAYERS:
                    time(data / target.layer(folder / "perf" / target.folder, layer), whole / 10 / 4)
    for model, path in OTHERS.items():
        folder = around / model / "07500_123"
        meta(data / folder, path, 0.75)
        time(data / target.network(folder / "perf" / target.folder, model), whole * SHARES["better"])


def _searched(around: Path) -> None:
    """Those on CIFAR-100. "good" was trained again, to a better accuracy."""
    for score, (name, path) in enumerate(PATHS.items(), 7800):
        folder = around / "resnet" / f"0{score}_1{score}"
        meta(folder, path, 0.75 if name == "good" else ACCURACIES[name])
        if name == "good":
            meta(folder, path, ACCURACIES[name], "meta_new.json", flops=1500)
            drawing(folder, OPERATORS["operator_1"]())
    for model, path in OTHERS.items():
        meta(around / model / "07800_123456", path, 0.80)


def _language(data: Path) -> None:
    meta(data / "gpt2/good_kernels_lm1b/05675_1", "05_06", 0.0, loss=5.67, flops=5000)
    (data / LANGUAGE_LOG).parent.mkdir(parents=True)
    (data / LANGUAGE_LOG).write_text(str(LOSSES), encoding="utf-8")
