"""Data sets by name. Each is a function whose keyword arguments are its settings; docs/data.md documents them.

>>> data = DATASETS["glyphs"](preset="micro")
>>> data.train_images.shape, data.classes
(torch.Size([1024, 3, 16, 16]), 6)
>>> batches = data.train_batches(256, seed=0)
>>> [len(labels) for _, labels in batches.epoch(1, first=1)]  # from the second batch on
[256, 256, 256]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syno.data.cifar100 import cifar100
    from syno.data.contract import DATASETS, Batches, PictureData, content_hash
    from syno.data.folder import folder
    from syno.data.imagenet import imagenet
    from syno.data.language import TokenSet, lm1b, pydoc
    from syno.data.pictures import DataSet
    from syno.data.synthetic import digits, glyphs, shapes

_HOME = {
    "cifar100": "cifar100",
    "digits": "synthetic",
    "folder": "folder",
    "glyphs": "synthetic",
    "imagenet": "imagenet",
    "lm1b": "language",
    "pydoc": "language",
    "shapes": "synthetic",
    "Batches": "contract",
    "DATASETS": "contract",
    "PictureData": "contract",
    "content_hash": "contract",
    "DataSet": "pictures",
    "TokenSet": "language",
}

__all__ = [
    "DATASETS", "Batches", "DataSet", "PictureData", "TokenSet", "cifar100", "content_hash", "digits", "folder", "glyphs",
    "imagenet", "lm1b", "pydoc", "shapes",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return the object of a public name. All are imported on first access, so that `syno.data.settings` needs no torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'syno.data' has no attribute {name!r}; it has: {', '.join(__all__)}")
    public_names = {public: getattr(import_module(f"syno.data.{module}"), public) for public, module in _HOME.items()}
    globals().update(public_names)  # after all imports, since modules and data sets have equal names
    return public_names[name]
