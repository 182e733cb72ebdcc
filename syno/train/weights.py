"""The weights of a trained network in a safetensors file, from which only tensors are read."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from syno.base.errors import DataError, SpecError
from syno.base.files import checksum, write_whole

HEADER = struct.Struct("<Q")  # the header's length in bytes, at the beginning of a file
MOST_HEADER = 100_000_000  # bytes, as the format allows
INSTEAD = "change the network, or keep no weights with train: weights: none"
METADATA, NOTE = "__metadata__", "syno"


class WeightsFile:
    """The weights of one training at the end of a round.

    Args:
        path: path of the file; new weights replace it atomically.
        identity: identity of the training; weights with another identity are ignored.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self.identity = path, identity

    def write(self, network: nn.Module, round_number: int) -> None:
        """Write the network's parameters and buffers. Raises SpecError if the file cannot be written."""
        write_whole(self.path, content_of(network, f"{self.identity} {round_number}"))

    def round(self) -> int | None:
        """Return the round of the weights in the file; None if the file has no weights of this training."""
        identity, _, number = note_in(self.path).partition(" ")
        return int(number) if identity == self.identity and number.isdecimal() else None

    def remove(self) -> None:
        """Delete the file, because the training ended without a usable network."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def content_of(network: nn.Module, note: str = "") -> bytes:
    """Return the content of a file of weights: parameters and buffers (tied tensors once, under their first name), and a note.

    Tensors that share memory in other ways, such as slices of one tensor, are stored separately.

    Raises SpecError if the network's state contains something that a safetensors file cannot store.
    """
    from safetensors.torch import save  # not installed on machines that only measure

    names: dict[tuple[Any, ...], str] = {}
    state = network.state_dict()
    for name, tensor in state.items():
        _require_tensor(name, tensor)
        names.setdefault(place_in_memory(name, tensor), name)
    tensors = {name: state[name].contiguous() for name in names.values()}
    uses = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    own = {
        name: tensor.clone() if uses[tensor.untyped_storage().data_ptr()] > 1 else tensor for name, tensor in tensors.items()
    }
    try:
        # With more than one note, their order in the file would be random.
        return bytes(save(own, {NOTE: note} if note else None))
    except (KeyError, ValueError, RuntimeError) as error:  # a number format that safetensors does not support
        types = ", ".join(sorted({str(tensor.dtype) for tensor in own.values()}))
        raise SpecError(f"the network's weights cannot be kept: {error} (it has {types}); {INSTEAD}") from error


def _require_tensor(name: str, value: object) -> None:
    """Raise SpecError if a part of a network's state is not a tensor that can be stored."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized and not value.is_meta:
        return
    kind = f"a tensor of the layout {value.layout}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
    raise SpecError(f"the network's weights cannot be kept: its state has {name}, {kind}, and no tensor of numbers; {INSTEAD}")


def place_in_memory(name: str, tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key of a tensor's place in memory, which is equal for names of the same tensor (tied weights)."""
    return (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else (name,)


def note_in(path: Path) -> str:
    """Return the note in a file of weights; "" if the file or the note is missing, or the header is damaged."""
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
        path: path of the file.
        expected: checksum of the file; None: not verified.

    Raises DataError if the file is missing or damaged, or if its weights belong to another network.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content = path.read_bytes()
        if expected is not None and checksum(content) != expected:
            raise DataError(f"{path} does not agree with its record; delete both, and train again")
        _set(network, load(content))
    except (OSError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} holds no weights of this network: {said[:300]}; delete it, and train again") from error


def _set(network: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Set the parameters and buffers of a network. Raises ValueError, or torch's errors, if the tensors do not fit."""
    state = network.state_dict(keep_vars=True)
    names = {place_in_memory(name, tensor): name for name, tensor in state.items() if name in tensors}
    first = {name: name if name in tensors else names.get(place_in_memory(name, tensor)) for name, tensor in state.items()}
    missing = [name for name, source in first.items() if source is None]
    if missing or (unknown := [name for name in tensors if name not in state]):
        raise ValueError(f"it has no {missing[0]}" if missing else f"it has {unknown[0]}, which the network has not")
    values = {name: tensors[source] for name, source in first.items() if source is not None}
    for name, tensor in state.items():
        if (tensor.shape, tensor.dtype) != (values[name].shape, values[name].dtype):
            is_, has = ([*part.shape, part.dtype] for part in (tensor, values[name]))
            raise ValueError(f"the network's {name} is {is_}, and the file's {has}")
    with torch.no_grad():
        network.load_state_dict({name: value for name, value in values.items() if not _overlaps(state[name])}, strict=False)
        for name, tensor in state.items():
            if _overlaps(tensor):
                _set_overlapping(tensor, values[name])
            elif not _is_same(tensor, values[name]):  # it shares memory with a tensor of other values, unlike in training
                tensor.data = torch.empty_like(tensor).copy_(values[name])
    for name, tensor in network.state_dict().items():
        if not _is_same(tensor, values[name]):
            raise ValueError(f"its {name} cannot be set in the network")


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor share memory, as in an expanded tensor."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return bool(tensor.numel() > span)


def _set_overlapping(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values into a tensor whose elements share memory, which torch's `copy_` does not support."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    places = torch.arange(span).as_strided(tensor.shape, tensor.stride()).reshape(-1)
    tensor.as_strided((span,), (1,))[places.to(tensor.device)] = values.reshape(-1).to(tensor.device)


def _is_same(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    """Return whether two tensors are bitwise equal."""
    first, second = (each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in (tensor, values))
    return bool(torch.equal(first, second))


def check_keeping(trained: nn.Module, made: nn.Module) -> None:
    """Raise an error if a network's weights cannot be saved, or not be loaded into `made`, which was built in the same way.

    Raises:
        SpecError: the network's state contains something that a file of weights cannot store.
        DataError: the networks differ.
    """
    from safetensors.torch import load

    try:
        _set(made, load(content_of(trained)))
    except (RuntimeError, KeyError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        raise DataError(f"the network's weights cannot be loaded again when it is made anew: {said}; {INSTEAD}") from error
