"""Small data sets without files: pictures of glyphs, scikit-learn's digits, and shapes without pictures, for latencies.

Only operators that mix neighbouring positions can tell glyphs apart. Each class is a glyph: a fixed random pattern of binary
cells. A picture shows one glyph at a random place, of a random size, slightly rotated, in a random colour on a random
background, under noise. Colour and place do not depend on the class, so a 1x1 convolution learns next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from syno.base.errors import DataError, MissingPackageError, SpecError
from syno.base.files import checksum
from syno.data.contract import DATASETS, content_hash, generator_of
from syno.data.pictures import Augmentation, DataSet
from syno.data.settings import GLYPH_PRESETS, DigitsSettings, GlyphSettings, ShapesSettings

Floats = NDArray[np.float64]

CHANNELS = 3
LEAST_DIFFERENCE = 4  # cells that differ between any two glyphs; with fewer, noise would hide the difference
MOST_DRAWS = 20_000  # attempts to draw a glyph
SCALE = (0.5, 0.85)  # side of a glyph, as a share of the picture's side
TURN = 0.12  # radians, standard deviation of the rotation
CONTRAST = (1.0, 2.0)
BASE = 0.5  # standard deviation of the background's colour
STEPS = 32  # steps of brightness per unit: rounding hides differences between machines in float64
DIGIT_CLASSES = 10

Pictures = tuple[torch.Tensor, torch.Tensor]  # float32 [n, 3, size, size], int64 labels [n]


@DATASETS.register("glyphs")
def glyphs(preset: str = "quick", **changes: Any) -> DataSet:
    """Return procedural pictures of glyphs.

    Args:
        preset: a name in GLYPH_PRESETS.
        changes: fields of GlyphSettings that differ from the preset's.

    Raises UnknownNameError or SpecError for an unknown preset or setting.
    """
    settings = GLYPH_PRESETS[preset].with_(**changes)
    train, test = make_glyphs(settings)
    return DataSet(f"glyphs {preset}", *train, *test, settings.classes, content_hash(*train, *test))


def make_glyphs(settings: GlyphSettings) -> tuple[Pictures, Pictures]:
    """Return the training pictures and the test pictures of glyphs, each with labels, drawn from separate random streams.

    The numbers of pictures of two classes differ by at most one.

    Raises SpecError if there are not enough different glyphs with so few cells.
    """
    alphabet, train, test = (np.random.default_rng(part) for part in np.random.SeedSequence(settings.seed).spawn(3))
    glyphs = draw_alphabet(settings.classes, settings.cells, alphabet)
    return _pictures(glyphs, settings.train, settings, train), _pictures(glyphs, settings.test, settings, test)


def draw_alphabet(classes: int, cells: int, random: np.random.Generator) -> Floats:
    """Return random binary glyphs, [classes, cells, cells]: about half of the cells are ones, and any two differ in several
    cells.
    """
    least, most = 0.35 * cells**2, 0.65 * cells**2
    kept = np.empty((0, cells, cells))
    for _ in range(MOST_DRAWS):
        glyph = random.integers(0, 2, (cells, cells)).astype(np.float64)
        apart = np.abs(kept - glyph).sum((1, 2)) >= LEAST_DIFFERENCE
        if least <= glyph.sum() <= most and apart.all():
            kept = np.concatenate([kept, glyph[None]])
            if len(kept) == classes:
                return kept
    raise SpecError(
        f"classes is {classes}, but only {len(kept)} glyphs of {cells}x{cells} cells were found that differ in "
        f"{LEAST_DIFFERENCE} cells; give fewer classes or more cells"
    )


def _pictures(glyphs: Floats, count: int, settings: GlyphSettings, random: np.random.Generator) -> Pictures:
    """Return `count` pictures of these glyphs, float32 [count, channels, size, size], and their labels, int64 [count]."""
    labels = random.permutation(np.arange(count) % len(glyphs))
    shape = _coverage(glyphs[labels], settings.size, random)[:, None]
    axis = random.standard_normal((count, CHANNELS))  # its sign is random, too
    axis /= np.sqrt((axis**2).sum(1, keepdims=True) / CHANNELS)
    contrast = random.uniform(*CONTRAST, (count, 1))
    base = BASE * random.standard_normal((count, CHANNELS))
    pictures = base[..., None, None] + (axis * contrast)[..., None, None] * shape
    pictures += settings.noise * random.standard_normal(pictures.shape)
    rounded = (np.rint(pictures * STEPS) / STEPS).astype(np.float32)
    return torch.from_numpy(rounded), torch.from_numpy(labels.astype(np.int64))


def _coverage(glyphs: Floats, size: int, random: np.random.Generator) -> Floats:
    """Return the share of each pixel that the glyph covers, anti-aliased: [n, cells, cells] -> [n, size, size]."""
    count, cells = glyphs.shape[:2]
    side = random.uniform(*SCALE, count) * size  # in pixels
    middle = size / 2 + random.uniform(-0.5, 0.5, (2, count)) * (size - side)  # an unrotated glyph lies inside the picture
    angle = TURN * random.standard_normal(count)
    pixel = np.arange(size) + 0.5
    y, x = pixel[:, None] - middle[0][:, None, None], pixel - middle[1][:, None, None]
    cosine, sine = (function(angle)[:, None, None] for function in (np.cos, np.sin))
    pitch = (side / cells)[:, None, None]  # pixels of a cell
    rows = _share((cosine * y + sine * x) / pitch + cells / 2, pitch, cells)
    columns = _share((cosine * x - sine * y) / pitch + cells / 2, pitch, cells)
    coverage: Floats = (np.einsum("nyxa,nab->nyxb", rows, glyphs) * columns).sum(-1)
    return coverage


def _share(position: Floats, pitch: Floats, cells: int) -> Floats:
    """Return the share of each pixel that lies in each row of cells, for positions in cells: [n, y, x] -> [n, y, x, cells]."""
    cell = np.arange(cells)
    inside = np.minimum(position[..., None] - cell, cell + 1 - position[..., None])  # below 0: outside
    return np.clip(inside * pitch[..., None] + 0.5, 0, 1)


@DATASETS.register("digits")
def digits(**settings: Any) -> DataSet:
    """Return 1,797 grey pictures of digits, 8x8. A random part of them is for testing.

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
    bunch = load_digits()
    images = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    if chosen.test >= len(labels):
        raise SpecError(f"test is {chosen.test}, but there are {len(labels)} pictures in all; leave some to train on")
    order = torch.randperm(len(labels), generator=generator_of(chosen.seed))
    test, train = order[: chosen.test], order[chosen.test :]
    augmentation = Augmentation.of(chosen.augmented, images[train])
    return DataSet("digits", images[train], labels[train], images[test], labels[test], DIGIT_CLASSES, augmentation=augmentation)


@dataclass(frozen=True)
class Shapes:
    """A data set that has no pictures, only their shape. It implements `PictureData`.

    Attributes:
        classes: number of classes, which is the number of the network's outputs.
        image_shape: channels, height and width of the network's input, or channels and the lengths of other samples.
    """

    classes: int
    image_shape: tuple[int, ...]
    name: str = "shapes"
    train_count: int = 0
    test_count: int = 0

    @property
    def hash(self) -> str:
        """Hash of the shape."""
        return checksum(f"{self.classes} {self.image_shape}".encode())

    def train_batches(self, batch: int, **where: Any) -> NoReturn:
        """Raise DataError: there are no pictures."""
        raise DataError('the data set "shapes" has no pictures to train on; give another one, or train: {seeds: []}')

    def test_batches(self, batch: int, **where: Any) -> NoReturn:
        """Raise DataError: there are no pictures."""
        raise DataError('the data set "shapes" has no pictures to test on; give another one, or train: {seeds: []}')


@DATASETS.register("shapes")
def shapes(**settings: Any) -> Shapes:
    """Return a data set that has shapes but no pictures.

    `settings` are the fields of ShapesSettings. SpecError for unknown or invalid settings.
    """
    chosen = ShapesSettings.of(**settings)
    lengths = (chosen.size, chosen.size) if isinstance(chosen.size, int) else chosen.size
    return Shapes(chosen.classes, (chosen.channels, *lengths))
