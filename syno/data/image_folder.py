"""Pictures in folders, one for each class, as in ImageNet: found, read with Pillow, and batched.

Worker processes read the batches during the training.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from syno.base.errors import DataError, one_line
from syno.base.files import checksum
from syno.data.contract import WHOLE, Orders, Pair, Share
from syno.data.files import no_folder_of_pictures
from syno.data.settings import ImagenetSettings

ENDINGS = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})
UNPACKED = "__MACOSX"  # a folder that archives made on a Mac leave beside the classes
RATIOS = (3 / 4, 4 / 3)  # of width to height, of crops
FORMATS = ("BMP", "JPEG", "PNG", "WEBP")  # independent of file endings; for other formats, Pillow may start programs
MOST_PIXELS = 100_000_000  # of a picture; ImageNet's largest has 17 million
MOST_NAMES = 5  # skipped files in a warning
TRIES = 10  # attempts to draw a crop that fits, before the central square is used
MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # the usual statistics of ImageNet's colours

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Place = tuple[int, int]  # epoch (0 for testing) and index of a picture
Sample = tuple[Any, int] | DataError  # pixels [3, size, size] and label, or the error of the file


class PictureFile(NamedTuple):
    """A picture's file, the number of its class, and its size in bytes."""

    file: str
    label: int
    size: int


@dataclass(frozen=True)
class ImageFolder:
    """The pictures of a folder, sorted by class and name.

    Attributes:
        folder: the folder with one subfolder for each class.
        names: names of the classes (the subfolders), sorted.
        entries: one entry for each picture.
    """

    folder: Path
    names: tuple[str, ...]
    entries: tuple[PictureFile, ...]

    @property
    def hash(self) -> str:
        """Hash of classes, file names and sizes. Reading the pictures themselves would take an hour."""
        lines = (f"{self.names[entry.label]}/{Path(entry.file).name} {entry.size}\n" for entry in self.entries)
        return checksum(*(line.encode() for line in lines))


def find_pictures(folder: Path) -> ImageFolder:
    """Return the pictures in a folder.

    Hidden folders and files, such as .ipynb_checkpoints, are skipped. One warning names the skipped folders and pictures.

    Raises DataError if the folder is missing, has no subfolders, or one of them has no pictures.
    """
    if not folder.is_dir():
        raise no_folder_of_pictures(folder)
    left_out: list[str] = []
    pictures = find_samples(folder, {"picture": ENDINGS}, left_out)
    for text in left_out_text(left_out):
        warnings.warn(f"{folder}: {text}", stacklevel=2)
    return pictures


def find_samples(folder: Path, endings: Mapping[str, Set[str]], left_out: list[str], *, skips: bool = False) -> ImageFolder:
    """Return the files of a folder that has one subfolder for each class.

    Args:
        folder: an existing folder.
        endings: file endings, by the kind of content.
        left_out: the names of skipped folders and files are appended to it.
        skips: whether entries that are no files, or have unprintable names, are skipped; otherwise they are errors.

    Raises DataError if the folder has no subfolders, or one of them has no such files.
    """
    try:
        folders = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        names = [name for name in folders if not is_hidden(name)]
        left_out += [f"{name} (no class)" for name in folders if is_hidden(name)]
        if not names:
            raise DataError(f"the folder {folder} holds no folders; it must have one for each class, with its files")
        entries = [
            entry for label, name in enumerate(names) for entry in _of_class(folder, name, label, endings, left_out, skips)
        ]
    except OSError as error:  # such as a link to itself, or a file without the right to read it
        raise DataError(
            f"{error.filename or folder} cannot be read: {error.strerror or error}; copy it again, or remove it"
        ) from error
    return ImageFolder(folder, tuple(names), tuple(entries))


def left_out_text(left_out: Sequence[str]) -> list[str]:
    """Return a line that names the skipped files, as a list of one text; [] if nothing was skipped."""
    more = f" and {len(left_out) - MOST_NAMES} more" if len(left_out) > MOST_NAMES else ""
    return [f"left out: {', '.join(left_out[:MOST_NAMES])}{more}"] if left_out else []


def is_hidden(name: str) -> bool:
    """Return whether a folder or file with this name is skipped as hidden."""
    return name.startswith(".") or name == UNPACKED


def _of_class(
    folder: Path, name: str, label: int, endings: Mapping[str, Set[str]], left_out: list[str], skips: bool
) -> list[PictureFile]:
    """Return the files of one class, sorted; names of skipped files are added to `left_out`. See `find_samples`."""
    pictures = []
    allowed = frozenset[str]().union(*endings.values())
    for entry in sorted(os.scandir(folder / name), key=lambda entry: entry.name):
        hidden = is_hidden(entry.name)
        if hidden or Path(entry.name).suffix.lower() not in allowed:
            left_out += [] if hidden else [f"{name}/{entry.name} (no {' or '.join(endings)})"]
        elif not (name + entry.name).isprintable():
            if not skips:
                raise DataError(f"the name of the picture {entry.path!r} has characters that cannot be printed; rename it")
            left_out.append(f"{f'{name}/{entry.name}'!r} (characters that cannot be printed)")
        elif not _is_file(entry, skips):
            if not skips:
                raise DataError(f"{entry.path} is no file, nor a link to one; pictures are files; copy it again, or remove it")
            left_out.append(f"{name}/{entry.name} (no file)")
        else:
            pictures.append(PictureFile(entry.path, label, entry.stat().st_size))
    if not pictures:
        kinds = " or ".join(f"{kind}s" for kind in endings)
        raise DataError(
            f"the folder {folder / name} holds no {kinds} ({', '.join(sorted(allowed))}); it is a class, as all folders in "
            f"{folder} are; fill it or remove it"
        )
    return sorted(pictures)


def _is_file(entry: os.DirEntry[str], skips: bool) -> bool:
    try:
        return entry.is_file()
    except OSError:  # such as a link to itself
        if not skips:
            raise
        return False


def check_classes(train: Sequence[str], test: Sequence[str], places: tuple[Path, Path]) -> None:
    """Raise DataError if the training and the test classes differ."""
    different = sorted(set(train) ^ set(test))
    if different:
        raise DataError(
            f"{places[0]} and {places[1]} have different classes: {len(different)} are in one of them only, such as "
            f'"{different[0]}"'
        )


def read_picture(file: str) -> Any:
    """Return a Pillow image in RGB. DataError, with the file's name, if it is damaged or too large."""
    try:
        return decode_picture(file)
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{file}: the picture is damaged: {one_line(error)}; copy it again, or remove it") from error


def decode_picture(file: str) -> Any:
    """Return a Pillow image in RGB. Raises any exception for a damaged picture, ValueError for a picture that is too large."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MOST_PIXELS is the limit here
        with Image.open(file, formats=FORMATS) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise ValueError(f"it has {opened.width} x {opened.height} pixels, of which {MOST_PIXELS:,} are allowed")
            if opened.mode.startswith(("I", "F")):  # Pillow would clip their colours at 255
                raise ValueError(f"it has more than 8 bits of each colour ({opened.mode}); convert it to 8")
            return opened.convert("RGB")


def random_box(width: int, height: int, least_area: float, random: np.random.Generator) -> Box:
    """Return a random crop box: at least `least_area` of the picture's area, with random aspect ratio and place."""
    for _ in range(TRIES):
        area = width * height * random.uniform(least_area, 1.0)
        ratio = np.exp(random.uniform(*np.log(RATIOS)))
        across, down = round(float(np.sqrt(area * ratio))), round(float(np.sqrt(area / ratio)))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(random.integers(width - across + 1)), int(random.integers(height - down + 1))
            return left, top, left + across, top + down
    return central_box(width, height, 1.0)


def central_box(width: int, height: int, ratio: float) -> Box:
    """Return the central square box whose side is the share `ratio` of the picture's shorter side."""
    side = max(1, round(ratio * min(width, height)))
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def cut_out(picture: Any, box: Box, size: int) -> NDArray[np.uint8]:
    """Return the box of a picture, resized with a bilinear filter: uint8 [3, size, size]."""
    from PIL import Image

    resized = picture.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


def normalized(images: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    """Return uint8 pictures [n, 3, h, w] as float32, normalized by ImageNet's mean and standard deviation."""
    mean, deviation = (torch.tensor(values, device=images.device).reshape(-1, 1, 1) for values in (MEAN, DEVIATION))
    return images.contiguous(memory_format=layout).float().sub_(mean).div_(deviation)


@dataclass(frozen=True)
class FolderBatches:
    """Random training batches; if `seed` is None, all pictures in order. Float32, normalized, on the device."""

    pictures: ImageFolder
    settings: ImagenetSettings
    batch: int
    seed: int | None
    device: Any
    layout: torch.memory_format
    share: Share = WHOLE

    def of_share(self, share: Share) -> FolderBatches:
        """Return batches with only this process's share of the pictures of each batch; only these are read."""
        return replace(self, share=share)

    def __len__(self) -> int:
        count = len(self.pictures.entries)
        return count // self.batch if self.seed is not None else -(-count // self.batch)

    def __iter__(self) -> Iterator[Pair]:
        return self.epoch(0)

    def epoch(self, number: int, first: int = 0) -> Iterator[Pair]:
        """Yield the batches of an epoch, see `Batches`. DataError, with the file's name, at the first damaged picture."""
        count = len(self.pictures.entries)
        order = list(range(count)) if self.seed is None else Orders(count, self.seed).of(number).tolist()
        places = [
            [(number, index) for index in order[self.share.part(start, self.batch)]]
            for start in range(first * self.batch, len(self) * self.batch, self.batch)
        ]
        cuda = torch.device(self.device).type == "cuda"
        loader = DataLoader(
            _FolderSamples(self.pictures, self.settings, self.seed),
            batch_sampler=places,
            num_workers=self.settings.workers,
            collate_fn=_together,
            pin_memory=cuda,
            generator=torch.Generator().manual_seed(0),  # otherwise it draws from the global generator
        )
        for made in loader:
            if isinstance(made, DataError):
                raise made
            images, labels = (part.to(self.device, non_blocking=cuda) for part in made)
            yield normalized(images, self.layout), labels


class _FolderSamples(Dataset):  # type: ignore[misc]  # mypy does not look into torch
    """Pictures by epoch and index. Crops depend only on epoch, index and seed, not on the worker process."""

    def __init__(self, pictures: ImageFolder, settings: ImagenetSettings, seed: int | None) -> None:
        self.pictures, self.settings, self.seed = pictures, settings, seed

    def __getitem__(self, place: Place) -> Sample:
        epoch, index = place
        entry, settings = self.pictures.entries[index], self.settings
        try:
            picture = read_picture(entry.file)
        except DataError as error:  # raised by `epoch`, since DataLoader would put its own text around it
            return error
        width, height = picture.size
        if self.seed is None:
            return cut_out(picture, central_box(width, height, settings.test_ratio), settings.size), entry.label
        random = np.random.default_rng([self.seed % 2**63, epoch, index])
        pixels = cut_out(picture, random_box(width, height, settings.least_area, random), settings.size)
        return (pixels[:, :, ::-1] if random.integers(2) else pixels), entry.label


def _together(samples: Sequence[Sample]) -> Pair | DataError:
    """Collate samples into one batch. If errors are among them, return the first error instead."""
    made = []
    for sample in samples:
        if isinstance(sample, DataError):
            return sample
        made.append(sample)
    return torch.from_numpy(np.stack([pixels for pixels, _ in made])), torch.tensor([label for _, label in made])
