"""A training's state in a file, from which it goes on to the same result, bit for bit on a CPU.

What is read is tensors and plain values only: a file from elsewhere cannot run code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from syno.errors import DataError
from syno.files import replaced

EVERY_SECONDS = 60.0


class Checkpoint:
    """The file of one training.

    Args:
        file: where it is, or will be; it takes the place of the one before when it is whole.
        identity: what tells this training from others; a file of another one is not gone on with.
        every_seconds: how often `due` says so.
    """

    def __init__(self, file: Path, identity: str, every_seconds: float = EVERY_SECONDS) -> None:
        self.file, self.identity, self.every_seconds = file, identity, every_seconds
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._last >= self.every_seconds

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep a state. SpecError if it cannot be written."""
        with replaced(self.file) as temporary:
            torch.save({"identity": self.identity, "state": dict(state)}, temporary)
        self._last = time.monotonic()

    def read(self, device: torch.device) -> dict[str, Any] | None:
        """The state; None if there is none, or it is of another training. DataError if the file is damaged."""
        if not self.file.exists():
            return None
        try:
            found = torch.load(self.file, map_location=device, weights_only=True)
            identity, state = found["identity"], found["state"]
        except (OSError, RuntimeError, EOFError, UnpicklingError, ValueError, LookupError, TypeError) as error:
            what = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{self.file} holds no checkpoint: {what}; delete it, and training begins anew") from error
        return dict(state) if identity == self.identity else None

    def remove(self) -> None:
        """Training has ended, and nothing needs to be gone on with."""
        with suppress(OSError):
            self.file.unlink(missing_ok=True)
