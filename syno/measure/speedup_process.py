"""The process that measures speedups, one after another: it reads requests, a line of JSON each, and answers in messages.

The messages are those of `syno.measure.ssh.protocol`: the phases of a measurement, and then the fields of its record, or a
fault of a device. The process ends with its input.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TextIO

from pydantic_core import to_jsonable_python

from syno.base.errors import DeviceError
from syno.base.gpu_leases import leased
from syno.measure.measuring import SpeedupRequest, end_group
from syno.measure.ssh.protocol import SIGN_OF_LIFE_SECONDS, Code, Kind, line


def main(working: Path | None = None) -> None:
    """Answer requests until the input ends.

    Args:
        working: the folder of the process that asks, for temporary files. None: that process is on another machine. Then this
            one has a folder of its own, and leases GPUs.
    """
    leasing = working is None
    working = working or Path(tempfile.mkdtemp(prefix="syno-speedups-"))
    tempfile.tempdir = os.environ["TMPDIR"] = str(working)  # for compilers, which leave files when they are killed
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what compilers print is no message
    turn = threading.Lock()

    def say(kind: Kind, content: object) -> None:
        try:
            with turn:
                out.write(line(kind, to_jsonable_python(content)))
        except BrokenPipeError:
            end_group(working)

    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, requests, working), daemon=True).start()
    say("hello", Code.of_this().model_dump())
    threading.Thread(target=_live, args=(say,), daemon=True).start()
    from syno.measure.speedup_measuring import SpeedupMeasuring  # imports torch

    measuring = SpeedupMeasuring(begin=lambda phase: say("phase", phase))
    while True:
        request = SpeedupRequest.model_validate_json(requests.get())
        if request.folder == Path():
            request = request.model_copy(update={"folder": working})
        try:
            with leased(request.device if leasing else "cpu"):
                say("fields", measuring.fields(request))
        except DeviceError as error:
            say("fault", str(error))


def _read(lines: TextIO, requests: SimpleQueue[str], working: Path) -> None:
    """Put the lines into the queue. After the last one, nobody waits for an answer: end this process and its compilers."""
    for text in lines:
        requests.put(text)
    end_group(working)  # the process that asks may have been killed: it removes nothing then


def _live(say: Callable[[Kind, object], None]) -> None:
    """Say from time to time that this process lives."""
    while True:
        time.sleep(SIGN_OF_LIFE_SECONDS)
        say("alive", None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
