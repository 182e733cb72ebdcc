"""How fast networks train: pictures or tokens in a second, the original against a published operator, and what data costs.

    python benchmarks/training.py --device cpu --batch 16 --steps 6 --output docs/measured/training-cpu.md
    python benchmarks/training.py --device cuda --output docs/measured/training-gpu.md

ResNet-18 with Operator 1 on random pictures as many and as large as CIFAR-100's, cropped, flipped, with holes, and enlarged as
the paper does it; GPT-2 with the published projection on random tokens; with `--files`, ResNet-18 on JPEG files, by FFCV if it
is installed. Both networks of a row are trained in this one run, in turns; the ratio of each turn is of two
trainings that followed one another, and the table has the median of the turns. `--results` also writes the rows as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import picture_files
import reports
import torch
from torch import nn

import syno
from syno.base.errors import SynoError
from syno.base.files import write_whole
from syno.data import DataSet, TokenSet
from syno.data.contract import PictureData
from syno.data.pictures import Augmentation
from syno.data.settings import RECIPES
from syno.ir.graph import PGraph
from syno.measure.machine import device_name
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.substitution import substitute
from syno.train.numerics import on_device
from syno.train.progress import TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.speed_record import data_seconds, steps_per_second

PICTURES, SIDE, CLASSES = 50_000, 32, 100  # as CIFAR-100
COLUMNS = ("network and operator", "original", "with the operator", "ratio", "data", "waiting", "host/MiB")


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
    data: PictureData | TokenSet
    make: Callable[[PGraph | None], nn.Module]
    operator: PGraph
    items: int


class Speeds(NamedTuple):
    """Items in a second, of both networks, two shares of the original's steps, and memory.

    Attributes:
        data_share: making a batch with nothing beside it, as a share of a step.
        waiting: the time in which the training asked for a batch, and had none yet.
        host_mib: memory of the machine: the most that the processes of the run have had by then, added up.
    """

    original: float
    operator: float
    ratio: float
    data_share: float
    waiting: float
    host_mib: float

    @property
    def cells(self) -> list[str]:
        shares = [f"{self.data_share:.1%}", f"{self.waiting:.1%}"]
        return [f"{self.original:,.1f}", f"{self.operator:,.1f}", f"{self.ratio:.2f}", *shares, f"{self.host_mib:,.0f}"]


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


def picture_row(data: PictureData, batch: int, kind: str = "") -> Row:
    """ResNet-18 on these pictures."""
    example = torch.zeros(1, *data.image_shape)

    def make(operator: PGraph | None) -> nn.Module:
        model = BACKBONES["resnet18"](classes=data.classes)
        return model if operator is None else substitute(model, operator, example, where="paper-3x3")

    size = data.image_shape[-1]
    title = f"ResNet-18, {size}x{size}{kind}, Operator 1, pictures/s"
    return Row(title, data, make, syno.OPERATORS["operator_1"](), batch)


def token_row(model: str, length: int, vocabulary: int, sequences: int) -> Row:
    """A language model, a sequence in each step."""
    example = torch.zeros(1, length, dtype=torch.int64)

    def make(operator: PGraph | None) -> nn.Module:
        network = SEQUENCE_BACKBONES[model](vocabulary=vocabulary, context=length)
        return network if operator is None else substitute(network, operator, example, where="paper")

    title = f"{model}, {length} tokens, published projection, tokens/s"
    return Row(title, tokens(length, vocabulary, sequences), make, syno.OPERATORS["gpt2_projection"](), length)


def speeds(row: Row, settings: TrainingSettings, device: torch.device, turns: int) -> Speeds:
    """Train both networks in turns, after a short warm-up of each."""
    networks = [row.make(operator).to(device) for operator in (None, row.operator)]
    results: list[TrainingResult] = []
    found = steps_per_second(networks, row.data, settings, turns, results=results)
    original, operator = (row.items * median(turn[place] for turn in found) for place in (0, 1))
    share = data_seconds(row.data, settings, device) * original / row.items
    waiting = [result.data_seconds / result.step_seconds for result in results[::2]]  # of the original
    return Speeds(original, operator, median(new / old for old, new in found), share, median(waiting), host_mib())


def host_mib() -> float:
    """The most memory that this process and those that it has started, such as TorchInductor's, have had, added up."""
    waiting, kibibytes = [os.getpid()], 0
    while waiting:
        with suppress(OSError):  # it has ended
            place = Path(f"/proc/{waiting.pop()}")
            kibibytes += sum(map(int, re.findall(r"VmHWM:\s+(\d+)", (place / "status").read_text(encoding="utf-8"))))
            waiting += [int(child) for file in place.glob("task/*/children") for child in file.read_text().split()]
    return kibibytes / 1024


def rows_of(options: argparse.Namespace, device: torch.device, files: Path) -> list[tuple[Row, TrainingSettings]]:
    """The rows that were asked for, each with the settings of its trainings; `files` is a folder for pictures."""
    given = {"device": options.device, "precision": options.precision, "tf32": options.tf32, "compile": options.compile}
    common = {**given, "threads": options.threads, "most_steps": options.steps, "epochs": 100, "most_tests": 1}
    count = PICTURES if device.type == "cuda" else max(8 * options.batch, 256)
    rows = [picture_row(pictures(int(size), count), options.batch) for size in options.sizes.split(",") if size]
    if options.files:
        data = picture_files.read(picture_files.write(files, options.files), options.workers)
        rows.append(picture_row(data, options.batch, f" from {data.name.partition(', ')[2]}"))
    pairs = [(row, TrainingSettings(**common, batch=options.batch)) for row in rows]
    if options.language_model != "none":
        row = token_row(options.language_model, options.length, 50257, options.steps + 2)
        pairs.append((row, TrainingSettings(recipe="quick-text", **{**common, "batch": 1})))
    return pairs


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the report; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--device", default="cpu", help="cpu, cuda, or one of several GPUs; default: %(default)s")
    add("--batch", type=int, default=128, help="pictures; default: %(default)s")
    add("--steps", type=int, default=50, help="of each training; default: %(default)s")
    add("--turns", type=int, default=3, help="in each of which both networks are trained; default: %(default)s")
    add("--sizes", default="32,224", help="of pictures, or nothing; default: %(default)s")
    add("--files", type=int, default=0, help="JPEG files that are written and read, or 0; default: %(default)s")
    add("--workers", type=int, default=4, help="that read files; default: %(default)s")
    add("--precision", default="float32", help="float32, bfloat16 or float16; default: %(default)s")
    add("--tf32", action="store_true", help="less than full precision in float32's products, on a GPU")
    add("--compile", action="store_true", help="by torch.compile")
    add("--threads", type=int, default=1, help="of the CPU; default: %(default)s")
    add("--language-model", default="gpt2", help="gpt2 or gpt_tiny; none: leave it out; default: %(default)s")
    add("--length", type=int, default=2048, help="tokens of a sequence; default: %(default)s")
    add("--results", type=Path, help="a file for the rows as JSON")
    options = reports.parse(parser, arguments)
    command = f"benchmarks/training.py {' '.join(sys.argv[1:] if arguments is None else arguments)}"
    lines = reports.heading("Training", command)
    found: dict[str, Speeds] = {}
    try:
        with on_device(options.device) as device, tempfile.TemporaryDirectory(prefix="syno-pictures-") as files:
            lines += [
                f"- PyTorch {torch.__version__}; device: {device_name(options.device)}; {options.precision}, "
                f"TF32 {'on' if options.tf32 else 'off'}, compiled: {'yes' if options.compile else 'no'}, channels last, "
                f"CPU threads: {options.threads}",
                f"- {options.steps} steps in each of {options.turns} turns, batch {options.batch} (one sequence); random data; "
                "both networks in one run",
                "- data: what making a batch takes with nothing beside it, as a share of the original's step; waiting: the "
                "share of the original's training in which it asked for a batch; host: memory of the machine, of all processes",
                "",
            ]
            for row, settings in rows_of(options, device, Path(files)):
                found[row.title] = speeds(row, settings, device, options.turns)
                print(" | ".join([row.title, *found[row.title].cells]), file=sys.stderr, flush=True)
    except SynoError as error:
        parser.error(str(error))
    if options.results:
        write_whole(options.results, json.dumps({title: one._asdict() for title, one in found.items()}, indent=1) + "\n")
    lines += reports.table(COLUMNS, [[title, *one.cells] for title, one in found.items()])
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
