"""Data sets by name. Each is a function whose keyword arguments are its settings; docs/data.md describes them.

>>> data = DATASETS["glyphs"](preset="micro")
>>> data.train_images.shape, data.classes
(torch.Size([1024, 3, 16, 16]), 6)
>>> batches = data.train_batches(256, seed=0)
>>> [len(labels) for _, labels in batches.epoch(1, first=1)]  # from the second batch on
[256, 256, 256]
"""

from syno.data.cifar100 import cifar100
from syno.data.contract import DATASETS, Batches, PictureData, content_hash
from syno.data.digits import digits
from syno.data.glyphs import glyphs
from syno.data.imagenet import imagenet
from syno.data.language import lm1b, pydoc
from syno.data.pictures import DataSet
from syno.data.tokens import TokenSet

__all__ = [
    "DATASETS",
    "Batches",
    "DataSet",
    "PictureData",
    "TokenSet",
    "cifar100",
    "content_hash",
    "digits",
    "glyphs",
    "imagenet",
    "lm1b",
    "pydoc",
]
