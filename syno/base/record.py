"""The base of all records of measurements: one JSON file each, read and written whole, with a checksum."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syno.base.checksums import json_with_checksum, read_json
from syno.base.errors import SpecError
from syno.base.files import write_whole

Number = Annotated[int, Field(ge=0)]  # how many there are
Count = Annotated[int, Field(ge=1)]  # of what there is one of at least
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


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
            write_whole(path, json_with_checksum(json.loads(self.model_dump_json())))

    def _is_in(self, path: Path) -> bool:
        """Whether the file holds the same result. One that cannot be read does not."""
        try:
            other = self.read(path)
        except SpecError:
            return False
        return other.model_dump(exclude=set(self.passing)) == self.model_dump(exclude=set(self.passing))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the record in a file.

        Raises SpecError, which names the file, if it cannot be read, holds no such record, or does not agree with its checksum.
        """
        try:
            return cls.model_validate_json(json.dumps(read_json(path)))  # as JSON, in which dates are text and tuples are lists
        except OSError as error:
            raise SpecError(f"the {cls.kind_of_record} {path} cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
            raise cls._refused(path, problem) from error
        except ValueError as error:
            raise cls._refused(path, str(error)) from error

    @classmethod
    def _refused(cls, path: Path, problem: str) -> SpecError:
        return SpecError(f"{path} holds no {cls.kind_of_record}: {problem}; delete the file and {cls.again} again")


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python, of Syno, and of those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in ("syno", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
