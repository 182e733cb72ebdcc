"""Training on the device: number formats, compiled, resumed, without waiting, and what an exhausted memory says."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

import torch
from on_gpu import OnGpu
from torch import nn

import syno
from syno.base.errors import TrainingError
from syno.data import DATASETS, DataSet, TokenSet
from syno.data.pictures import Augmentation
from syno.data.settings import RECIPES
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.substitution import substitute
from syno.train.progress import TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.tasks import on_device
from syno.train.training import train

STEPS = 3


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
