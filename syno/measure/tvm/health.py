"""Whether a device that tuning measures on is worth going on with."""

from __future__ import annotations

import threading

from syno.base.errors import DeviceError
from syno.measure.tvm.answers import Reached, comes_back
from syno.measure.tvm.devices import DeviceSettings

SHOWN_CHARACTERS = 300


class Health:
    """Counts failures in a row, and looks for the device after each.

    Args:
        device: which.
        settings: `wait_seconds` and `most_failures`.

    Attributes:
        lost: why it is not worth it, once that is so.
    """

    def __init__(self, device: Reached, settings: DeviceSettings) -> None:
        self.device = device
        self.lost: DeviceError | None = None
        self._settings, self._in_a_row, self._lock = settings, 0, threading.Lock()

    def worked(self) -> None:
        """Something was measured."""
        with self._lock:
            self._in_a_row = 0

    def failed(self, why: str) -> None:
        """Something was not. If the device is gone, this waits for it; if it stays so, or fails too often, it is lost."""
        with self._lock:  # those that fail meanwhile do not wait, too, one after another
            self._in_a_row += 1
            if self.lost is not None:
                return
            if not comes_back(self.device, self._settings.wait_seconds):
                self.lost = DeviceError(
                    f"{self.device.describe()} is gone: it had no server for {self._settings.wait_seconds:g} s. What was "
                    f"measured is kept. Start a server there ({self.device.how_to_serve()}), and the same command goes on"
                )
            elif self._in_a_row >= self._settings.most_failures:
                self.lost = DeviceError(
                    f"{self.device.describe()} failed {self._in_a_row} measurements in a row; the last one: "
                    f"{last_words(why)}. Look whether it has a C++ compiler and TVM in the same versions, or raise "
                    "session_timeout_seconds or most_failures"
                )


def last_words(text: str) -> str:
    """The last line of an error's text: there Python and TVM say what it was, after where it was."""
    return (text.strip().splitlines() or [""])[-1].strip()[:SHOWN_CHARACTERS]
