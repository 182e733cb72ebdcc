"""The settings of the data sets, which are read without loading torch.

Paths are relative to the working directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationError

from syno.base.errors import SpecError
from syno.base.registry import Registry
from syno.base.validation import Settings, explained

PICTURE_AXES = 3  # channels, height, width


def is_picture(shape: Sequence[int]) -> bool:
    """Return whether samples of this shape (without the batch axis) have a height and a width besides channels."""
    return len(shape) == PICTURE_AXES


def samples_in_words(shape: Sequence[int]) -> str:
    """Return the word for samples of this shape: "pictures", or "samples" if they have no height and width."""
    return "pictures" if is_picture(shape) else "samples"


Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class DataSettings(Settings):
    """Base of the settings of a data set. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    source_bytes: ClassVar[float] = 0  # approximate bytes of the files that a user downloads
    source_note: ClassVar[str] = ""  # a note about these files

    @property
    def made_bytes(self) -> float:
        """Approximate size in bytes of the cache files that the first training writes."""
        return 0

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Return the settings with these values. SpecError says which are invalid, and what is allowed."""
        try:
            return cls(**settings)
        except ValidationError as error:
            raise SpecError(explained(error, cls)) from None

    def with_(self, **changes: Any) -> Self:
        """Return a validated copy with these fields changed. Raises SpecError as `of` does."""
        return self.of(**{**self.model_dump(), **changes})


class GlyphSettings(DataSettings):
    """Glyphs: procedural pictures. Equal settings make equal pictures, bit by bit."""

    classes: Annotated[int, Field(ge=2)] = 12
    """number of classes, one glyph for each"""
    train: Positive = 4096
    """number of training pictures"""
    test: Positive = 1024
    """number of test pictures"""
    size: Annotated[int, Field(ge=8)] = 16
    """side of a picture, in pixels"""
    cells: Annotated[int, Field(ge=3)] = 4
    """side of a glyph, in cells"""
    noise: Annotated[float, Field(ge=0)] = 0.5
    """standard deviation of the noise; the contrast of a glyph is 1 to 2"""
    seed: Count = 0
    """seed of the glyphs and of the pictures"""


GLYPH_PRESETS: Registry[GlyphSettings] = Registry("preset of glyphs")
GLYPH_PRESETS.register("micro")(GlyphSettings(classes=6, train=1024, test=512))  # for tests
GLYPH_PRESETS.register("quick")(GlyphSettings())
GLYPH_PRESETS.register("glyph100")(GlyphSettings(classes=100, train=12_800, test=2_000))  # as many classes as CIFAR-100


class AugmentationSettings(DataSettings):
    """Augmentation of training pictures, in this order. Test pictures are only resized. The defaults are the paper's."""

    pad: Count = 2
    """width of the mirrored padding on every side, in pixels, from which a picture of the original size is cropped at random"""
    flip: bool = True
    """whether pictures are mirrored horizontally with probability 1/2"""
    cutout: Count = 3
    """side of a square at a random place that is set to the mean colour, in pixels"""
    size: Positive | None = 224
    """side after bilinear resizing, in pixels; null: no resizing"""


RECIPES: Registry[AugmentationSettings] = Registry("recipe of augmentation")
RECIPES.register("paper")(AugmentationSettings(pad=2, flip=True, cutout=3, size=224))  # independent of the defaults
RECIPES.register("paper-small")(AugmentationSettings(size=None))  # without resizing, which would cost 49 times as much
RECIPES.register("none")(AugmentationSettings(pad=0, flip=False, cutout=0, size=None))


class PictureSettings(DataSettings):
    """Settings of all data sets of pictures in memory."""

    recipe: str = "paper"
    """recipe of augmentation: paper, paper-small (without resizing), none"""
    augmentation: Mapping[str, Any] = {}
    """settings that override the recipe's: pad, flip, cutout, size"""

    @property
    def augmented(self) -> AugmentationSettings:
        """The augmentation: the recipe, changed by `augmentation`.

        SpecError or UnknownNameError for unknown settings or recipes.
        """
        return RECIPES[self.recipe].with_(**self.augmentation)


class Cifar100Settings(PictureSettings):
    """CIFAR-100: 50,000 + 10,000 pictures of 32x32 in 100 classes."""

    source_bytes = 143e6  # Parquet files of the Hub
    folder: Path = Path("data/cifar100")
    """folder with cifar100/{train,test}-*.parquet as on the Hub, or with the cifar-100-python pickles"""
    download: bool = False
    """whether to download the files from the Hub if neither the folder nor the cache of `datasets` has them"""
    repository: str = "uoft-cs/cifar100"
    """repository on the Hub, or a local copy of it"""
    prepared: Path = Path("results/data/cifar100.npz")
    """cache file of the decoded pictures"""

    @property
    def made_bytes(self) -> float:
        """Size of the decoded pictures in bytes."""
        return 184e6


class DigitsSettings(PictureSettings):
    """Scikit-learn's digits: 1,797 grey pictures of 8x8 in 10 classes, for quick trials with real data."""

    recipe: str = "none"
    """recipe of augmentation: paper, paper-small (without resizing), none"""
    test: Positive = 360
    """number of test pictures; the others are for training"""
    seed: Count = 0
    """seed of the random choice of test pictures"""


class FolderSettings(PictureSettings):
    """Your own pictures or sounds, without code: files in one folder for each class, read once into memory."""

    folder: Path
    """folder with one subfolder for each class; or with the folders train and val (or test), each with one subfolder for each
    class
    """
    test: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """share of each class that is drawn for testing, if there are no folders train and val"""
    seed: Count = 0
    """seed of the random choice of test samples"""
    size: Positive | tuple[Positive, Positive] | None = None
    """for pictures: side, or height and width, in pixels, to which the central crop is resized; null: all pictures have the
    same size
    """
    grey: bool = False
    """for pictures: whether to convert them to one grey channel"""
    seconds: Annotated[float, Field(gt=0)] | None = None
    """for sounds: length in seconds, to which longer sounds are cut, and shorter sounds padded with silence; null: all sounds
    have the same length
    """
    recipe: str = "none"
    """for pictures: recipe of augmentation: paper, paper-small (without resizing), none"""
    prepared: Path = Path("results/data")
    """folder of the cache file of all samples"""


class ImagenetSettings(DataSettings):
    """ImageNet, or other pictures in one folder for each class. They are read anew in every epoch, not held in memory."""

    source_bytes = 500e9
    source_note = ", as the paper says"
    folder: Path = Path("data/imagenet")
    """folder with train.beton and val.beton, or with the folders train and val"""
    reader: Literal["ffcv", "torch"] = "ffcv"
    """ffcv reads beton files; torch, which is slower, reads folders with one folder of pictures for each class"""
    size: Positive = 224
    """side of the network's input pictures, in pixels"""
    least_area: Share = 0.08
    """least share of a picture's area in a random training crop"""
    test_ratio: Share = 0.875
    """for testing: side of the central crop as a share of the picture's shorter side (224 / 256)"""
    workers: Count = 4
    """number of threads (ffcv) or processes (torch) that decode pictures; with torch, 0 decodes in the training process"""

    @property
    def betons(self) -> tuple[Path, Path]:
        """The beton files for training and for testing."""
        return self.folder / "train.beton", self.folder / "val.beton"


class Lm1bSettings(DataSettings):
    """The one-billion-word benchmark, or any Parquet files with a column `text`. Tokens are in memory-mapped files."""

    source_bytes = 1.8e9  # Parquet files of the Hub
    folder: Path = Path("data/lm1b")
    """folder with train-*.parquet and test-*.parquet, or with such files in subfolders train and test"""
    download: bool = False
    """whether to download the files from the Hub if neither the folder nor the cache of `datasets` has them"""
    repository: str = "dvruette/lm1b"
    """repository on the Hub, or a local copy of it"""
    tokenizer: Path | None = None
    """folder with tokenizer.json, or with vocab.json and merges.txt; null: each byte is a token"""
    vocabulary: Annotated[int, Field(ge=2, le=65536)] = 50257
    """number of tokens that the tokenizer must have; the default is GPT-2's"""
    most_train_tokens: Positive | None = None
    """largest number of training tokens; null: all. 100,000 steps of one sequence take 204,800,001"""
    length: Positive = 2048
    """tokens per sequence"""
    prepared: Path = Path("results/data/lm1b")
    """folder of the token files"""

    @property
    def made_bytes(self) -> float:
        """Size of the token files: two bytes per token.

        GPT-2's tokenizer makes about 820 million tokens of the whole benchmark.
        """
        return 2.0 * min(self.most_train_tokens or inf, 820e6)


class PydocSettings(DataSettings):
    """Python's built-in documentation of the language, byte by byte. It depends on the version of Python."""

    length: Positive = 64
    """bytes per sequence"""


class ShapesSettings(DataSettings):
    """Only the shape of pictures, for measuring latencies: `train: {seeds: []}`.

    The defaults are ImageNet's shape and classes.
    """

    classes: Annotated[int, Field(ge=2)] = 1000
    """number of classes, which is the number of the network's outputs"""
    size: Positive | Annotated[tuple[Positive, ...], Field(min_length=1, max_length=3)] = 224
    """side of a picture in pixels; or its height and width, as in [480, 640]; or the lengths of other samples, as in [16000]"""
    channels: Positive = 3
    """number of channels"""


DATA_SETTINGS: Mapping[str, type[DataSettings]] = {
    "cifar100": Cifar100Settings,
    "digits": DigitsSettings,
    "folder": FolderSettings,
    "imagenet": ImagenetSettings,
    "lm1b": Lm1bSettings,
    "pydoc": PydocSettings,
    "shapes": ShapesSettings,
}


def setting_names(data: str) -> frozenset[str] | None:
    """Return the names of the settings of a data set; None for a user's own or an unknown data set."""
    if data == "glyphs":
        return frozenset({"preset", *GlyphSettings.model_fields})
    kind = DATA_SETTINGS.get(data)
    return None if kind is None else frozenset(kind.model_fields)
