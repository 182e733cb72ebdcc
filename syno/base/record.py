"""The base class of all records of measurements: each is one JSON file with a checksum, read and written as a whole."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError

from syno.base.addresses import cleaned
from syno.base.errors import SpecError
from syno.base.files import check_name, json_with_checksum, read_json, write_whole
from syno.base.interval import Interval
from syno.base.release import VERSION

Number = Annotated[int, Field(ge=0)]  # a count that may be 0
Count = Annotated[int, Field(ge=1)]  # a count of at least 1
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LONGEST_PATH = 250  # characters of a `package.module:name`


def _check_name(name: str) -> str:
    check_name(name.replace(":", ".", 1), "a name", LONGEST_PATH)
    return name


Name = Annotated[str, AfterValidator(_check_name)]  # name of an operator, a network or an experiment, or `package.module:name`


def _check_interval(interval: Interval) -> Interval:
    if not (interval.is_certain and 0 < interval.low <= interval.value <= interval.high):
        raise ValueError(
            f"the value, {interval.value:g}, is not in its interval, {interval.low:g} to {interval.high:g}, or not above 0"
        )
    return interval


# Interval of a time, a speed or a ratio. In a file it is a mapping with named ends, as other values of several numbers are.
PositiveInterval = Annotated[Interval, AfterValidator(_check_interval), PlainSerializer(Interval._asdict)]


class Record(BaseModel):
    """A record in a file of its own. Records are frozen; unknown fields are errors.

    Files may come from strangers. So names are checked (`Name`), and all other texts are passed through `cleaned`: control
    characters, which could hide text or steer a terminal, become escapes.

    Attributes:
        kind_of_record: name of this kind of record in messages.
        again: the command or action that creates the record anew, for messages.
        passing: fields that do not belong to the result, such as the time; `write` ignores them when it compares.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")  # JSON has no inf and nan
    kind_of_record: ClassVar[str]
    again: ClassVar[str]
    passing: ClassVar[frozenset[str]] = frozenset()

    def write(self, path: Path) -> None:
        """Write the record as JSON, atomically. Raises SpecError if it cannot be written.

        A file that already holds the same result is not touched, so its modification time stays: a late job of an interrupted
        workflow does not make later steps run again.
        """
        if not self._is_in(path):
            write_whole(path, json_with_checksum(cleaned(json.loads(self.model_dump_json()))))

    def _is_in(self, path: Path) -> bool:
        """Return whether the file holds a readable record with the same result as this one."""
        try:
            other = self.read(path)
        except SpecError:
            return False
        own, there = (cleaned(record.model_dump(exclude=set(self.passing))) for record in (self, other))
        return bool(own == there)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the record in a file.

        Raises SpecError, which names the file, if it cannot be read, holds no such record, or does not match its checksum.
        """
        try:
            content = cleaned(read_json(path))
            return cls.model_validate_json(json.dumps(content))  # validated as JSON: dates are text, tuples are lists
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
    """Return the versions of Python, of Syno, and of those `packages` that are installed, by name."""
    installed = {"python": platform.python_version(), "syno": VERSION}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed
