"""What a process that measures is asked, and what it answers: through a pipe, or by ssh from another machine.

It is sent requests, a line of JSON each, and an empty line from time to time. It sends messages: lines that begin with MARK,
the name of the message and a space. Lines without MARK, such as those that a login shell prints, are ignored.

A process says hello, then its findings whenever it knows more. The answer to a request is the findings that have a status.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import subprocess
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python

from syno.base.release import DISTRIBUTION, VERSION
from syno.measure.job import Phase, TrialCount
from syno.measure.speedup_record import Measured, SpeedupRecord
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Status, TuningRecord
from syno.measure.tvm.targets import DeviceSettings

MARK = "syno:"
LOOK_SECONDS = 0.2  # between two looks at a process: looking often would slow down what is timed
SIGN_OF_LIFE_SECONDS = 10.0  # between two messages of each side by ssh
SILENCE_SECONDS = 120.0  # after which a connection by ssh counts as lost; Python may take long to start there

# hello: `Code`; findings: `Findings`; about: `About`; fault, warning: a sentence; alive: nothing. A fault has no subject as its
# cause, and ends the answers.
Kind: TypeAlias = Literal["hello", "findings", "about", "fault", "warning", "alive"]


class Request(BaseModel):
    """A request to measure a subject.

    Attributes:
        options: the compiler's own settings, as JSON.
        time_limit_s: seconds after which the process is stopped.
        folder: for files that later runs can use. By ssh, it is a name for trials there. An empty one is for this run.
        remote: the settings of `device`, if it is not one of this machine.
        measured: "latency": of the subject. "network": how many times as fast as the original the subject, a network with an
            operator, is: both are timed in turns; "layers": each distinct size of the replaced layers is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    subject: AnySubject
    compiler: str
    device: str
    settings: LatencySettings
    memory_limit_mib: float | None = None
    time_limit_s: float = 600
    options: dict[str, Any] = {}
    folder: Path = Path()
    remote: DeviceSettings | None = None
    measured: Literal["latency"] | Measured = "latency"

    @property
    def is_speedup(self) -> bool:
        """Whether a speedup is measured."""
        return self.measured != "latency"

    @property
    def name(self) -> str:
        """A name for files of what is compiled: the subject's, and a hash of it and of the batch."""
        text = f"{self.subject.model_dump_json()} {self.settings.batch}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return f"{re.sub(r'[^0-9A-Za-z]+', '-', self.subject.title)}-{digest}"


class Findings(BaseModel):
    """The state of a measurement: fields of the record, the current phase, how far tuning is, and how it ended.

    Where there is a `shortcoming`, the measured code is not quite what was asked for.
    """

    model_config = ConfigDict(extra="forbid")
    phase: Phase = "starting"
    shortcoming: str = ""
    device_name: str = ""
    fields: dict[str, Any] = {}
    count: TrialCount | None = None
    status: Status | None = None
    reason: str = ""


Tell: TypeAlias = Callable[[Findings], None]  # gets what is known so far


class Code(BaseModel):
    """The version of a machine's Syno.

    Attributes:
        syno: the version.
        fields: a checksum of the fields of requests and records, by which different code of one version is told apart.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    syno: str
    fields: str

    @classmethod
    def of_this(cls) -> Code:
        """Return the identity of this machine."""
        return cls(syno=VERSION, fields=_fields())

    def difference(self, there: Code) -> str:
        """Return the differences between this machine's Syno and that of another one; empty if there are none."""
        if self.syno != there.syno:
            return f"Syno is {there.syno} there and {self.syno} here: python -m pip install {DISTRIBUTION}=={self.syno}"
        if self.fields != there.fields:
            return "Syno has the same version number there as here, and other code: install the same code"
        return ""


@cache
def _fields() -> str:
    schemas = [model.model_json_schema() for model in (Request, Findings, TuningRecord, SpeedupRecord)]
    return hashlib.blake2b(json.dumps(schemas, sort_keys=True).encode(), digest_size=8).hexdigest()


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


def line(kind: Kind, content: object) -> str:
    """Return a message as a line."""
    return f"{MARK}{kind} {json.dumps(to_jsonable_python(content))}\n"


def parsed(text: str) -> tuple[str, Any] | None:
    """Return the kind and the content of a message; None for a line that is none."""
    kind, _, content = text.partition(" ")
    if not kind.startswith(MARK):
        return None
    try:
        return kind.removeprefix(MARK), json.loads(content)
    except ValueError:  # cut off
        return None


class Lines:
    """The lines that come from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest = descriptor, b""

    def read(self) -> list[str] | None:
        """Return the lines that come next, perhaps none; None at the end."""
        found = os.read(self._descriptor, 2**16)
        if not found:
            return None
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [text.decode(errors="replace") for text in lines]


class Connection(ABC):
    """A process that measures for this one, in a `with` block, which ends it.

    Attributes:
        process: it, or the client of ssh by which it is reached.
        heard: the time of `time.monotonic` when the last message came; 0 for none.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process, self.heard = process, 0.0
        self._input, self._output, self._lines = process.stdin, process.stdout, Lines(process.stdout.fileno())
        self._unread: deque[tuple[str, Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the process."""

    def send(self, text: str) -> None:
        """Send a line. One that does not arrive is noticed by reading."""
        with suppress(BrokenPipeError):
            left = memoryview(f"{text}\n".encode())
            while left:
                left = left[self._input.write(left) or 0 :]

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the messages, and ("", None) several times a second while there is none, until the process has ended."""
        while True:
            while self._unread:  # several come at once, and the caller may stop after one
                yield self._unread.popleft()
            if select.select([self._output], [], [], LOOK_SECONDS)[0]:
                lines = self._lines.read()
                if lines is None:
                    return
                self._unread.extend(message for message in map(parsed, lines) if message is not None)
                if self._unread:
                    self.heard = time.monotonic()
            elif self.process.poll() is not None:  # and what it has started has the pipe
                return
            else:
                yield "", None


class Asking:
    """The process that asks, at the other end of the standard input. Compilers that this process starts cannot read from there.

    Attributes:
        has_ended: whether it, or its connection, has ended.
    """

    def __init__(self) -> None:
        self._requests: SimpleQueue[str | None] = SimpleQueue()
        self._lines, self._heard, self.has_ended = Lines(os.dup(0)), time.monotonic(), False
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while (lines := self._lines.read()) is not None:
            self._heard = time.monotonic()
            for text in filter(None, lines):
                self._requests.put(text)
        self.ended()

    def ended(self) -> None:
        """Note that nobody waits for an answer any more."""
        self.has_ended = True
        self._requests.put(None)

    def request(self) -> str:
        """Return the next line that is not empty. Raises BrokenPipeError if the connection ends before."""
        text = self._requests.get()
        if text is None:
            raise BrokenPipeError("the connection has ended")
        self._heard = time.monotonic()
        return text

    def require(self) -> None:
        """Raise BrokenPipeError if the connection has ended, or nothing came for long.

        A network that fails does not end the connection on this side; then the other one is silent.
        """
        if self.has_ended:
            raise BrokenPipeError("the connection has ended")
        if time.monotonic() - self._heard > SILENCE_SECONDS:
            raise BrokenPipeError("the machine that asks is silent")
