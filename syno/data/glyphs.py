"""Procedural pictures that only operators which mix neighbouring positions can tell apart.

Every class is a glyph: a fixed random pattern of binary cells. A picture shows one of them at a random place, of a random
size, a little turned, in a random colour on a random background, under noise. Colour and place say nothing about the
class; what does is how cells lie beside each other, so a 1x1 convolution learns next to nothing, and a network learns the
more the more of the neighbourhood its operator sees.

All arithmetic is in float64 and the result is rounded to steps of 1/32, as a camera would: differences in the last bits
between machines do not survive that.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syno.base.errors import SpecError
from syno.base.registry import Registry
from syno.base.validation import explained

Positive = Annotated[int, Field(ge=1)]
Floats = NDArray[np.float64]

CHANNELS = 3
LEAST_DIFFERENCE = 4  # cells, between any two glyphs: else noise makes them one
MOST_DRAWS = 20_000  # of glyphs, before giving up
SCALE = (0.5, 0.85)  # of the picture's side
TURN = 0.12  # radians, standard deviation
CONTRAST = (1.0, 2.0)
BASE = 0.5  # standard deviation of the background's colour
STEPS = 32  # of brightness per unit


class GlyphSettings(BaseModel):
    """What pictures there are. Frozen; equal settings make the same pictures, bit by bit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    classes: Annotated[int, Field(ge=2)] = 12
    train: Positive = 4096  # pictures
    test: Positive = 1024
    size: Annotated[int, Field(ge=8)] = 16  # pixels, of a side
    cells: Annotated[int, Field(ge=3)] = 4  # of a glyph's side
    noise: Annotated[float, Field(ge=0)] = 0.5  # standard deviation; a glyph stands out by 1 to 2
    seed: Annotated[int, Field(ge=0)] = 0

    def with_(self, **changes: Any) -> Self:
        """A copy with these fields changed, checked again. SpecError says which of them there are."""
        try:
            return type(self)(**{**self.model_dump(), **changes})
        except ValidationError as error:
            raise SpecError(explained(error, type(self))) from None


GLYPH_PRESETS: Registry[GlyphSettings] = Registry("preset of glyphs")
GLYPH_PRESETS.register("micro")(GlyphSettings(classes=6, train=1024, test=512))  # tests
GLYPH_PRESETS.register("quick")(GlyphSettings())
GLYPH_PRESETS.register("glyph100")(GlyphSettings(classes=100, train=12_800, test=2_000))  # as many classes as CIFAR-100

Pictures = tuple[torch.Tensor, torch.Tensor]  # float32 [n, 3, size, size], int64 labels [n]


def make_glyphs(settings: GlyphSettings) -> tuple[Pictures, Pictures]:
    """The pictures and labels for training, and those for testing, drawn from random streams of their own.

    Every class is as frequent as any other, up to one picture.

    Raises SpecError if there are not as many glyphs of so few cells.
    """
    alphabet, train, test = (np.random.default_rng(part) for part in np.random.SeedSequence(settings.seed).spawn(3))
    glyphs = draw_alphabet(settings.classes, settings.cells, alphabet)
    return _pictures(glyphs, settings.train, settings, train), _pictures(glyphs, settings.test, settings, test)


def draw_alphabet(classes: int, cells: int, random: np.random.Generator) -> Floats:
    """Glyphs of zeros and ones, [classes, cells, cells]: about half full, any two different in several cells."""
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
    """`count` pictures and their labels."""
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
    """How much of each pixel the glyph covers, anti-aliased. [n, cells, cells] -> [n, size, size]."""
    count, cells = glyphs.shape[:2]
    side = random.uniform(*SCALE, count) * size  # in pixels
    middle = size / 2 + random.uniform(-0.5, 0.5, (2, count)) * (size - side)  # the glyph, if not turned, stays inside
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
    """Which part of a pixel lies in each row of cells, for positions [n, y, x] in cells. [n, y, x, cells], in [0, 1]."""
    cell = np.arange(cells)
    inside = np.minimum(position[..., None] - cell, cell + 1 - position[..., None])  # below 0: outside
    return np.clip(inside * pitch[..., None] + 0.5, 0, 1)
