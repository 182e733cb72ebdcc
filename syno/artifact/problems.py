"""What is wrong with a copy of the published data: what is missing, what cannot be read, what contradicts itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict

from syno.base.errors import DataError

EXPECTED = ("vision", "gpt2")  # either is enough
WANTED = "give a checkout of the paper's artifact, or the data folder in it"
SHOWN = 6  # names in a message


class Problem(BaseModel):
    """A file or a folder, by its place in the data, and what is wrong with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def find_data(given: Path) -> Path:
    """The data folder: what is given, or `data` in it. DataError if it is neither; it says what is there instead."""
    if not given.is_dir():
        raise DataError(f"{given} is {'no folder' if given.exists() else 'not there'}; {WANTED}")
    for folder in (given, given / "data"):
        if any((folder / name).is_dir() for name in EXPECTED):
            return folder
    found = sorted(entry.name for entry in given.iterdir())
    if not found:
        raise DataError(f"{given} is empty; {WANTED}")
    names = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
    folders = " nor ".join(EXPECTED)
    raise DataError(f"{given} holds no artifact: neither {folders} is in it or in its data; {WANTED}; it has: {names}")


def missing(data: Path, expected: Iterable[PurePosixPath]) -> list[Problem]:
    """What is not there of what is expected: a folder that is missing stands for all that should be in it."""
    tops = Counter(_top(data, place) for place in expected if not (data / place).exists())
    return [
        Problem(place=str(place), what="missing" if count == 1 else f"missing, and with it {count} of the files expected there")
        for place, count in sorted(tops.items())
    ]


def _top(data: Path, place: PurePosixPath) -> PurePosixPath:
    """The outermost folder around it that is missing, or itself."""
    for parent in reversed(place.parents[:-1]):
        if not (data / parent).exists():
            return parent
    return place
