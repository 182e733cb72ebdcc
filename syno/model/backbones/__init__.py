"""Backbones: the networks whose layers are replaced, by name.

>>> model = BACKBONES["resnet8"](classes=12)
>>> sum(parameter.numel() for parameter in model.parameters())
78172
"""

from syno.model.backbones.densenet import densenet121
from syno.model.backbones.efficientnet import efficientnet_v2_s
from syno.model.backbones.gpt2 import gpt2, gpt_tiny
from syno.model.backbones.resnet import resnet18, resnet34, resnext29_2x64d, resnext29_2x64d_1000
from syno.model.backbones.small_resnet import resnet6, resnet8
from syno.model.backbones.table import BACKBONES, SEQUENCE_BACKBONES, Backbone, SequenceBackbone

__all__ = [
    "BACKBONES", "SEQUENCE_BACKBONES", "Backbone", "SequenceBackbone", "densenet121", "efficientnet_v2_s", "gpt2", "gpt_tiny",
    "resnet6", "resnet8", "resnet18", "resnet34", "resnext29_2x64d", "resnext29_2x64d_1000",
]  # fmt: skip
