"""Training on the device: number formats, compiled, resumed, without waiting, and what an exhausted memory says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from on_gpu import OnGpu
from torch import nn

import syno
from syno.base.errors import DeviceError, TrainingError
from syno.data import DATASETS, DataSet, TokenSet
from syno.data.beton import convert
from syno.data.contract import Share
from syno.data.image_folder import DEVIATION, MEAN
from syno.data.pictures import Augmentation
from syno.data.settings import RECIPES
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.substitution import substitute
from syno.train.micro_batches import add_gradients, chosen
from syno.train.numerics import on_device, own_state
from syno.train.processes import ALONE, Processes, together
from syno.train.progress import TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.tasks import Task, task_of
from syno.train.training import train

STEPS = 3
GIB = 2**30
GREY = 20  # steps of brightness between pictures
HOLDS = """  # all memory of a GPU but some bytes, until its input ends
import sys, torch
device, left = sys.argv[1], int(sys.argv[2])
torch.zeros(1, device=device)  # PyTorch itself takes memory, too
held = torch.empty(max(0, torch.cuda.mem_get_info(device)[0] - left), dtype=torch.uint8, device=device)
print("held", flush=True)
sys.stdin.read()
"""


def glyphs(train: int = 256) -> DataSet:
    made: DataSet = DATASETS["glyphs"](preset="micro", train=train, test=64)
    return made


def pictures() -> DataSet:
    """Random ones, cropped, flipped and with holes, as for CIFAR-100."""
    images = torch.randint(256, (512, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(512) % 10
    settings = RECIPES["paper"].with_(size=None)
    return DataSet("random", images, labels, images[:8], labels[:8], 10, "", Augmentation.of(settings, images))


def tokens() -> TokenSet:
    drawn = torch.randint(256, (2049,), generator=torch.Generator().manual_seed(0)).numpy().astype("uint16")
    return TokenSet("random", drawn, drawn[:129], 256, 64, "")


def resnet8(classes: int) -> nn.Module:
    """With separable convolutions in place of its own."""
    network = BACKBONES["resnet8"](classes=classes, width=0.25, seed=0)
    changed: nn.Module = substitute(network, syno.OPERATORS["separable_conv2d"](), torch.zeros(1, 3, 16, 16), seed=0)
    return changed


class Killed(nn.Module):
    """A network that kills its process at one of its calls in training; at none, if that is 0."""

    def __init__(self, network: nn.Module, call: int) -> None:
        super().__init__()
        self.network, self.call, self.calls = network, call, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        if self.training and self.calls == self.call:
            os.kill(os.getpid(), signal.SIGKILL)
        output: torch.Tensor = self.network(x)
        return output


def trained_by(processes: Processes, device: str, checkpoint: Path, killed_at: int = 0) -> TrainingResult:
    """Four steps. Of several processes, the second one is killed."""
    data = glyphs(64)
    settings = TrainingSettings(device=device, epochs=2, batch=32, processes=processes.count)
    network = Killed(resnet8(data.classes), killed_at if processes.number == 1 else 0).to(device)
    return train(network, data, settings, checkpoint=checkpoint, checkpoint_seconds=0, processes=processes)


def write_grey_pictures(folder: Path, count: int) -> None:
    """Beton files of pictures that are grey all over, each of a class of its own."""
    from PIL import Image

    for split in ("train", "val"):
        for number in range(count):
            file = folder / split / f"n{number:02}" / "one.JPEG"
            file.parent.mkdir(parents=True)
            Image.new("RGB", (48, 40), (GREY * number,) * 3).save(file, quality=95)
        convert(folder / split, folder / f"{split}.beton", workers=1)


@contextmanager
def short_of_memory(device: str, left: int) -> Iterator[None]:
    """Let another process hold all free memory of a GPU but so many bytes."""
    command = [sys.executable, "-c", HOLDS, device, str(left)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        if other.stdout.readline() != "held\n":
            raise RuntimeError("another process could not hold the memory of the GPU")
        yield


class Training(OnGpu):
    def trained(self, network: nn.Module, data: Any, **settings: Any) -> TrainingResult:
        chosen = TrainingSettings(**{"device": self.device, "epochs": 9, "most_steps": STEPS, "batch": 32, **settings})
        return train(network.to(self.device), data, chosen, seed=0)

    def losses(self, **settings: Any) -> tuple[float, ...]:
        data = glyphs()
        result = self.trained(resnet8(data.classes), data, **{"round_steps": 3, **settings})
        self.assertIsNone(result.stopped)
        return result.losses

    def test_the_loss_falls(self) -> None:
        losses = self.losses(most_steps=60, round_steps=15)
        self.assertLess(losses[-1], 0.9 * losses[0])

    def test_the_first_losses_are_those_of_the_cpu(self) -> None:
        data = glyphs()
        settings = TrainingSettings(most_steps=3, round_steps=1, batch=32)
        expected = train(resnet8(data.classes), data, settings, seed=0).losses
        found = self.losses(most_steps=3, round_steps=1)
        for one, other in zip(found, expected, strict=True):
            self.assertLess(abs(one - other), 1e-3 * other)

    def test_16_bits_and_tf32(self) -> None:
        """Gradients of float16 are scaled; a step whose gradients overflow is left out."""
        exact = self.losses()
        for settings in ({"precision": "bfloat16"}, {"precision": "float16"}, {"tf32": True}):
            with self.subTest(**settings):
                self.assertLess(abs(self.losses(**settings)[0] - exact[0]), 0.05 * exact[0])

    def test_channels_last_or_not(self) -> None:
        one, other = self.losses(channels_last=True), self.losses(channels_last=False)
        self.assertLess(abs(one[0] - other[0]), 1e-3 * one[0])

    def test_measuring_memory_for_micro_batches_leaves_the_training_as_it_was(self) -> None:
        """All fits here, so that the whole batch is taken."""
        losses = self.losses(batch=128, most_steps=4, round_steps=2)
        for one, other in zip(losses, self.losses(batch=128, micro_batch="auto", most_steps=4, round_steps=2), strict=True):
            self.assertLess(abs(one - other), 1e-3 * one)
        self.assertEqual(
            self.trained(nn.Sequential(nn.Flatten(), nn.LazyLinear(6)), glyphs(), micro_batch="auto").micro_batch, 32
        )

    def test_auto_takes_a_micro_batch_that_fits_and_gradients_are_those_of_the_batch(self) -> None:
        """In 2 GiB, of which the whole batch takes twice as much."""
        self.need_gpu()
        device, settings = torch.device(self.device), TrainingSettings(device=self.device, batch=512, micro_batch="auto")
        images = torch.randn(512, 3, 128, 128, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(512) % 10
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(device)
        with own_state(0, settings, device):
            task = task_of(DataSet("noise", images, labels, images[:8], labels[:8], 10), settings, 0, device)
            batch = next(task.batches.epoch(1))
            with short_of_memory(self.device, 2 * GIB):
                most = chosen(task, network, batch)
                torch.cuda.reset_peak_memory_stats(device)
                found = self.gradients(task, network, batch, most)
                peak = torch.cuda.max_memory_allocated(device)
            expected = self.gradients(task, network, batch, None)
        self.assertTrue(most is not None and 1 < most < 512, most)
        self.assertTrue(GIB / 4 < peak < 2 * GIB, peak)
        for one, other in zip(found, expected, strict=True):
            self.assertLess(float((one - other).abs().max()), 1e-3 * float(other.abs().max()))

    def gradients(self, task: Task, network: nn.Module, batch: Any, most: int | None) -> list[torch.Tensor]:
        network.zero_grad()
        add_gradients(task, network, batch, most)
        return [weight.grad.clone() for weight in network.parameters() if weight.grad is not None]

    def test_two_processes_train_as_one_does_also_when_one_was_killed(self) -> None:
        """They add up gradients by NCCL, each on a GPU of its own. tests/train has them on the CPU, by gloo."""
        self.need_gpu()
        if torch.cuda.device_count() < 2:
            self.skipTest("there are no two GPUs")
        with tempfile.TemporaryDirectory() as folder:
            expected = trained_by(ALONE, "cuda", Path(folder) / "alone")
            given = ("cuda", Path(folder) / "together")
            with self.assertRaisesRegex(DeviceError, "process 2 of 2, .* was killed by SIGKILL"):
                together(trained_by, (*given, 3), 2, "cuda")
            self.assertTrue(given[1].exists())
            result = together(trained_by, given, 2, "cuda")
        self.assertEqual([point.step for point in result.curve], [1, 2, 3, 4])
        for one, other in zip(result.curve, expected.curve, strict=True):
            self.assertLess(abs(one.loss - other.loss), 1e-3 * other.loss)

    def test_ffcv_gives_each_process_its_share_of_a_batch(self) -> None:
        if find_spec("ffcv") is None or find_spec("PIL") is None:
            self.skipTest("FFCV, or Pillow, is not installed (docs/data.md)")
        with tempfile.TemporaryDirectory() as folder:
            write_grey_pictures(Path(folder), 12)
            data = DATASETS["imagenet"](folder=Path(folder), size=16, workers=1)
            whole = data.train_batches(4, seed=7, device=torch.device(self.device))
            shares = [whole.of_share(Share(number, 2)) for number in range(2)]
            for batch, *halves in zip(*(list(one.epoch(2)) for one in (whole, *shares)), strict=True):
                self.assertEqual(torch.cat([labels for _, labels in halves]).tolist(), batch[1].tolist())
                for images, labels in (batch, *halves):
                    self.assertEqual(images.device.type, torch.device(self.device).type)
                    grey = images.cpu().mean((2, 3)) * torch.tensor(DEVIATION) + torch.tensor(MEAN)
                    self.assertLess(float((grey.mean(1) - GREY * labels.cpu()).abs().max()), GREY / 2)

    def test_compiled(self) -> None:
        data = glyphs()
        found = []
        for compiled in (False, True):
            # Without biases, which are kernels of their own: each is compiled for seconds.
            first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            torch.manual_seed(0)
            network = nn.Sequential(first, nn.Linear(8, data.classes, bias=False))
            for parameter in network.parameters():
                nn.init.normal_(parameter, std=0.1)
            found.append(self.trained(network, data, compile=compiled, most_steps=4, round_steps=4).losses[0])
        self.assertLess(abs(found[0] - found[1]), 1e-3 * found[0])

    def test_a_language_model_with_an_operator(self) -> None:
        model = SEQUENCE_BACKBONES["gpt_tiny"](vocabulary=256, context=64)
        example = torch.zeros(1, 64, dtype=torch.int64)
        network = substitute(model, syno.OPERATORS["gpt2_projection"](), example, where="paper")
        result = self.trained(network, tokens(), recipe="quick-text", batch=4, precision="bfloat16", round_steps=STEPS)
        self.assertEqual((result.steps, result.broken), (STEPS, False))

    def test_an_interrupted_training_resumes(self) -> None:
        data, losses = glyphs(64), []
        for interrupted in (False, True):
            network = resnet8(data.classes).to(self.device)
            settings = TrainingSettings(device=self.device, epochs=2, batch=32, precision="float16")

            def stop(round_: int, score: float) -> None:
                raise KeyboardInterrupt

            with tempfile.TemporaryDirectory() as folder:
                kept: dict[str, Any] = {"checkpoint": Path(folder) / "checkpoint", "checkpoint_seconds": 0}
                if interrupted:
                    with self.assertRaises(KeyboardInterrupt):
                        train(network, data, settings, report=stop, **kept)
                    network = resnet8(data.classes).to(self.device)
                losses.append(train(network, data, settings, **kept).losses)
        for one, other in zip(*losses, strict=True):
            self.assertLess(abs(one - other), 0.05 * one)

    def test_batches_are_made_without_waiting_for_the_gpu(self) -> None:
        self.need_gpu()
        for data in (pictures(), tokens()):
            batches = iter(data.train_batches(4, seed=0, device=torch.device(self.device)).epoch(1))
            next(batches)  # the order of the epoch is copied
            torch.cuda.set_sync_debug_mode("error")
            try:
                with self.subTest(data=type(data).__name__):
                    next(batches)
            finally:
                torch.cuda.set_sync_debug_mode("default")

    def test_an_exhausted_memory_is_one_sentence(self) -> None:
        self.need_gpu()
        with self.assertRaisesRegex(TrainingError, "out of memory on cuda.*give a smaller micro_batch"), on_device(self.device):
            torch.empty(2**50, dtype=torch.uint8, device=self.device)


if __name__ == "__main__":
    unittest.main()
