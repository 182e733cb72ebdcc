"""What all records of measurements have in common: one JSON file each, read and written whole."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from syno.errors import SpecError
from syno.files import write_whole


class Record(BaseModel):
    """A record in a file of its own. Frozen; unknown names are errors.

    Attributes:
        kind_of_record: what it is, in words, for messages.
        again: what makes it anew, for messages.
        passing: fields in which records of the same result differ, such as when it was found.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")  # which JSON has no numbers for
    kind_of_record: ClassVar[str]
    again: ClassVar[str]
    passing: ClassVar[frozenset[str]] = frozenset()

    def write(self, path: Path) -> None:
        """Write it as JSON; readers see the file whole or not at all. SpecError if that is not possible.

        A file that holds the same result stays as it is. So a job that outlived its workflow, and ends after what follows from
        its twin's record has been made, does not have that made again.
        """
        if not self._is_in(path):
            write_whole(path, self.model_dump_json(indent=1) + "\n")

    def _is_in(self, path: Path) -> bool:
        """Whether the file holds the same result. One that cannot be read does not."""
        try:
            other = self.read(path)
        except SpecError:
            return False
        return other.model_dump(exclude=set(self.passing)) == self.model_dump(exclude=set(self.passing))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in a file. SpecError, which names the file, if it cannot be read or holds no such record."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise SpecError(f"the {cls.kind_of_record} {path} cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise SpecError(
                f"{path} holds no {cls.kind_of_record}: {place}: {first['msg']}; delete the file and {cls.again} again"
            ) from error


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python, of Syno, and of those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in ("syno", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
