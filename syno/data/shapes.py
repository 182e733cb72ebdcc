"""A data set that has only shapes: for latencies, which do not depend on the values of pictures. It cannot be trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from syno.base.errors import DataError
from syno.base.files import checksum
from syno.data.contract import DATASETS
from syno.data.settings import ShapesSettings


@dataclass(frozen=True)
class Shapes:
    """A data set without pictures, which implements `PictureData`.

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
    """Return a data set without pictures. `settings` are the fields of ShapesSettings; SpecError if one is unknown or wrong."""
    given = ShapesSettings.of(**settings)
    lengths = (given.size, given.size) if isinstance(given.size, int) else given.size
    return Shapes(given.classes, (given.channels, *lengths))
