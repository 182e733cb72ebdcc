"""The files of the published data, a reader for each kind. Each raises ParseError that says what is wrong with the file."""

from __future__ import annotations

import csv
import json
from math import isfinite
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syno.algebra.limits import MOST_JSON_BYTES, shortened
from syno.base.errors import ParseError, suggestion

META, META_AGAIN = "meta.json", "meta_new.json"  # the second: trained again, in more layers
LONGEST_VALUE = 60  # characters of a wrong value in a message


class PublishedFile(BaseModel):
    """A published JSON object. Values have exactly the types of the fields; other entries are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Meta(PublishedFile):
    """The `meta.json` of an operator in a network. Zero means that a number was not measured.

    Attributes:
        path: The operator's path in the search that found it; folders with equal paths hold one operator.
        accuracy: Accuracy of the whole network, in [0, 1].
        loss: Loss of the whole network, in nats per token.
        flops: Multiply-adds of the whole network, for one sample.
        params: Parameters of the whole network.
    """

    path: Annotated[str, Field(min_length=1)]
    accuracy: float = 0.0
    loss: float = 0.0
    flops: int = 0
    params: int = 0


class PublishedLatency(NamedTuple):
    """A mean latency of one call in milliseconds, and the number of repeats (None if unknown)."""

    milliseconds: float
    repeats: int | None


class TrainingStep(NamedTuple):
    """A step of a training: seconds since the first step, and the loss in nats per token."""

    seconds: float
    loss: float


Published = TypeVar("Published", bound=PublishedFile)


def read_json(file: Path, kind: type[Published]) -> Published:
    """Return the object in a JSON file.

    Raises ParseError that names the first wrong entry; its message does not name the file.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_JSON_BYTES + 1)
        if len(content) > MOST_JSON_BYTES:
            raise ParseError(f"more than {MOST_JSON_BYTES} bytes, which are the most allowed")
        given = json.loads(content.decode("utf-8"))
    except ParseError:
        raise
    except RecursionError:
        raise ParseError("cannot be read as JSON: too many lists and objects inside each other") from None
    except (OSError, ValueError) as error:  # ValueError: not JSON, or not UTF-8
        raise ParseError(f"cannot be read as JSON: {error}") from error
    try:
        return kind.model_validate_json(json.dumps(given))  # as JSON, in which tuples are lists
    except ValidationError as error:
        first = error.errors()[0]
        *around, last = first["loc"] or ("the file",)
        place = "".join(f"{part}: " for part in around)
        if first["type"] == "missing":
            raise ParseError(f'{place}no entry "{last}".{suggestion(str(last), first["input"])}') from None
        value = shortened(json.dumps(first["input"]), LONGEST_VALUE)
        raise ParseError(f'{place}"{last}": {first["msg"]}; it has {value}') from None


def read_latency(file: Path) -> PublishedLatency:
    """Return the latency in a file: TVM's table of seconds (`.csv`), or TorchInductor's single number in milliseconds."""
    text = _text(file)
    try:
        found = _table(text) if file.suffix == ".csv" else PublishedLatency(float(text), None)
    except ValueError as error:
        raise ParseError(f"holds no latency: {error}") from None
    if not (isfinite(found.milliseconds) and found.milliseconds > 0):
        raise ParseError(f"holds no latency: {found.milliseconds:g} ms")
    return found


def _table(text: str) -> PublishedLatency:
    rows = [row for row in csv.reader(text.splitlines()) if row]
    means = [place for place, row in enumerate(rows) if row[0] == "latency_mean" and len(row) == 2]
    if not means:
        raise ValueError("no row latency_mean")
    repeats = [float(row[0]) for row in rows[means[0] + 1 :]]  # below it, one in each row
    return PublishedLatency(1e3 * float(rows[means[0]][1]), len(repeats) or None)


def read_losses(file: Path) -> list[TrainingStep]:
    """Return the log of a training, which is a list of pairs: the loss, and the time at which it was written."""
    try:
        pairs = json.loads(_text(file).replace("(", "[").replace(")", "]"))
        steps = [(float(loss), float(time)) for loss, time in pairs]
    except (ValueError, TypeError, RecursionError) as error:
        raise ParseError(f"holds no list of pairs of a loss and a time: {error}") from None
    if not steps:
        raise ParseError("holds no step")
    return [TrainingStep(time - steps[0][1], loss) for loss, time in steps]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ParseError("is no text") from None
