"""How fast networks train: pictures or tokens in a second, the original against a published operator, and what data costs.

    python benchmarks/training.py --device cpu --batch 16 --steps 6 --output docs/measured/training-cpu.md
    python benchmarks/training.py --device cuda --output docs/measured/training-gpu.md

ResNet-18 with Operator 1 on random pictures as many and as large as CIFAR-100's, cropped, flipped, with holes, and enlarged as
the paper does it; GPT-2 with the published projection on random tokens. Both networks of a row are trained in this one run, in
turns; the ratio of each turn is of two trainings that followed one another, and the table has the median of the turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import reports
import torch
from torch import nn

import syno
from syno.base.errors import SynoError
from syno.data import DataSet, TokenSet
from syno.data.augmentation import Augmentation
from syno.data.settings import RECIPES
from syno.ir.graph import PGraph
from syno.measure.machine import device_name
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.substitution import substitute
from syno.train.optimization import on_device
from syno.train.settings import TrainingSettings
from syno.train.speed import data_seconds, steps_per_second

PICTURES, SIDE, CLASSES = 50_000, 32, 100  # as CIFAR-100
TURNS = 3


class Row(NamedTuple):
    """A network on data of one size.

    Attributes:
        title: of the table's line.
        data: what it is trained on.
        make: makes the network, with the operator or as it is.
        operator: the published one.
        items: pictures or tokens in one step.
    """

    title: str
    data: DataSet | TokenSet
    make: Callable[[PGraph | None], nn.Module]
    operator: PGraph
    items: int


class Speeds(NamedTuple):
    """Items in a second, of both networks, and the share of the original's steps that making their batches takes."""

    original: float
    operator: float
    ratio: float
    data_share: float


def pictures(size: int, count: int) -> DataSet:
    """Random pictures, augmented as in the paper and enlarged to `size`."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    settings = RECIPES["paper"].with_(size=None if size == SIDE else size)
    return DataSet(f"random {size}", images, labels, images[:8], labels[:8], CLASSES, "", Augmentation.of(settings, images))


def tokens(length: int, vocabulary: int, sequences: int) -> TokenSet:
    """Random tokens."""
    drawn = np.random.default_rng(0).integers(vocabulary, size=length * (sequences + 1) + 1).astype(np.uint16)
    return TokenSet("random", drawn, drawn[: 2 * length], vocabulary, length, "")


def picture_row(size: int, batch: int, count: int) -> Row:
    """ResNet-18 on pictures of this size."""
    example = torch.zeros(1, 3, size, size)

    def make(operator: PGraph | None) -> nn.Module:
        model = BACKBONES["resnet18"](classes=CLASSES)
        return model if operator is None else substitute(model, operator, example, where="paper-3x3")

    title = f"ResNet-18, {size}x{size}, Operator 1, pictures/s"
    return Row(title, pictures(size, count), make, syno.OPERATORS["operator_1"](), batch)


def token_row(model: str, length: int, vocabulary: int, sequences: int) -> Row:
    """A language model, a sequence in each step."""
    example = torch.zeros(1, length, dtype=torch.int64)

    def make(operator: PGraph | None) -> nn.Module:
        network = SEQUENCE_BACKBONES[model](vocabulary=vocabulary, context=length)
        return network if operator is None else substitute(network, operator, example, where="paper")

    title = f"{model}, {length} tokens, published projection, tokens/s"
    return Row(title, tokens(length, vocabulary, sequences), make, syno.OPERATORS["gpt2_projection"](), length)


def speeds(row: Row, settings: TrainingSettings, device: torch.device) -> Speeds:
    """Train both networks in turns, after a short warm-up of each."""
    networks = [row.make(operator).to(device) for operator in (None, row.operator)]
    found = steps_per_second(networks, row.data, settings, TURNS)
    original, operator = (row.items * median(turn[place] for turn in found) for place in (0, 1))
    share = data_seconds(row.data, settings, device) * original / row.items
    return Speeds(original, operator, median(new / old for old, new in found), share)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the report; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--device", default="cpu", help="cpu, cuda, or one of several GPUs; default: %(default)s")
    add("--batch", type=int, default=128, help="pictures; default: %(default)s")
    add("--steps", type=int, default=50, help="of each training; default: %(default)s")
    add("--sizes", default="32,224", help="of pictures; default: %(default)s")
    add("--precision", default="float32", help="float32, bfloat16 or float16; default: %(default)s")
    add("--tf32", action="store_true", help="less than full precision in float32's products, on a GPU")
    add("--compile", action="store_true", help="by torch.compile")
    add("--threads", type=int, default=1, help="of the CPU; default: %(default)s")
    add("--language-model", default="gpt2", help="gpt2 or gpt_tiny; none: leave it out; default: %(default)s")
    add("--length", type=int, default=2048, help="tokens of a sequence; default: %(default)s")
    options = reports.parse(parser, arguments)
    command = f"benchmarks/training.py {' '.join(sys.argv[1:] if arguments is None else arguments)}"
    given = {"device": options.device, "precision": options.precision, "tf32": options.tf32, "compile": options.compile}
    common = {**given, "threads": options.threads, "most_steps": options.steps, "epochs": 100, "most_tests": 1}
    lines = reports.heading("Training", command)
    try:
        with on_device(options.device) as device:
            lines += [
                f"- PyTorch {torch.__version__}; device: {device_name(options.device)}; {options.precision}, "
                f"TF32 {'on' if options.tf32 else 'off'}, compiled: {'yes' if options.compile else 'no'}, channels last, "
                f"CPU threads: {options.threads}",
                f"- {options.steps} steps in each of {TURNS} turns, batch {options.batch} (one sequence); random data; both "
                "networks in one run",
                "- data: what making a batch takes with nothing beside it, as a share of the original's step",
                "",
            ]
            count = PICTURES if device.type == "cuda" else max(8 * options.batch, 256)
            rows = [picture_row(int(size), options.batch, count) for size in options.sizes.split(",") if size]
            pairs = [(row, TrainingSettings(**common, batch=options.batch)) for row in rows]
            if options.language_model != "none":
                row = token_row(options.language_model, options.length, 50257, options.steps + 2)
                pairs.append((row, TrainingSettings(recipe="quick-text", **{**common, "batch": 1})))
            cells = []
            for row, settings in pairs:
                found = speeds(row, settings, device)
                shown = [f"{found.original:,.1f}", f"{found.operator:,.1f}", f"{found.ratio:.2f}", f"{found.data_share:.1%}"]
                cells.append([row.title, *shown])
                print(" | ".join(cells[-1]), file=sys.stderr, flush=True)
    except SynoError as error:
        parser.error(str(error))
    lines += reports.table(["network and operator", "original", "with the operator", "ratio", "data"], cells)
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
