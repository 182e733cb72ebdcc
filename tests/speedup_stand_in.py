"""A stand-in for the process that measures speedups: it answers at once, without PyTorch, and writes down what it measures.

What it does follows from the name of the operator: `crash` kills it, `crash_once` if it has measured before, `hang` sleeps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

MEASURED = Path(os.environ["SYNO_MEASURED"])  # a file with a line for each measurement
INTERVAL = {"value": 2.0, "low": 1.9, "high": 2.1}
FIELDS = {"status": "ok", "ratio": INTERVAL, "latency_ms": INTERVAL, "original_ms": INTERVAL, "drift": 0.0, "attempts": 1}


def say(kind: str, content: Any) -> None:
    print(f"syno:{kind} {json.dumps(content)}", flush=True)


def read(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os.killpg(0, signal.SIGKILL)


requests: SimpleQueue[str] = SimpleQueue()
threading.Thread(target=read, args=(requests,), daemon=True).start()
print("a compiler says something")
count = 0
while True:
    request = json.loads(requests.get())
    name = request["subject"]["operator"].split()[1]
    say("phase", "compiling")
    with MEASURED.open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    if name == "crash" or (name == "crash_once" and count):
        print("no more memory", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "hang":
        time.sleep(1000)
    if name == "fault":
        say("fault", "the device is gone")
        continue
    time.sleep(0.002)
    say("fields", FIELDS)
    count += 1
