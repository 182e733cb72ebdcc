"""The settings of data sets that are read from files, without torch. Those of `glyphs` stand beside it.

Paths are relative to the folder where the command runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syno.base.errors import SpecError
from syno.base.registry import Registry
from syno.base.validation import explained

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class DataSettings(BaseModel):
    """A group of settings. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, **given: Any) -> Self:
        """The settings. SpecError says what is wrong with them, and which there are."""
        try:
            return cls(**given)
        except ValidationError as error:
            raise SpecError(explained(error, cls)) from None

    def with_(self, **changes: Any) -> Self:
        """A copy with these fields changed, checked again."""
        return self.of(**{**self.model_dump(), **changes})


class AugmentationSettings(DataSettings):
    """How pictures are changed for training, in this order; for testing they are only resized. The defaults are the paper's."""

    pad: Count = 2  # pixels of mirror image on every side, out of which a picture of the same size is cut at random
    flip: bool = True  # left to right, every other time
    cutout: Count = 3  # pixels of the side of a square that is set to the mean colour
    size: Positive | None = 224  # pixels of the side, reached by bilinear interpolation at the end; null: as they are


RECIPES: Registry[AugmentationSettings] = Registry("recipe of augmentation")
RECIPES.register("paper")(AugmentationSettings())
RECIPES.register("paper-small")(AugmentationSettings(size=None))  # without enlarging, which costs 49 times as much
RECIPES.register("none")(AugmentationSettings(pad=0, flip=False, cutout=0, size=None))


class PictureSettings(DataSettings):
    """What all data sets of pictures that are held in memory have in common."""

    recipe: str = "paper"  # of augmentation: paper, paper-small (without enlarging), none
    augmentation: Mapping[str, Any] = {}  # what differs from the recipe, of: pad, flip, cutout, size

    @property
    def augmented(self) -> AugmentationSettings:
        """The recipe with what differs from it. SpecError or UnknownNameError if there is no such thing."""
        return RECIPES[self.recipe].with_(**self.augmentation)


class Cifar100Settings(PictureSettings):
    """CIFAR-100: 50,000 + 10,000 pictures of 32x32 in 100 classes."""

    folder: Path = Path("data/cifar100")  # with cifar100/{train,test}-*.parquet as on the Hub, or the cifar-100-python pickles
    download: bool = False  # whether to get it from the Hub if the folder has neither
    repository: str = "uoft-cs/cifar100"  # on the Hub
    prepared: Path = Path("results/data/cifar100.npz")  # decoded once, and read from here ever after


class DigitsSettings(PictureSettings):
    """Scikit-learn's digits: 1,797 grey pictures of 8x8 in 10 classes, for trying things out on real data."""

    recipe: str = "none"  # of augmentation: paper, paper-small (without enlarging), none
    test: Positive = 360  # pictures to test on
    seed: Count = 0  # of which these are


class ImagenetSettings(DataSettings):
    """ImageNet, or whatever else is in folders by class: read anew in every epoch, not held in memory."""

    folder: Path = Path("data/imagenet")  # with train.beton and val.beton, or the folders train and val
    reader: Literal["ffcv", "torch"] = "ffcv"  # of beton files, or slower, of folders with a folder of pictures for each class
    size: Positive = 224  # pixels of the side
    least_area: Share = 0.08  # share of a picture that is cut out for training
    test_ratio: Share = 0.875  # for testing, the share of the shorter side that the central square has (224 / 256)
    workers: Count = 4  # threads or processes that decode; torch: 0 for none

    @property
    def betons(self) -> tuple[Path, Path]:
        """The files that FFCV reads, to train and to test on."""
        return self.folder / "train.beton", self.folder / "val.beton"


class Lm1bSettings(DataSettings):
    """The one-billion-word benchmark, or any Parquet files with a column `text`: tokens in files that are mapped to memory."""

    folder: Path = Path("data/lm1b")  # with train-*.parquet and test-*.parquet, or such files in folders train and test
    download: bool = False  # whether to get it from the Hub if the folder has none
    repository: str = "dvruette/lm1b"  # on the Hub
    tokenizer: Path | None = None  # a folder with tokenizer.json, or vocab.json and merges.txt; null: bytes are the tokens
    vocabulary: Annotated[int, Field(ge=2, le=65536)] = 50257  # tokens that this tokenizer must have: GPT-2's
    most_train_tokens: Positive | None = None  # tokenize no more than these; 100,000 steps of one sequence are 204,800,001
    length: Positive = 2048  # tokens of a sequence
    prepared: Path = Path("results/data/lm1b")  # folder of the token files


class PydocSettings(DataSettings):
    """The text of Python's own help on the language, byte by byte; what it is depends on the version of Python."""

    length: Positive = 64  # bytes of a sequence


DATA_SETTINGS: Mapping[str, type[DataSettings]] = {
    "cifar100": Cifar100Settings,
    "digits": DigitsSettings,
    "imagenet": ImagenetSettings,
    "lm1b": Lm1bSettings,
    "pydoc": PydocSettings,
}
