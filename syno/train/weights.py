"""The weights of a trained network in a file of the format safetensors, from which only tensors are read."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from syno.base.errors import DataError
from syno.base.files import checksum, write_whole

HEADER = struct.Struct("<Q")  # its length in bytes, at the beginning of a file
MOST_HEADER = 100_000_000  # bytes, as the format allows
METADATA, NOTE = "__metadata__", "syno"


class WeightsFile:
    """The weights of one training at the end of a round.

    Args:
        path: of the file; new weights replace it as a whole.
        identity: of the training; weights of another training are ignored.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self.identity = path, identity

    def write(self, network: nn.Module, round_number: int) -> None:
        """Write the network's parameters and buffers. Raises SpecError if the file cannot be written."""
        write_whole(self.path, content_of(network, f"{self.identity} {round_number}"))

    def round(self) -> int | None:
        """Return the round of the weights in the file; None if it has none of this training."""
        identity, _, number = note_in(self.path).partition(" ")
        return int(number) if identity == self.identity and number.isdecimal() else None

    def remove(self) -> None:
        """Delete the file: training ended without a network that can be used."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def content_of(network: nn.Module, note: str = "") -> bytes:
    """Return a file's content: parameters and buffers, those that share memory once, under their first name, and a note."""
    from safetensors.torch import save  # a machine that only measures has no such package

    found: dict[tuple[Any, ...], str] = {}
    state = network.state_dict()
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else (name,)
        found.setdefault(place, name)
    # With more than one note, their order in the file would be random.
    return bytes(save({name: state[name].contiguous() for name in found.values()}, {NOTE: note} if note else None))


def note_in(path: Path) -> str:
    """Return the note in a file; "" if there is no such file, it has none, or its beginning is damaged."""
    try:
        with path.open("rb") as file:
            (length,) = HEADER.unpack(file.read(HEADER.size))
            return str(json.loads(file.read(min(length, MOST_HEADER)))[METADATA][NOTE])
    except (OSError, ValueError, struct.error, KeyError, TypeError):
        return ""


def load_weights(network: nn.Module, path: Path, expected: str | None = None) -> None:
    """Load the weights in a file into a network of the same structure.

    Args:
        network: gets the weights; its parameters keep their memory layout.
        path: of the file.
        expected: its checksum; None: it is not compared.

    Raises DataError if there is no such file, it is damaged, or it is of another network.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    try:
        if expected is not None and checksum(path.read_bytes()) != expected:
            raise DataError(f"{path} does not agree with its record; delete both, and train again")
        load_model(network, path)
    except (OSError, SafetensorError, RuntimeError, KeyError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(f"{path} holds no weights of this network: {said[0][:300]}; delete it, and train again") from error
