"""The process that measures speedups, one after another: it reads requests, a line of JSON each, and answers in messages.

The messages are those of `syno.measure.ssh.protocol`: the phases of a measurement, and then the fields of its record, or a
fault of a device. The process ends with its input.
"""

from __future__ import annotations

import os
import signal
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
from syno.measure.measuring import SpeedupRequest
from syno.measure.ssh.protocol import SIGN_OF_LIFE_SECONDS, Code, Kind, line


def main(*, leasing: bool = False) -> None:
    """Answer requests until the input ends. `leasing`: lease GPUs, because the process that asks is on another machine."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what compilers print is no message
    turn = threading.Lock()

    def say(kind: Kind, content: object) -> None:
        with turn:
            out.write(line(kind, to_jsonable_python(content)))

    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True).start()
    say("hello", Code.of_this().model_dump())
    threading.Thread(target=_live, args=(say,), daemon=True).start()
    from syno.measure.speedup_measuring import SpeedupMeasuring  # imports torch

    measuring = SpeedupMeasuring(begin=lambda phase: say("phase", phase))
    with tempfile.TemporaryDirectory(prefix="syno-speedups-", ignore_cleanup_errors=True) as working:
        while True:
            request = SpeedupRequest.model_validate_json(requests.get())
            if request.folder == Path():
                request = request.model_copy(update={"folder": Path(working)})
            try:
                with leased(request.device if leasing else "cpu"):
                    say("fields", measuring.fields(request))
            except DeviceError as error:
                say("fault", str(error))


def _read(lines: TextIO, requests: SimpleQueue[str]) -> None:
    """Put the lines into the queue. After the last one, nobody waits for an answer: end this process and its compilers."""
    for text in lines:
        requests.put(text)
    os.killpg(0, signal.SIGKILL)  # it leads its group


def _live(say: Callable[[Kind, object], None]) -> None:
    """Say from time to time that this process lives."""
    while True:
        time.sleep(SIGN_OF_LIFE_SECONDS)
        say("alive", None)


if __name__ == "__main__":
    main()
