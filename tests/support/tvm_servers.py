"""A tracker and servers on this machine, as if they were elsewhere, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from syno.measure.tvm.sessions import Lease, Measuring
from syno.measure.tvm.targets import DeviceSettings
from syno.measure.tvm.tracker import Served, await_servers, reach, server, tracker

KEY, SIDE = "here", 32
TARGET = {"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1}
ARGUMENTS = [["TENSOR", "float32", [SIDE, SIDE]]] * 3
LONG = 1800.0  # seconds that nothing here comes near to, on however busy a machine


class Here:
    """A tracker with two servers, each of which is started again if a test killed it."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.tracker = stack.enter_context(tracker())
        self.servers: list[Served] = []

    def ready(self) -> Here:
        self.servers = [one for one in self.servers if one.process.poll() is None]
        while len(self.servers) < 2:
            self.servers.append(self.stack.enter_context(server(self.tracker, KEY)))
        await_servers(self.tracker, self.servers, {KEY: 2})
        return self

    def settings(self, **changes: Any) -> DeviceSettings:
        return DeviceSettings(**{"target": TARGET, "tracker": str(self.tracker), "key": KEY, **changes})


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def sessions(one: Served) -> int:
    return one.said().count("connected from")


def wait_for(what: Any) -> None:
    end = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def measuring(here: Here, each_ms: int, **changes: Any) -> Measuring:
    device = reach("jetson", here.tracker, KEY)
    return Measuring(Lease(device, 60, 60, threads=1), here.settings(**changes), (1, 1, each_ms))


def outcomes(work: Measuring, kernel: str, count: int) -> Sequence[Any]:
    return [work.begin(kernel, "cpu", ARGUMENTS) for _ in range(count)]
