"""The protocol between a client and a measuring process, through pipes on one machine or by ssh.

The client sends requests, each a line of JSON, and empty lines as heartbeats. The process sends messages: lines that begin with
MARK, the kind of the message and a space. Other lines, such as those that a login shell prints, are ignored.

The process sends "hello", then "findings" at each change. Findings with a status are the answer to a request.
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
from syno.measure.speedup_record import Measured, OtherCompiler, SpeedupRecord
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject, Status, TuningRecord
from syno.measure.tvm.targets import DeviceSettings

MARK = "syno:"
LOOK_SECONDS = 0.2  # polling interval: polling more often would disturb the measurement
SIGN_OF_LIFE_SECONDS = 10.0  # interval of heartbeats of each side by ssh
SILENCE_SECONDS = 120.0  # after which a connection by ssh counts as lost; Python may take long to start there

# Content by kind: hello: `Code`; findings: `Findings`; about: `About`; fault, warning: a sentence; alive: nothing. A fault is
# not caused by a subject, and ends the connection.
Kind: TypeAlias = Literal["hello", "findings", "about", "fault", "warning", "alive"]


class Request(BaseModel):
    """A request to measure a subject.

    Attributes:
        options: the compiler's own settings, as JSON.
        time_limit_s: seconds after which the process is stopped.
        folder: folder for files that later runs can reuse; empty: none. By ssh, a name for the folder of trials on the other
            machine.
        remote: the settings of a remote `device`; None for a device of this machine.
        measured: "latency": the subject's latency. "network": the speedup of the subject, a network with an operator, over the
            original, timed in turns. "layers": this speedup, by timing each distinct size of the replaced layers.
        original_compiler: the compiler of the original network of a speedup, with its options; None: the same as the subject's.
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
    original_compiler: OtherCompiler | None = None

    @property
    def is_speedup(self) -> bool:
        """Whether the request asks for a speedup, not a latency."""
        return self.measured != "latency"

    @property
    def name(self) -> str:
        """A file name for compiled code: the subject's title, and a hash of the subject and the batch size."""
        text = f"{self.subject.model_dump_json()} {self.settings.batch}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return f"{re.sub(r'[^0-9A-Za-z]+', '-', self.subject.title)}-{digest}"


class Findings(BaseModel):
    """The state of a measurement.

    Attributes:
        phase: the current phase, such as compiling or measuring.
        shortcoming: a sentence if the measured code is not as requested, such as untuned parts; "" otherwise.
        device_name: the name of the device.
        fields: the fields of the record so far.
        count: the progress of tuning.
        status: the status of the finished measurement; None until the end.
        reason: the reason for any status but "ok".
    """

    model_config = ConfigDict(extra="forbid")
    phase: Phase = "starting"
    shortcoming: str = ""
    device_name: str = ""
    fields: dict[str, Any] = {}
    count: TrialCount | None = None
    status: Status | None = None
    reason: str = ""


Tell: TypeAlias = Callable[[Findings], None]  # callback with the findings so far


class Code(BaseModel):
    """The version of a machine's Syno.

    Attributes:
        syno: the version.
        fields: a checksum of the schemas of requests and records, to detect different code with the same version number.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    syno: str
    fields: str

    @classmethod
    def of_this(cls) -> Code:
        """Return the version of this machine's Syno."""
        return cls(syno=VERSION, fields=_fields())

    def difference(self, there: Code) -> str:
        """Return a sentence about the difference between this machine's Syno and another machine's; "" if they are equal."""
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
        python, torch, tvm, cpp: versions (`cpp`: of the C++ compiler); "" if not installed.
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
    """Return a message as one line of the protocol, from its kind and content."""
    return f"{MARK}{kind} {json.dumps(to_jsonable_python(content))}\n"


def parsed(text: str) -> tuple[str, Any] | None:
    """Return the kind and the content of a message; None for a line that is no message."""
    kind, _, content = text.partition(" ")
    if not kind.startswith(MARK):
        return None
    try:
        return kind.removeprefix(MARK), json.loads(content)
    except ValueError:  # cut off
        return None


class Lines:
    """Reads lines from a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest = descriptor, b""

    def read(self) -> list[str] | None:
        """Wait for data, and return the lines that they complete, perhaps none; None at the end of the file."""
        found = os.read(self._descriptor, 2**16)
        if not found:
            return None
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [text.decode(errors="replace") for text in lines]


class Connection(ABC):
    """Connection of the client to a measuring process, which ends with the `with` block.

    Attributes:
        process: the measuring process, or the ssh client that is connected to it.
        heard: `time.monotonic()` of the last message; 0 if there was none.
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
        """End the measuring process and the connection."""

    def send(self, text: str) -> None:
        """Send a line. If the process has ended, this does nothing, and reading notices it."""
        with suppress(BrokenPipeError):
            left = memoryview(f"{text}\n".encode())
            while left:
                left = left[self._input.write(left) or 0 :]

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield messages until the process has ended, and ("", None) several times a second while there is none."""
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
            elif self.process.poll() is not None:  # a descendant that lives longer may hold the pipe open
                return
            else:
                yield "", None


class Asking:
    """Connection of the measuring process to its client, by standard input, which compilers that it starts do not inherit.

    Attributes:
        has_ended: whether the client or the connection has ended.
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
        """Record that the client has ended, so that nobody waits for an answer."""
        self.has_ended = True
        self._requests.put(None)

    def request(self) -> str:
        """Wait for the next request, and return it. Raises BrokenPipeError if the connection ends."""
        text = self._requests.get()
        if text is None:
            raise BrokenPipeError("the connection has ended")
        self._heard = time.monotonic()
        return text

    def require(self) -> None:
        """Raise BrokenPipeError if the connection has ended, or no heartbeat has come for `SILENCE_SECONDS`.

        A network failure does not close the connection on this side; there is only silence.
        """
        if self.has_ended:
            raise BrokenPipeError("the connection has ended")
        if time.monotonic() - self._heard > SILENCE_SECONDS:
            raise BrokenPipeError("the machine that asks is silent")
