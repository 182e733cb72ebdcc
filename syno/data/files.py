"""The files of data sets: which files exist, how large they are, and how to get missing ones.

Nothing is decoded here; neither torch nor libraries that read the files are loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from syno.base.errors import DataError, MissingPackageError
from syno.base.release import pip_install
from syno.base.text_tables import in_bytes
from syno.data.settings import Cifar100Settings, FolderSettings, ImagenetSettings, Lm1bSettings

SPLITS = ("train", "test")

PATTERNS = ("{split}-*.parquet", "*/{split}-*.parquet", "{split}/*.parquet", "*/{split}/*.parquet")


def parquet_files(folder: Path, split: str) -> list[Path]:
    """Return the Parquet files of a split, such as `train-00000-of-00002.parquet`; [] for none.

    DataError if only some exist.
    """
    for pattern in PATTERNS:
        files = sorted(folder.glob(pattern.format(split=split)))
        if files:
            break
    counted = [re.search(r"-(\d+)-of-(\d+)\.parquet$", file.name) for file in files]
    if files and all(counted):
        total = max(int(match[2]) for match in counted if match)
        there = {int(match[1]) for match in counted if match}
        absent = [number for number in range(total) if number not in there]
        if absent:
            raise DataError(
                f"{files[0].parent} has {len(files)} of the {total} files of {split}; missing is, for one, "
                f"{split}-{absent[0]:05d}-of-{total:05d}.parquet; copy the folder again"
            )
    return files


def not_at_hand(settings: Cifar100Settings | Lm1bSettings, absent: str) -> DataError:
    """Return the error for missing data whose download is not allowed; `absent` says which files are missing."""
    return DataError(
        f"{absent}; and the cache of `datasets` has no {settings.repository}. Get it with `{how_to_download(settings)}`, or "
        "with data_settings: {download: true}, or name its folder with data_settings: {folder: ...}"
    )


def how_to_download(settings: Cifar100Settings | Lm1bSettings) -> str:
    """Return the command that downloads a repository of the Hub to the data set's folder."""
    return f"hf download {settings.repository} --repo-type dataset --local-dir {settings.folder}"


def copy_of_hub(repository: str) -> Path:
    """Return the folder in which the library `datasets` caches a repository."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface").expanduser()
    place = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    return place / repository.replace("/", "___")


PICKLES = ("cifar-100-python/{split}", "{split}")


def cifar100_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a split of CIFAR-100, Parquet files or a pickle; an empty list if there are none."""
    return parquet_files(folder, split) or pickles(folder, split)


def pickles(folder: Path, split: str) -> list[Path]:
    """Return the authors' pickle of a split, in a list; an empty list if it does not exist."""
    return [file for pattern in PICKLES if (file := folder / pattern.format(split=split)).is_file()][:1]


def no_cifar100(folder: Path, split: str) -> str:
    """Return the message that a folder has no files of a split of CIFAR-100."""
    return (
        f"there is no CIFAR-100 ({split}) in the folder {folder}: neither cifar100/{split}-*.parquet nor "
        f"cifar-100-python/{split}"
    )


SYSTEM = "g++ python3-dev pkg-config libopencv-dev libturbojpeg0-dev"  # packages with which FFCV is built


def record_file(beton: Path) -> Path:
    """Return the path of a beton file's record."""
    return beton.with_name(f"{beton.name}.json")


def no_folder_of_pictures(folder: Path) -> DataError:
    """Return the error for a missing folder of pictures."""
    return DataError(
        f"there is no folder {folder}; it must hold a folder of JPEG files for each class, as the ILSVRC 2012 archives of "
        "https://image-net.org do when they are unpacked"
    )


def no_ffcv(reason: str) -> MissingPackageError:
    """Return the error for a missing or broken FFCV, with the command to install it."""
    return MissingPackageError(
        f"FFCV cannot be imported ({reason}): apt-get install -y --no-install-recommends {SYSTEM} "
        f"&& {pip_install('imagenet')}; or read the folders themselves, with data_settings: {{reader: torch}}"
    )


def no_own_folder(folder: Path) -> DataError:
    """Return the error for a user's missing folder of samples."""
    return DataError(
        f"there is no folder {folder} (looked for in {Path.cwd()}); it must hold a folder of pictures or sounds for each "
        "class; name it with data_settings: {folder: ...}"
    )


OF_TOKENIZER = (("tokenizer.json",), ("vocab.json", "merges.txt"))  # alternative sets of files


def no_text(folder: Path, split: str) -> str:
    """Return the message that a folder has no files of a split of a text."""
    return f"there is no text ({split}) in the folder {folder}: no {split}-*.parquet and no {split}/*.parquet"


def token_files(settings: Lm1bSettings) -> list[Path]:
    """Return the paths of the token files that `lm1b` writes."""
    return [settings.prepared / f"{split}.tokens" for split in SPLITS]


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of a tokenizer. DataError, with the command to get GPT-2's, if there are none."""
    for names in OF_TOKENIZER:
        files = [folder / name for name in names]
        if all(file.is_file() for file in files):
            return files
    raise DataError(
        f"there is no tokenizer in {folder}: neither tokenizer.json, nor vocab.json and merges.txt; get GPT-2's with "
        f"`hf download openai-community/gpt2 tokenizer.json --local-dir {folder}`"
    )


def no_tokenizers() -> MissingPackageError:
    """Return the error for the missing package `tokenizers`."""
    return MissingPackageError(f"tokenizers is not installed: {pip_install('text')}")


@dataclass(frozen=True)
class DataFound:
    """Description of a part of a data set on this machine. `is_known` is False if it depends on a future download."""

    text: str
    is_known: bool = True


def look_for(data: str, settings: Mapping[str, Any]) -> dict[str, Callable[[], DataFound]]:
    """Return functions that look for the parts of a data set, by the part's name; {} for generated data.

    Each function returns a description, or raises DataError or MissingPackageError with a remedy.
    """
    match data:
        case "cifar100":
            pictures = Cifar100Settings.of(**settings)
            return {"pictures": lambda: _look_for_cifar100(pictures)}
        case "folder":
            own = FolderSettings.of(**settings)
            return {"folder": lambda: _look_for_own_folder(own.folder)}
        case "imagenet":
            images = ImagenetSettings.of(**settings)
            package = {"FFCV": _look_for_ffcv} if images.reader == "ffcv" else {}
            return {"pictures": lambda: _look_for_imagenet(images), **package}
        case "lm1b":
            text = Lm1bSettings.of(**settings)
            tokenizer = {} if text.tokenizer is None else {"tokenizer": lambda: _look_for_tokenizer(text)}
            return {"text": lambda: _look_for_text(text), **tokenizer}
    return {}


def _look_for_cifar100(settings: Cifar100Settings) -> DataFound:
    is_made = settings.prepared.is_file()
    return _files([settings.prepared]) if is_made else _of_splits(settings, cifar100_files, no_cifar100)


def _look_for_text(settings: Lm1bSettings) -> DataFound:
    made = token_files(settings)
    return _files(made) if all(file.is_file() for file in made) else _of_splits(settings, parquet_files, no_text)


def _look_for_tokenizer(settings: Lm1bSettings) -> DataFound:
    assert settings.tokenizer is not None
    files = _files(tokenizer_files(settings.tokenizer))
    if find_spec("tokenizers") is None:
        raise no_tokenizers()
    return files


def _look_for_imagenet(settings: ImagenetSettings) -> DataFound:
    if settings.reader == "ffcv" and all(file.is_file() and record_file(file).is_file() for file in settings.betons):
        return _files(settings.betons)
    folders = [beton.with_suffix("") for beton in settings.betons]
    for folder in folders:
        if not folder.is_dir():
            raise no_folder_of_pictures(folder)
    return DataFound(f"the folders {folders[0]} and {folders[1]}")  # counting a million files may take minutes


def _look_for_own_folder(folder: Path) -> DataFound:
    if not folder.is_dir():
        raise no_own_folder(folder)
    return DataFound(f"the folder {folder}")


def _look_for_ffcv() -> DataFound:
    try:
        return DataFound(f"ffcv {version('ffcv')}")
    except PackageNotFoundError:
        raise no_ffcv("it is not installed") from None


def _of_splits(
    settings: Cifar100Settings | Lm1bSettings,
    files_of: Callable[[Path, str], list[Path]],
    absent: Callable[[Path, str], str],
) -> DataFound:
    """Return the description of both splits: files in the folder, a copy of the repository, or a future download."""
    by_split = {split: files_of(settings.folder, split) for split in SPLITS}
    if all(by_split.values()):
        return _files(file for files in by_split.values() for file in files)
    for folder in (Path(settings.repository), copy_of_hub(settings.repository)):
        if folder.is_dir():
            return DataFound(f"a copy of the repository in {folder}")
    if not settings.download:
        raise not_at_hand(settings, absent(settings.folder, next(split for split in SPLITS if not by_split[split])))
    size = in_bytes(settings.source_bytes)
    return DataFound(f"{size} will be downloaded from the Hub, {settings.repository}", is_known=False)


def _files(files: Iterable[Path]) -> DataFound:
    existing = list(files)
    where = existing[0] if len(existing) == 1 else existing[0].parent
    return DataFound(f"{in_bytes(sum(file.stat().st_size for file in existing))} in {where}")
