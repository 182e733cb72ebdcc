"""Scikit-learn's digits: a small data set of real pictures that comes with the package."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from syno.base.errors import MissingPackageError, SpecError
from syno.data.augmentation import Augmentation
from syno.data.contract import DATASETS, generator_of
from syno.data.pictures import DataSet
from syno.data.settings import DigitsSettings

CLASSES = 10


@DATASETS.register("digits")
def digits(**settings: Any) -> DataSet:
    """Return 1,797 grey pictures of digits, 8x8. A random part of them is to test on.

    Args:
        settings: fields of DigitsSettings.

    Raises:
        MissingPackageError: scikit-learn is not installed.
        SpecError, ShapeError: settings that do not exist, or that do not fit the pictures.
    """
    chosen = DigitsSettings.of(**settings)
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingPackageError('the data set "digits" is part of scikit-learn: pip install scikit-learn') from None
    found = load_digits()
    images = torch.from_numpy(np.rint(found.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = torch.from_numpy(found.target.astype(np.int64))
    if chosen.test >= len(labels):
        raise SpecError(f"test is {chosen.test}, but there are {len(labels)} pictures in all; leave some to train on")
    order = torch.randperm(len(labels), generator=generator_of(chosen.seed))
    test, train = order[: chosen.test], order[chosen.test :]
    augmentation = Augmentation.of(chosen.augmented, images[train])
    return DataSet("digits", images[train], labels[train], images[test], labels[test], CLASSES, augmentation=augmentation)
