"""Augmentation: what is drawn is evenly drawn, and what is done with it is what a slow reference does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional

from syno.base.errors import ShapeError, SpecError, UnknownNameError
from syno.data.contract import generator_of
from syno.data.pictures import DOWN, FLIP, LEFT, RIGHT, TOP, Augmentation, DataSet, colours
from syno.data.settings import RECIPES, AugmentationSettings, Cifar100Settings

Numbers = NDArray[np.float64]


def pictures(count: int = 12, shape: tuple[int, int, int] = (3, 8, 8), seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8)


def augmentation(images: torch.Tensor, **changes: Any) -> Augmentation:
    return Augmentation.of(AugmentationSettings(**{"size": None, **changes}), images)


def by_hand(image: NDArray[np.uint8], draw: NDArray[np.int64], made: Augmentation) -> Numbers:
    """One picture, step by step as the words say it, with NumPy's own mirror image."""
    pad, hole = made.settings.pad, made.settings.cutout
    height, width = image.shape[1:]
    padded = np.pad(image.astype(np.float64), ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
    cut = padded[:, draw[DOWN] : draw[DOWN] + height, draw[RIGHT] : draw[RIGHT] + width]
    if draw[FLIP]:
        cut = cut[:, :, ::-1]
    result = (cut - np.array(made.mean)[:, None, None]) / np.array(made.deviation)[:, None, None]
    result[:, draw[TOP] : draw[TOP] + hole, draw[LEFT] : draw[LEFT] + hole] = 0
    return result


@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(4, 9),
    width=st.integers(4, 9),
    channels=st.sampled_from([1, 3]),
    pad=st.integers(0, 3),
    cutout=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_augmentation_agrees_with_a_slow_reference(
    height: int, width: int, channels: int, pad: int, cutout: int, flip: bool, seed: int
) -> None:
    images = pictures(7, (channels, height, width), seed)
    made = augmentation(images, pad=pad, cutout=cutout, flip=flip)
    draws = made.draw(7, (height, width), torch.Generator().manual_seed(seed))
    expected = np.stack([by_hand(image, draw, made) for image, draw in zip(images.numpy(), draws.numpy(), strict=True)])
    found = made.train(images, draws)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_everything_that_may_be_drawn_is_drawn_and_as_often() -> None:
    made = augmentation(pictures(), pad=2, cutout=3)
    draws = made.draw(20_000, (8, 8), torch.Generator().manual_seed(0))
    for column, values in ((DOWN, 5), (RIGHT, 5), (FLIP, 2), (TOP, 6), (LEFT, 6)):
        counts = torch.bincount(draws[:, column])
        assert len(counts) == values  # the published code draws 4 of the 5 offsets
        expected = 20_000 / values
        assert ((counts - expected).abs() < 5 * expected**0.5).all()
    pairs = torch.bincount(draws[:, DOWN] * 5 + draws[:, RIGHT])
    assert len(pairs) == 25 and pairs.min() > 0.7 * 800  # drawn apart from each other


def test_the_middle_offset_changes_nothing() -> None:
    images = pictures()
    made = augmentation(images, cutout=0)
    draws = torch.tensor([[2, 2, 0, 0, 0]]).expand(len(images), -1)
    assert torch.equal(made.train(images, draws), made.test(images))


def test_the_hole_has_the_mean_colour_and_its_size() -> None:
    images = pictures(40)
    made = augmentation(images, pad=0, flip=False)
    changed = made.train(images, made.draw(40, (8, 8), torch.Generator().manual_seed(1))) != made.test(images)
    assert (changed.any(1).sum((1, 2)) == 9).all()


def test_without_all_of_it_pictures_are_only_normalized() -> None:
    images = pictures()
    made = Augmentation.of(RECIPES["none"], images)
    same = made.train(images, made.draw(len(images), (8, 8), torch.Generator().manual_seed(0)))
    assert torch.equal(same, made.test(images))
    assert same.mean((0, 2, 3)).abs().max() < 1e-5 and (same.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_colours_are_those_of_all_pictures() -> None:
    images = pictures(50)
    mean, deviation = colours(images)
    channels = images.numpy().astype(np.float64).transpose(1, 0, 2, 3).reshape(3, -1)
    np.testing.assert_allclose(mean, channels.mean(1), rtol=1e-12)
    np.testing.assert_allclose(deviation, channels.std(1), rtol=1e-12)
    assert colours(torch.full((2, 1, 3, 3), 7, dtype=torch.uint8)) == ((7.0,), (1.0,))  # nothing to divide by


def test_enlarging_comes_last_and_is_bilinear() -> None:
    images = pictures()
    small, large = augmentation(images), augmentation(images, size=24)
    draws = small.draw(len(images), (8, 8), torch.Generator().manual_seed(3))
    expected = functional.interpolate(small.train(images, draws), (24, 24), mode="bilinear")
    assert torch.equal(large.train(images, draws), expected)
    assert large.test(images).shape == (len(images), 3, 24, 24)


def test_the_defaults_are_the_papers() -> None:
    assert AugmentationSettings().model_dump() == {"pad": 2, "flip": True, "cutout": 3, "size": 224}
    assert RECIPES["paper"] == AugmentationSettings() == Cifar100Settings().augmented
    assert Cifar100Settings(augmentation={"size": 32}).augmented == AugmentationSettings(size=32)


@pytest.mark.parametrize("wrong", [{"pad": 8}, {"cutout": 9}])
def test_a_recipe_that_does_not_fit_is_an_error(wrong: dict[str, int]) -> None:
    with pytest.raises(ShapeError, match="the pictures are 8 x 8"):
        augmentation(pictures(), **wrong)


def test_recipes_and_options_that_there_are_not() -> None:
    with pytest.raises(UnknownNameError, match="there are: paper, paper-small, none"):
        Cifar100Settings(recipe="papper").augmented  # noqa: B018
    with pytest.raises(SpecError, match="crop: .*pad, flip, cutout, size"):
        Cifar100Settings(augmentation={"crop": 2}).augmented  # noqa: B018


class TestBatches:
    """Of pictures in memory."""

    @pytest.fixture
    def data(self) -> DataSet:
        images = pictures(50)
        images[:, 0, 0, 0] = torch.arange(50, dtype=torch.uint8)  # so that a picture can be told
        labels = torch.arange(50) % 7
        made = Augmentation.of(AugmentationSettings(pad=0, flip=False, cutout=0, size=None), images)
        return DataSet("numbered", images, labels, images[:20], labels[:20], 7, "", made)

    def numbers(self, data: DataSet, images: torch.Tensor) -> list[int]:
        assert data.augmentation is not None
        values = images[:, 0, 0, 0] * data.augmentation.deviation[0] + data.augmentation.mean[0]
        return [round(value) for value in values.tolist()]

    def test_labels_stay_with_their_pictures_and_none_comes_twice(self, data: DataSet) -> None:
        seen = []
        for images, labels in data.train_batches(8, seed=0).epoch(1):
            numbers = self.numbers(data, images)
            assert labels.tolist() == [number % 7 for number in numbers]
            seen += numbers
        assert len(seen) == len(set(seen)) == 48  # the last two make no batch

    def test_equal_seeds_give_equal_batches_and_epochs_differ(self, data: DataSet) -> None:
        full = dataclasses.replace(data, augmentation=augmentation(data.train_images))
        first, again, other = (full.train_batches(8, seed=seed) for seed in (1, 1, 2))
        one, same = ([images for images, _ in batches.epoch(3)] for batches in (first, again))
        assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
        assert not torch.equal(one[0], next(other.epoch(3))[0])
        assert not torch.equal(one[0], next(first.epoch(4))[0])

    @pytest.mark.parametrize(("epoch", "batch"), [(1, 0), (1, 4), (3, 2), (2, 6)])
    def test_an_epoch_can_be_resumed_at_any_batch(self, data: DataSet, epoch: int, batch: int) -> None:
        whole = data.train_batches(8, seed=5)
        passed = [list(whole.epoch(number)) for number in (1, 2, 3)][epoch - 1][batch:]
        resumed = list(data.train_batches(8, seed=5).epoch(epoch, batch))
        assert len(passed) == len(resumed) == 6 - batch
        for (images, labels), (others, answers) in zip(passed, resumed, strict=True):
            assert torch.equal(images, others) and torch.equal(labels, answers)

    def test_testing_changes_nothing_and_can_be_repeated(self, data: DataSet) -> None:
        batches = data.test_batches(8)
        for _ in range(2):
            assert [len(labels) for _, labels in batches] == [8, 8, 4]
            assert [number for images, _ in batches for number in self.numbers(data, images)] == list(range(20))

    def test_global_random_numbers_are_neither_read_nor_changed(self, data: DataSet) -> None:
        torch.manual_seed(1)
        expected = torch.rand(1)
        torch.manual_seed(1)
        list(data.train_batches(8, seed=0).epoch(1))
        assert torch.equal(torch.rand(1), expected)

    def test_the_memory_format_is_the_one_asked_for(self, data: DataSet) -> None:
        images, _ = next(data.train_batches(8, seed=0, layout=torch.channels_last).epoch(1))
        assert images.is_contiguous(memory_format=torch.channels_last)


def test_random_numbers_of_a_place_are_its_own() -> None:
    drawn = [torch.rand(1, generator=generator_of(*place)).item() for place in ((0, 1), (0, 2), (1, 1), (-1, 1), (0, 1))]
    assert len(set(drawn)) == 4 and drawn[0] == drawn[-1]
