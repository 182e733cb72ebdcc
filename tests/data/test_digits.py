"""The digits of scikit-learn: small real pictures."""

from __future__ import annotations

import pytest
import torch

from syno.base.errors import SpecError
from syno.data import DATASETS, DataSet


@pytest.fixture(scope="module")
def digits() -> DataSet:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    data = DATASETS["digits"]()
    assert isinstance(data, DataSet)
    return data


class TestDigits:
    def test_digits_are_real_pictures_of_ten_classes(self, digits: DataSet) -> None:
        assert (digits.train_count, digits.test_count, digits.image_shape) == (1437, 360, (1, 8, 8))
        assert digits.train_images.dtype == torch.uint8 and digits.train_images.max() == 255
        assert set(digits.train_labels.tolist()) == set(digits.test_labels.tolist()) == set(range(10))

    def test_the_seed_chooses_those_for_testing(self, digits: DataSet) -> None:
        assert DATASETS["digits"]() == digits
        assert DATASETS["digits"](seed=1).hash != digits.hash
        with pytest.raises(SpecError, match="there are 1797 pictures in all"):
            DATASETS["digits"](test=1797)

    def test_a_network_learns_the_digits(self, digits: DataSet) -> None:
        from syno.model.backbones import BACKBONES
        from syno.train.settings import TrainingSettings
        from syno.train.training import train

        model = BACKBONES["resnet8"](classes=10, channels=1, width=0.5)
        assert train(model, digits, TrainingSettings(epochs=2, batch=32)).score > 0.85  # chance is 0.1
