"""Networks whose convolutions are replaced, by name.

>>> model = BACKBONES["resnet8"](classes=12)
>>> sum(parameter.numel() for parameter in model.parameters())
78172
"""

from syno.model.backbones.resnet import resnet18, resnet34
from syno.model.backbones.small_resnet import resnet8
from syno.model.backbones.table import BACKBONES, Backbone

__all__ = ["BACKBONES", "Backbone", "resnet8", "resnet18", "resnet34"]
