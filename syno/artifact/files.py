"""The files of the published data, one reader for each kind. Each raises ParseError that says what is wrong with the file."""

from __future__ import annotations

import csv
import json
from math import isfinite
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syno.base.errors import ParseError

META, META_AGAIN = "meta.json", "meta_new.json"  # the second: trained again, in more layers


class Latency(NamedTuple):
    """Of one call, in milliseconds: a mean over so many repeats, if that is known."""

    milliseconds: float
    repeats: int | None


class Meta(BaseModel):
    """What is known of an operator in a network. Zero means that a figure was not measured."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    path: Annotated[str, Field(min_length=1)]  # in the search that found it: folders with equal paths hold one operator
    accuracy: float | None = None
    loss: float | None = None
    flops: int | None = None
    params: int | None = None


class Step(NamedTuple):
    """A step of a training: seconds since the first, and the loss, in nats per token."""

    seconds: float
    loss: float


def read_latency(file: Path) -> Latency:
    """A latency: of TVM, a table whose figures are seconds (`.csv`); of TorchInductor, one number in milliseconds."""
    text = _text(file)
    try:
        found = _table(text) if file.suffix == ".csv" else Latency(float(text), None)
    except ValueError as error:
        raise ParseError(f"holds no latency: {error}") from None
    if not (isfinite(found.milliseconds) and found.milliseconds > 0):
        raise ParseError(f"holds no latency: {found.milliseconds:g} ms")
    return found


def _table(text: str) -> Latency:
    rows = [row for row in csv.reader(text.splitlines()) if row]
    means = [place for place, row in enumerate(rows) if row[0] == "latency_mean" and len(row) == 2]
    if not means:
        raise ValueError("no row latency_mean")
    repeats = [float(row[0]) for row in rows[means[0] + 1 :]]  # below it, one in each row
    return Latency(1e3 * float(rows[means[0]][1]), len(repeats) or None)


def read_meta(file: Path) -> Meta:
    """The figures beside an operator."""
    try:
        return Meta.model_validate_json(_text(file))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ParseError(f"{place}: {first['msg']}") from None


def read_losses(file: Path) -> list[Step]:
    """The log of a training: a list of pairs, the loss and the time at which it was written."""
    try:
        pairs = json.loads(_text(file).replace("(", "[").replace(")", "]"))
        steps = [(float(loss), float(time)) for loss, time in pairs]
    except (ValueError, TypeError, RecursionError) as error:
        raise ParseError(f"holds no list of pairs of a loss and a time: {error}") from None
    if not steps:
        raise ParseError("holds no step")
    return [Step(time - steps[0][1], loss) for loss, time in steps]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ParseError("is no text") from None
