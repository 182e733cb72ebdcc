"""The base class of tests on a GPU. They take the standard library, PyTorch and Syno, so that they run on a bare machine.

`SYNO_GPU_DEVICE` names the device: `cuda` unless it is set. `cpu` pretends, to test the tests.
"""

from __future__ import annotations

import os
import unittest

import torch

DEVICE = os.environ.get("SYNO_GPU_DEVICE", "cuda")


class OnGpu(unittest.TestCase):
    """A test on the device. It is skipped where there is no GPU."""

    device = DEVICE

    @classmethod
    def setUpClass(cls) -> None:
        if cls.device != "cpu" and not torch.cuda.is_available():
            raise unittest.SkipTest("PyTorch finds no GPU here")

    def need_gpu(self) -> None:
        """Skip what a pretended GPU cannot do."""
        if self.device == "cpu":
            self.skipTest("the GPU is pretended")
