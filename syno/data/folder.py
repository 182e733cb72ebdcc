"""A user's own pictures or sounds: a folder with one subfolder for each class, which is read once into memory."""

from __future__ import annotations

import json
import os
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from syno.base.errors import DataError, SpecError, one_line
from syno.base.files import checksum
from syno.base.text_tables import in_bytes
from syno.data.contract import DATASETS, content_hash, described, generator_of
from syno.data.files import no_own_folder
from syno.data.image_folder import ENDINGS, ImageFolder, check_classes, decode_picture, find_samples, is_hidden, left_out_text
from syno.data.pictures import TENSORS, Augmentation, DataSet, check_fits, colours, read_arrays, write_arrays
from syno.data.settings import FolderSettings

FORMAT = 1
SOUNDS = frozenset({".wav"})
KINDS = {"picture": ENDINGS, "sound": SOUNDS}
TRAIN, TESTS = "train", ("val", "valid", "validation", "test")  # of the test folders, the first that exists
OF_PICTURES, OF_SOUNDS = frozenset({"size", "grey", "recipe", "augmentation"}), frozenset({"seconds"})  # settings
MOST_BYTES = 2**32  # largest size of all samples in memory
MOST_SOUND_BYTES = 2**30  # largest size of a sound file

Samples = tuple[NDArray[Any], NDArray[np.int64]]  # [n, channels, ...], and their classes


@DATASETS.register("folder")
def folder(**settings: Any) -> DataSet:
    """Return the pictures or sounds in a folder as a data set. Each subfolder is a class; classes are sorted by name.

    A warning names the files that are skipped: hidden folders, and unreadable files. The samples are stored in a cache file,
    which is loaded until the folder changes.

    Args:
        settings: fields of FolderSettings.

    Raises:
        SpecError, UnknownNameError: a setting is unknown, missing, or for the other kind of samples.
        DataError: the folder is missing, has samples of fewer than two classes, of different sizes or rates, or too many.
    """
    chosen = FolderSettings.of(**settings)
    source = _find(chosen)
    content = _load(source) or _prepare(source)
    for text in json.loads(str(content["said"])):
        warnings.warn(text, stacklevel=2)
    images, labels, test_images, test_labels = (torch.from_numpy(content[name]) for name in TENSORS)
    augmentation = None
    if not source.are_sounds:
        check_fits(chosen.augmented, images.shape[-2:])
        mean, deviation = (tuple(map(float, content[name])) for name in ("mean", "deviation"))
        augmentation = Augmentation(chosen.augmented, mean, deviation)
    name, classes = chosen.folder.resolve().name, len(source.parts[0].names)
    return DataSet(name, images, labels, test_images, test_labels, classes, str(content["hash"]), augmentation)


@dataclass(frozen=True)
class _Source:
    """The files of a folder.

    Attributes:
        settings: settings of the data set.
        parts: files of the training and of the test samples; or of all samples, which are then split.
        are_sounds: whether they are sounds, not pictures.
        left_out: names of skipped folders and files, each with the reason.
    """

    settings: FolderSettings
    parts: tuple[ImageFolder, ...]
    are_sounds: bool
    left_out: tuple[str, ...]

    @property
    def made_from(self) -> str:
        """Cache key: a hash that changes with any file, class or setting."""
        entries = [entry for part in self.parts for entry in part.entries]
        labels, files = [entry.label for entry in entries], described([Path(entry.file) for entry in entries])
        return checksum(f"{FORMAT} {self._key} {labels} {files} {self.left_out}".encode())

    @property
    def prepared(self) -> Path:
        """The cache file of the samples."""
        return self.settings.prepared / f"{self.settings.folder.resolve().name}-{checksum(self._key.encode())[:12]}.npz"

    @property
    def _key(self) -> str:
        known = self.settings.model_dump(mode="json", include={"test", "seed", "size", "grey", "seconds"})
        return f"{self.settings.folder.resolve()} {json.dumps(known)}"


def _find(settings: FolderSettings) -> _Source:
    """Find the files of the folder. Raises the errors of `folder`, except those about the content of files."""
    left_out: list[str] = []
    parts = []
    for place in _parts(settings.folder, left_out):
        of_part: list[str] = []
        parts.append(find_samples(place, KINDS, of_part, skips=True))
        left_out += [str((place / text).relative_to(settings.folder)) for text in of_part]
    if len(parts) == 2:
        check_classes(parts[0].names, parts[1].names, (parts[0].folder, parts[1].folder))
    if len(names := parts[0].names) < 2:
        raise DataError(f'{parts[0].folder} has one class, "{names[0]}"; it must have a folder for each of at least two')
    examples = {Path(entry.file).suffix.lower() in SOUNDS: entry.file for part in parts for entry in part.entries}
    if len(examples) == 2:
        raise DataError(
            f"{settings.folder} has sounds, such as {examples[True]}, and pictures, such as {examples[False]}; it must have "
            "samples of one kind"
        )
    kind, others, instead = ("sounds", OF_PICTURES, "seconds") if True in examples else ("pictures", OF_SOUNDS, "size")
    if wrong := sorted(settings.model_fields_set & others):
        raise SpecError(
            f"workload.data_settings: {', '.join(wrong)} says nothing of {kind}, which {settings.folder} has; their size is "
            f"set by {instead}"
        )
    return _Source(settings, tuple(parts), True in examples, tuple(left_out))


def _parts(place: Path, left_out: list[str]) -> list[Path]:
    """Return the folders with the training and the test samples; or only the folder itself, which is then split.

    A folder `train` without subfolders is a class like any other.
    """
    if not place.is_dir():
        raise no_own_folder(place)
    try:
        names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir())
        if TRAIN not in names or not any(child.is_dir() and not is_hidden(child.name) for child in os.scandir(place / TRAIN)):
            return [place]
    except OSError as error:
        raise DataError(f"{error.filename or place} cannot be read: {error.strerror or error}") from error
    test = next((name for name in TESTS if name in names), None)
    if test is None:
        raise DataError(
            f"{place} has the folder {TRAIN}, but no {', '.join(TESTS[:-1])} or {TESTS[-1]} beside it, to test on; add one, or "
            f"name {place / TRAIN}, of which a share is then drawn to test on"
        )
    left_out += [f"{name} (neither {TRAIN} nor {test})" for name in names if name not in (TRAIN, test)]
    return [place / TRAIN, place / test]


class _UnreadableError(Exception):
    """A file that contains no sample. The message says why."""


class _Reader(ABC):
    """Reads files, and checks that all samples have the same shape.

    Attributes:
        first: file and shape of the first sample.
    """

    unit: ClassVar[str]
    setting: ClassVar[str]  # the setting that gives all samples one shape

    def __init__(self, settings: FolderSettings) -> None:
        self.settings = settings
        self.first: tuple[str, tuple[int, ...]] | None = None

    @abstractmethod
    def _read(self, file: str) -> NDArray[Any]: ...

    def read(self, file: str) -> NDArray[Any]:
        """Read a sample. Raises _UnreadableError if the file has none, DataError if its shape is not the first sample's."""
        sample = self._read(file)
        self.first = self.first or (file, sample.shape)
        if sample.shape != self.first[1]:
            expected, actual = (" x ".join(map(str, lengths[1:])) for lengths in (self.first[1], sample.shape))
            raise DataError(
                f"{self.first[0]} has {expected} {self.unit}, and {file} {actual}; say which size all shall have, as with "
                f"data_settings: {{{self.setting}}}"
            )
        return sample

    def said(self) -> list[str]:
        """Return sentences about changes that reading made to the samples, such as cropping or padding."""
        return []


class _Pictures(_Reader):
    unit, setting = "pixels", "size: 64"

    def _read(self, file: str) -> NDArray[np.uint8]:
        """Read a picture: uint8 [channels, height, width]. With a size, the largest central crop is resized to it."""
        from PIL import Image, ImageOps

        try:
            picture = ImageOps.exif_transpose(decode_picture(file))  # rotates as the camera's EXIF orientation says
        except Exception as error:  # a damaged file raises anything
            raise _UnreadableError(one_line(error)) from error
        if (size := self.settings.size) is not None:
            height, width = (size, size) if isinstance(size, int) else size
            scale = min(picture.height / height, picture.width / width)
            left, top = (picture.width - scale * width) / 2, (picture.height - scale * height) / 2
            box = (left, top, left + scale * width, top + scale * height)
            picture = picture.resize((width, height), Image.Resampling.BILINEAR, box=box)
        return np.asarray(picture.convert("L"))[None] if self.settings.grey else np.asarray(picture).transpose(2, 0, 1)


class _Sounds(_Reader):
    """Reads sounds, and counts those that are cut or padded."""

    unit, setting = "samples", "seconds: 1.0"
    rate = longer = shorter = 0

    def _read(self, file: str) -> NDArray[np.float32]:
        """Read a sound: float32 [1, samples]."""
        rate, sound = _wave(file)
        if self.first is not None and rate != self.rate:
            raise DataError(
                f"{self.first[0]} has {self.rate:,} samples in a second, and {file} {rate:,}; all sounds must have one rate, "
                "as nothing is resampled here: convert them, as with `ffmpeg -i old.wav -ar 16000 new.wav`"
            )
        self.rate = rate
        if (seconds := self.settings.seconds) is not None:
            length = max(round(seconds * rate), 1)
            self.longer += len(sound) > length
            self.shorter += len(sound) < length
            sound = np.pad(sound[:length], (0, max(length - len(sound), 0)))
        return sound[None]

    def said(self) -> list[str]:
        """Return a sentence with the numbers of sounds that are cut or padded."""
        if not self.longer and not self.shorter:
            return []
        return [
            f"of the sounds, which have {self.rate:,} samples in a second, {self.longer} are longer than "
            f"{self.settings.seconds:g} seconds and lose their end, and {self.shorter} are shorter and end with silence"
        ]


def _wave(file: str) -> tuple[int, NDArray[np.float32]]:
    """Return the sample rate in Hz and the samples of a WAV file, averaged over its channels. Raises _UnreadableError."""
    from scipy.io import wavfile

    try:
        if (size := Path(file).stat().st_size) > MOST_SOUND_BYTES:
            raise ValueError(f"it has {in_bytes(size)}, of which {in_bytes(MOST_SOUND_BYTES)} are allowed")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # about chunks other than sound, such as a title
            warnings.filterwarnings("error", "Reached EOF", wavfile.WavFileWarning)
            # Read from memory, where a length beyond the end is truncated; from a file, it would be allocated in memory.
            rate, samples = wavfile.read(BytesIO(Path(file).read_bytes()))
        kind = samples.dtype
        if not len(samples):
            raise ValueError("it is empty")
        if kind.kind == "u":
            samples = (samples.astype(np.float64) - 2.0 ** (8 * kind.itemsize - 1)) / 2.0 ** (8 * kind.itemsize - 1)
        elif kind.kind == "i":
            samples = samples / 2.0 ** (8 * kind.itemsize - 1)
        sound = samples.reshape(len(samples), -1).mean(1).astype(np.float32)
        if rate <= 0 or not np.isfinite(sound).all():
            raise ValueError("it has no rate, or samples that are no numbers")
    except Exception as error:  # a damaged file raises anything
        raise _UnreadableError(one_line(error)) from error
    return int(rate), sound


def _read(part: ImageFolder, reader: _Reader, left_out: list[str]) -> Samples:
    """Return the readable samples of a folder and their classes; names of unreadable files are added to `left_out`."""
    samples, labels, unreadable = np.empty(0), list[int](), dict[int, str]()
    for entry in part.entries:
        try:
            sample = reader.read(entry.file)
        except _UnreadableError as error:
            unreadable[entry.label] = f"{Path(entry.file).relative_to(reader.settings.folder)} (cannot be read: {error})"
            left_out.append(unreadable[entry.label])
            continue
        if not labels:
            _check_bytes(part, sample)
            samples = np.empty((len(part.entries), *sample.shape), sample.dtype)
        samples[len(labels)] = sample
        labels.append(entry.label)
    if empty := [label for label in unreadable if label not in labels]:
        name = part.folder / part.names[empty[0]]
        raise DataError(f"no file of the class {name} can be read, such as {unreadable[empty[0]]}; repair it, or remove it")
    return samples[: len(labels)], np.array(labels, np.int64)


def _check_bytes(part: ImageFolder, sample: NDArray[Any]) -> None:
    """Raise DataError if the samples would exceed MOST_BYTES in memory."""
    if (size := len(part.entries) * sample.nbytes) > MOST_BYTES:
        raise DataError(
            f"{part.folder} has {len(part.entries):,} samples, which are {in_bytes(size)} in memory; {in_bytes(MOST_BYTES)} "
            "are allowed; make them smaller, or read pictures anew in every epoch, with data: imagenet and "
            "data_settings: {reader: torch}"
        )


def _load(source: _Source) -> dict[str, Any] | None:
    """Return the arrays in the cache file `prepared`; None if it is missing, or if the folder has changed."""
    if not source.prepared.is_file():
        return None
    try:
        content = read_arrays(source.prepared)
        is_same = str(content["made_from"]) == source.made_from
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{source.prepared} is damaged: {one_line(error)}; delete it, and it is made again") from error
    return content if is_same else None


def _prepare(source: _Source) -> dict[str, Any]:
    """Read all samples, write the cache file `prepared`, and return its arrays."""
    made_from, left_out = source.made_from, list(source.left_out)
    reader = _Sounds(source.settings) if source.are_sounds else _Pictures(source.settings)
    read = [_read(part, reader, left_out) for part in source.parts]
    train, test = read if len(read) == 2 else _split(source, *read[0])
    content: dict[str, Any] = dict(zip(TENSORS, (*train, *test), strict=True))
    tensors = [torch.from_numpy(content[name]) for name in TENSORS]
    if not source.are_sounds:
        mean, deviation = colours(tensors[0])
        content |= {"mean": np.array(mean), "deviation": np.array(deviation)}
    said = [f"{source.settings.folder}: {text}" for text in (*left_out_text(left_out), *reader.said())]
    content |= {"hash": np.array(content_hash(*tensors)), "made_from": np.array(made_from), "said": np.array(json.dumps(said))}
    write_arrays(source.prepared, content)
    return content


def _split(source: _Source, samples: NDArray[Any], labels: NDArray[np.int64]) -> tuple[Samples, Samples]:
    """Split the samples: a random share of each class, at least one sample, is for testing. Returns (training, test)."""
    is_drawn = np.zeros(len(labels), bool)
    for label, name in enumerate(source.parts[0].names):
        places = np.flatnonzero(labels == label)
        if len(places) < 2:
            raise DataError(
                f'{source.parts[0].folder}: the class "{name}" has one file that can be read; it must have one to train on and '
                "one to test on"
            )
        count = min(max(round(source.settings.test * len(places)), 1), len(places) - 1)
        order = torch.randperm(len(places), generator=generator_of(source.settings.seed, label)).numpy()
        is_drawn[places[order[:count]]] = True
    return (samples[~is_drawn], labels[~is_drawn]), (samples[is_drawn], labels[is_drawn])
