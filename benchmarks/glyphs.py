"""What known operators reach in place of ResNet-8's 3x3 convolutions on the glyph pictures.

python benchmarks/glyphs.py --seeds 0 1 2 --output docs/measured/glyphs.md
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import mean, stdev

import reports
import torch

import syno
from syno.data import DATASETS, DataSet
from syno.ir.graph import PGraph
from syno.model.backbones import BACKBONES
from syno.model.counting import model_cost
from syno.model.substitution import substitute
from syno.train.progress import TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.training import train

GROUPS = {"grouped_conv2d": 4, "operator_1": 4, "operator_2": 4, "stacked_convolution": 4}  # their defaults exceed 16 features
CONV1X3 = "conv1x3"  # no known operator: it looks along rows only
OPERATORS = ["conv2d", "grouped_conv2d", "separable_conv2d", CONV1X3, "shift_conv1x1", "conv1x1"]


def conv1x3() -> PGraph:
    """y[n, o, h, v] = sum over c, j of x[n, c, h, v + j - k//2] * w1[o, c, j]."""
    build = syno.Builder("N, C_in, C_out, H; k=3", name=CONV1X3)
    n, o, y, x = build.output("N, C_out, H, H")
    c, j = build.contract(outer=[o], inner=build.reduce("C_in, k"))
    return build.finish([n, c, y, build.unfold(x, j)])


def operator(name: str) -> PGraph:
    """A known operator, in as many groups as small layers have room for."""
    if name == CONV1X3:
        return conv1x3()
    graph = syno.OPERATORS[name]()
    return graph.renamed(name, g=GROUPS[name]) if name in GROUPS else graph


def trained(name: str, data: DataSet, seed: int, width: float) -> TrainingResult:
    """The network with this operator, its weights and the order of pictures drawn from the seed, trained."""
    model = BACKBONES["resnet8"](classes=data.classes, width=width, seed=seed)
    model = substitute(model, operator(name), data.train_images[:1], seed=seed)
    result = train(model, data, TrainingSettings(), seed=seed)
    accuracies = " ".join(f"{accuracy:.4f}" for accuracy in result.scores)
    print(f"{name}, seed {seed}: {accuracies}; {result.cpu_seconds:.1f} CPU-seconds", file=sys.stderr)
    return result


def row(name: str, data: DataSet, seeds: Sequence[int], width: float) -> list[str]:
    """The operator's line of the table."""
    results = [trained(name, data, seed, width) for seed in seeds]
    accuracies = [result.score for result in results]
    example = data.train_images[:1]
    cost = model_cost(substitute(BACKBONES["resnet8"](classes=data.classes, width=width), operator(name), example), example)
    return [
        f"{name}, g={GROUPS[name]}" if name in GROUPS else name,
        f"{mean(accuracies):.4f}",
        f"{stdev(accuracies):.4f}" if len(accuracies) > 1 else "–",
        f"{min(accuracies):.4f}..{max(accuracies):.4f}",
        f"{mean(result.scores[1] if len(result.scores) > 1 else 0.0 for result in results):.4f}",
        f"{mean(result.cpu_seconds for result in results):.1f}",
        f"{cost.flops:,.0f}",
        f"{cost.parameters:,.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print, and write the report if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="quick", help="of the pictures: micro, quick or glyph100")
    parser.add_argument("--operators", nargs="+", default=OPERATORS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--width", type=float, default=1.0, help="multiplies the 16, 32 and 64 features")
    options = reports.parse(parser, arguments)
    torch.set_num_threads(1)
    data = DATASETS["glyphs"](preset=options.preset)
    command = (
        f"benchmarks/glyphs.py --preset {options.preset} --operators {' '.join(options.operators)} "
        f"--seeds {' '.join(map(str, options.seeds))} --width {options.width:g}"
    )
    lines = reports.heading(f"Operators in ResNet-8 on the {data.name}", command)
    rows = [row(name, data, options.seeds, options.width) for name in options.operators]
    settings = TrainingSettings()
    lines += [
        f"- torch {torch.__version__}, 1 thread; load average at the end {os.getloadavg()[0]:.2f}",
        f"- Data: {data.name}, {len(data.train_labels)} pictures to train on, {len(data.test_labels)} to test on, "
        f"{data.classes} classes, hash {data.hash}",
        f"- Training: {settings!r}",
        f"- {len(options.seeds)} seeds, each of weights and of the order of pictures; the pictures are the same. Accuracy is "
        f"that after the last epoch, chance is {1 / data.classes:.4f}. CPU-seconds are those of one training. FLOPs (one "
        "multiply-add is one) and parameters are those of the whole network, for one picture.",
        "",
    ]
    columns = ["operator", "accuracy", "std. dev.", "range", "after epoch 2", "CPU-seconds", "FLOPs", "parameters"]
    lines += reports.table(columns, rows)
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
