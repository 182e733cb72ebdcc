"""A browser without a window, told what to do over a pipe (the Chrome DevTools protocol): pointer, keys, size."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_lines import HANGS_AFTER

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str:
    """The browser's command; the test is skipped if there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser found; install one of: {', '.join(BROWSERS)}")
    return found


class Tab:
    """An open page. Positions are pixels of the window."""

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of, self._count, self._session, self._rest = to, of, 0, "", b""

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its answer; events are left out."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                part = os.read(self._of, 1 << 16)
                assert part, "the browser has ended"
                self._rest += part
            line, _, self._rest = self._rest.partition(b"\0")
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, address: str, width: int) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=address)
        self.value("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', () => done()))")

    def value(self, expression: str) -> Any:
        """Return the value of JavaScript, after it has settled if it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)


@contextmanager
def opened(html: str, folder: Path, width: int = 1280) -> Iterator[Tab]:
    """Open a page in a browser of its own, which ends with the context."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    ours, theirs = os.pipe(), os.pipe()  # from the browser, and to it
    command = [
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}",
    ]  # fmt: skip

    def plug_in() -> None:  # the browser reads from 3 and writes to 4
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs[0], ours[1])]
        for end, number in zip(high, (3, 4), strict=True):
            os.dup2(end, number)

    process = subprocess.Popen(command, close_fds=False, preexec_fn=plug_in, stderr=subprocess.DEVNULL)
    os.close(theirs[0])
    os.close(ours[1])
    try:
        tab = Tab(theirs[1], ours[0])
        tab.open(file.as_uri(), width)
        yield tab
    finally:
        process.terminate()
        process.wait(timeout=HANGS_AFTER)
        os.close(theirs[1])
        os.close(ours[0])
