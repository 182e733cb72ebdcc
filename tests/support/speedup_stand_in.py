"""A stand-in for the process that measures speedups: it answers at once, without PyTorch, and writes down what it measures.

What it does follows from the name of the operator: `dies` kills it, `dies_twice_compiling` the first two times in that phase,
`hang` sleeps. So does `original` if SYNO_DYING names it. With `slow`, the original is slow the first time; with
`slow_twice`, also the second time; with `slow_now`, always. It leaves a folder of temporary files, as compilers do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

MEASURED = Path(os.environ["SYNO_MEASURED"])  # a file with a line for each measurement
INTERVAL = {"value": 2.0, "low": 1.9, "high": 2.1}
PHASES = ("starting", "building", "compiling", "waiting", "measuring")
FIELDS = {"ratio": INTERVAL, "latency_ms": INTERVAL, "original_ms": INTERVAL, "drift": 0.0, "attempts": 1}


def say(kind: str, content: Any) -> None:
    print(f"syno:{kind} {json.dumps(content)}", flush=True)


def find(phase: str, **more: Any) -> None:
    say("findings", {"phase": phase, **more})


def read(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os.killpg(0, signal.SIGKILL)


requests: SimpleQueue[str] = SimpleQueue()
slow = {"slow": 1, "slow_twice": 2, "slow_now": 10**9, "slow_now_too": 10**9}
threading.Thread(target=read, args=(requests,), daemon=True).start()
print("a compiler says something")
tempfile.mkdtemp(prefix="left-behind-", dir=sys.argv[1])
while True:
    request = json.loads(requests.get())
    operator = request["subject"]["operator"]
    name = operator.split()[1] if operator else "original"
    with MEASURED.open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    begun = MEASURED.read_text(encoding="utf-8").split().count(name)
    wanted = name.rpartition("_")[2] if name.startswith("dies_") else "compiling"
    dies = name in ("dies", os.environ.get("SYNO_DYING")) or name.startswith("dies_always")
    dies = dies or (name.startswith("dies_twice") and begun < 3)
    for phase in PHASES:
        if phase != "starting":
            find(phase)
        if dies and phase == wanted:
            print("no more memory", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "short" and phase == "measuring":
            find(phase, status="out_of_memory", reason="measuring: MemoryError")
            break
    else:
        if name == "hang":
            time.sleep(1000)
        if name == "fault":
            say("fault", "the device is gone")
            continue
        time.sleep(0.002)
        original = {"original_ms": {"value": 5.0, "low": 4.9, "high": 5.1}} if begun <= slow.get(name, 0) else {}
        find("measuring", status="ok", fields={**FIELDS, **original})
