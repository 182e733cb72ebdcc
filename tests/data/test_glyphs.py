"""The procedural pictures: the same every time, balanced, and of the promised shapes."""

from __future__ import annotations

import doctest
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from syno import data as datasets
from syno.base.errors import SpecError, UnknownNameError
from syno.data import DATASETS, DataSet, content_hash
from syno.data.settings import GLYPH_PRESETS, GlyphSettings
from syno.data.synthetic import LEAST_DIFFERENCE, draw_alphabet, make_glyphs

SMALL = {"classes": 3, "train": 30, "test": 13}


@pytest.fixture(scope="module")
def micro() -> DataSet:
    return DATASETS["glyphs"](preset="micro")


def test_shapes_types_and_range(micro: DataSet) -> None:
    assert micro.train_images.shape == (1024, 3, 16, 16) and micro.test_images.shape == (512, 3, 16, 16)
    assert micro.train_images.dtype == micro.test_images.dtype == torch.float32
    assert micro.train_labels.dtype == micro.test_labels.dtype == torch.int64
    assert micro.classes == 6 and micro.image_shape == (3, 16, 16)
    assert abs(micro.train_images.mean()) < 0.1 and 0.5 < micro.train_images.std() < 1.5


def test_classes_are_equally_frequent(micro: DataSet) -> None:
    for labels in (micro.train_labels, micro.test_labels):
        counts = torch.bincount(labels, minlength=6)
        assert counts.max() - counts.min() <= 1


def test_settings_count_pictures_and_pixels() -> None:
    (images, labels), (tests, answers) = make_glyphs(GlyphSettings(**SMALL, size=20))
    assert images.shape == (30, 3, 20, 20) and tests.shape == (13, 3, 20, 20)
    assert len(labels) == 30 and len(answers) == 13 and set(labels.tolist()) == {0, 1, 2}


@pytest.mark.slow
def test_glyphs_are_the_same_in_every_process(micro: DataSet) -> None:
    code = "from syno.data import DATASETS; print(DATASETS['glyphs'](preset='micro').hash)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == micro.hash == DATASETS["glyphs"](preset="micro").hash


def test_the_pictures_of_the_default_do_not_change() -> None:
    """A change here makes accuracies measured before worthless: then say so where they stand."""
    assert DATASETS["glyphs"](**SMALL).hash == "82d5d2f39718b8f155dac0d32dfcc86e"


def test_another_seed_makes_other_pictures(micro: DataSet) -> None:
    other = DATASETS["glyphs"](preset="micro", seed=1)
    assert other.hash != micro.hash and other != micro
    assert not torch.equal(other.train_images, micro.train_images)


def test_no_picture_is_in_both_parts_or_twice(micro: DataSet) -> None:
    pictures = [image.numpy().tobytes() for part in (micro.train_images, micro.test_images) for image in part]
    assert len(set(pictures)) == len(pictures)


def test_more_pictures_for_training_leave_those_for_testing_alone() -> None:
    one, other = DATASETS["glyphs"](**SMALL), DATASETS["glyphs"](**{**SMALL, "train": 60})
    assert torch.equal(one.test_images, other.test_images)


def test_global_random_states_are_neither_read_nor_changed() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(1)
    np.random.seed(1)
    DATASETS["glyphs"](**SMALL)
    assert (torch.rand(1), np.random.rand()) == expected


def test_without_noise_a_picture_is_its_glyph_on_a_plain_background() -> None:
    (images, _), _ = make_glyphs(GlyphSettings(**SMALL, noise=0))
    corners = images[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    plain = (corners == corners[:, :, :1]).all((1, 2))
    assert plain.float().mean() > 0.5  # a large glyph may reach a corner
    for image in images:
        seen = image.reshape(3, -1) - image[:, :1, 0]
        assert torch.linalg.svdvals(seen)[1] < 1.0  # one colour only, up to rounding


def test_neither_colour_nor_brightness_tells_classes_apart(micro: DataSet) -> None:
    means = micro.train_images.mean((2, 3))
    per_class = torch.stack([means[micro.train_labels == label].mean(0) for label in range(micro.classes)])
    assert per_class.std(0).max() < 0.25 * means.std()


@pytest.mark.parametrize(("classes", "cells"), [(12, 4), (100, 4), (4, 3)])
def test_any_two_glyphs_differ_in_several_cells(classes: int, cells: int) -> None:
    glyphs = draw_alphabet(classes, cells, np.random.default_rng(0)).reshape(classes, -1)
    apart = np.abs(glyphs[:, None] - glyphs).sum(-1) + 99 * np.eye(classes)
    assert glyphs.shape == (classes, cells**2) and set(np.unique(glyphs)) == {0.0, 1.0}
    assert apart.min() >= LEAST_DIFFERENCE


def test_too_many_classes_for_the_cells_are_an_error() -> None:
    with pytest.raises(SpecError, match=r"classes is 50, but only \d+ glyphs"):
        make_glyphs(GlyphSettings(classes=50, cells=3))


@pytest.mark.parametrize("wrong", [{"classes": 1}, {"size": 2}, {"noise": -1}, {"colour": True}])
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        DATASETS["glyphs"](**wrong)


def test_unknown_names_are_errors_that_list_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r'"quik"; .*micro, quick, glyph100'):
        DATASETS["glyphs"](preset="quik")
    with pytest.raises(UnknownNameError, match='unknown data set "mnist"; there are: .*glyphs'):
        DATASETS["mnist"]()


def test_presets_are_as_large_as_they_say() -> None:
    assert GLYPH_PRESETS["quick"] == GlyphSettings()
    assert [GLYPH_PRESETS[name].classes for name in GLYPH_PRESETS] == [6, 12, 100]


def test_the_default_is_made_in_a_second_or_two() -> None:
    start = time.process_time()
    DATASETS["glyphs"]()
    assert time.process_time() - start < 3  # measured: 0.65 s


def test_hash_sees_shapes_and_values() -> None:
    ones = torch.ones(2, 3)
    assert content_hash(ones) == content_hash(ones.clone())
    assert len({content_hash(ones), content_hash(ones.T), content_hash(ones * 2), content_hash(ones.long())}) == 4


def test_the_examples_in_the_module_run() -> None:
    assert doctest.testmod(datasets).failed == 0


def test_epochs_are_counted_from_1() -> None:
    with pytest.raises(ValueError, match="the epoch is 0; epochs are counted from 1"):
        next(DATASETS["glyphs"]().train_batches(4, seed=0).epoch(0))
