"""Checkpoints: the state of a training in a file, from which it resumes to the same result, bit by bit on a CPU.

Only tensors and plain values are loaded, so that a stranger's file cannot run code. The file is the output of `torch.save`,
followed by a line with its checksum, which is verified before loading, since PyTorch verifies nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from syno.base.errors import DataError
from syno.base.files import CHECKSUM_DIGITS, checksum, write_whole

EVERY_SECONDS = 60.0
MARK = b"\nsyno checkpoint, 128 bits of blake2b: "
LINE = len(MARK) + CHECKSUM_DIGITS + 1  # bytes at the end of the file


class DamagedCheckpointError(DataError):
    """An error for a checkpoint that cannot be read. A training that can start anew does so without the checkpoint."""


class Checkpoint:
    """The checkpoint of one training.

    Args:
        file: path of the checkpoint; each new state replaces the file atomically. None: no checkpoint.
        identity: identity of the training; a state with another identity is ignored.
        every_seconds: time between two states, for `due`.
    """

    def __init__(self, file: Path | None, identity: str, every_seconds: float = EVERY_SECONDS) -> None:
        self.file, self.identity, self.every_seconds = file, identity, every_seconds
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether enough time has passed to write the next state."""
        return self.file is not None and time.monotonic() - self._last >= self.every_seconds

    def write(self, state: Mapping[str, Any]) -> None:
        """Write a state of the training. SpecError if it cannot be written."""
        if self.file is None:
            return
        stream = BytesIO()
        torch.save({"identity": self.identity, "state": dict(state)}, stream)
        content = stream.getvalue()
        write_whole(self.file, b"".join((content, MARK, checksum(content).encode(), b"\n")))
        self._last = time.monotonic()

    def read(self, device: torch.device) -> dict[str, Any] | None:
        """Return the stored state; None if there is none, or if it has another identity.

        Raises DamagedCheckpointError if the file is damaged.
        """
        if self.file is None or not self.file.exists():
            return None
        try:
            content = torch.load(BytesIO(_without_checksum(self.file.read_bytes())), map_location=device, weights_only=True)
            identity, state = content["identity"], dict(content["state"])
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a damaged file raises anything
            raise self.damaged(error) from error
        return state if identity == self.identity else None

    def damaged(self, error: Exception) -> DamagedCheckpointError:
        """Return the error that explains why the training cannot resume from the file, with a remedy."""
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        return DamagedCheckpointError(f"{self.file} holds no checkpoint: {problem}; delete it, and training begins anew")

    def remove(self) -> None:
        """Delete the file, because the training will not be resumed."""
        if self.file is not None:
            with suppress(OSError):
                self.file.unlink(missing_ok=True)


def _without_checksum(content: bytes) -> bytes:
    """Return the content of a file without its checksum line. ValueError if the checksum does not match."""
    body, line = content[:-LINE], content[-LINE:]
    if not line.startswith(MARK):
        raise ValueError("its end is missing or damaged")
    if line != MARK + checksum(body).encode() + b"\n":
        raise ValueError("it does not agree with its checksum, so it was damaged after it was written")
    return body
