"""How new weights are drawn, where it is not as the network and its operators do it themselves."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from syno.model.module import OperatorModule

CONVOLUTION_DEVIATION, LINEAR_DEVIATION = 0.1, 0.02  # source: the published training code for CIFAR-100


def initialize(network: nn.Module, how: Literal["fan-in", "paper", "normal"], seed: int) -> None:
    """Draw weights anew, in place; biases and norms stay.

    Args:
        network: on the CPU.
        how: "fan-in" leaves everything as it is: operators keep the variance of their input. "paper": convolutions and
            operators truncated normal of deviation 0.1, linear layers of 0.02, as the published code has it for CIFAR-100.
            "normal": operators of deviation 1, as it has it for ImageNet.
        seed: of what is drawn.
    """
    if how == "fan-in":
        return
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, OperatorModule):
            for weight in module.parameters():
                if how == "normal":
                    nn.init.normal_(weight, generator=generator)
                else:
                    nn.init.trunc_normal_(weight, std=CONVOLUTION_DEVIATION, generator=generator)
        elif how == "paper" and isinstance(module, nn.Conv2d | nn.Linear):
            deviation = LINEAR_DEVIATION if isinstance(module, nn.Linear) else CONVOLUTION_DEVIATION
            nn.init.trunc_normal_(module.weight, std=deviation, generator=generator)
