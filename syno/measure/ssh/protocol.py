"""The messages between this machine and one that is reached by ssh: lines of text, each with one JSON value.

This machine sends one `Order`, and then an empty line from time to time. The other one sends lines that begin with MARK, the
name of the message and a space. Lines without MARK, such as those that a login shell prints, are ignored.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from typing import IO, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from syno.base.record import versions
from syno.measure.measuring import Findings, Request, SpeedupRequest
from syno.measure.speedup_record import SpeedupRecord
from syno.measure.tuning_record import TuningRecord

MODULE = "syno.measure.remote_measurement"  # what is run on the other machine
MARK = "syno:"
SIGN_OF_LIFE_SECONDS = 10.0  # between two messages of each side
SILENCE_SECONDS = 120.0  # after which a connection counts as lost; Python may take long to start there
MIB = 2**20

# hello: the versions; findings: `Findings`; record: a `TuningRecord`; about: `About`; fault: a sentence; alive: nothing.
# Of speedups: phase: a phase's name; fields: those of a `SpeedupRecord`.
Kind: TypeAlias = Literal["hello", "findings", "record", "about", "fault", "alive", "phase", "fields"]


class Code(BaseModel):
    """The version of a machine's Syno.

    Attributes:
        syno: the version; empty if it is not installed as a package.
        fields: a checksum of the fields of requests and records, by which different code of one version is told apart.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    syno: str
    fields: str

    @classmethod
    def of_this(cls) -> Code:
        """Return the identity of this machine."""
        return cls(syno=versions(()).get("syno", ""), fields=_fields())


class Order(BaseModel):
    """A request to a machine, and the code that wrote it.

    Attributes:
        code: that of the machine that orders.
        request: what to measure. Its folder is a name for trials of a tuner: a later request of that name goes on with them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    code: Code
    request: dict[str, Any]

    @classmethod
    def of(cls, request: Request) -> Order:
        """Return the order for a request."""
        return cls(code=Code.of_this(), request=request.model_dump(mode="json"))


class About(BaseModel):
    """A machine's description of itself.

    Attributes:
        device: the name of the processor or the GPU.
        python, torch, tvm, cpp: versions, the last one of the C++ compiler; empty if not installed.
        free_mib: MiB on the disk with TVM's trials.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    device: str
    python: str
    torch: str
    tvm: str
    free_mib: int
    cpp: str = ""


@cache
def _fields() -> str:
    schemas = [model.model_json_schema() for model in (Request, Findings, TuningRecord, SpeedupRequest, SpeedupRecord)]
    return hashlib.blake2b(json.dumps(schemas, sort_keys=True).encode(), digest_size=8).hexdigest()


def difference(*, here: Code, there: Code) -> str:
    """Return the differences between the Syno of the measuring and of the ordering machine; empty if there are none."""
    if here.syno and there.syno and here.syno != there.syno:
        return f"Syno is {there.syno} there and {here.syno} here: python -m pip install syno=={here.syno}"
    if here.fields != there.fields:
        return "Syno has the same version number there as here, and other code: install the same code"
    return ""


def line(kind: Kind, content: object) -> str:
    """Return a message as a line."""
    return f"{MARK}{kind} {json.dumps(content)}\n"


def send(stream: IO[bytes], text: str) -> None:
    """Write a line to a process. One that does not arrive is noticed by reading its answers."""
    with suppress(BrokenPipeError):
        left = memoryview(f"{text}\n".encode())
        while left:
            left = left[stream.write(left) or 0 :]


def parsed(text: str) -> tuple[str, Any] | None:
    """Return the kind and the content of a message; None for a line that is none."""
    kind, _, content = text.partition(" ")
    if not kind.startswith(MARK):
        return None
    try:
        return kind.removeprefix(MARK), json.loads(content)
    except ValueError:  # cut off
        return None
