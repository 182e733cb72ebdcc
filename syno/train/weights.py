"""The weights of a trained network in a file of the format safetensors, from which only tensors are read."""

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

HEADER = struct.Struct("<Q")  # its length in bytes, at the beginning of a file
MOST_HEADER = 100_000_000  # bytes, as the format allows
INSTEAD = "change the network, or keep no weights with train: weights: none"
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
    """Return a file's content: parameters and buffers, those that are the same one once, under their first name, and a note.

    Tensors that share memory in another way, such as slices of one tensor, are all in it.

    Raises SpecError if the network's state has something that such a file cannot hold.
    """
    from safetensors.torch import save  # a machine that only measures has no such package

    found: dict[tuple[Any, ...], str] = {}
    state = network.state_dict()
    for name, tensor in state.items():
        _require_tensor(name, tensor)
        found.setdefault(place_in_memory(name, tensor), name)
    tensors = {name: state[name].contiguous() for name in found.values()}
    uses = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    own = {
        name: tensor.clone() if uses[tensor.untyped_storage().data_ptr()] > 1 else tensor for name, tensor in tensors.items()
    }
    try:
        # With more than one note, their order in the file would be random.
        return bytes(save(own, {NOTE: note} if note else None))
    except (KeyError, ValueError, RuntimeError) as error:  # a number format that it does not know
        types = ", ".join(sorted({str(tensor.dtype) for tensor in own.values()}))
        raise SpecError(f"the network's weights cannot be kept: {error} (it has {types}); {INSTEAD}") from error


def _require_tensor(name: str, value: object) -> None:
    """Raise SpecError if a part of a network's state is no tensor whose elements can be written."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized and not value.is_meta:
        return
    kind = f"a tensor of the layout {value.layout}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
    raise SpecError(f"the network's weights cannot be kept: its state has {name}, {kind}, and no tensor of numbers; {INSTEAD}")


def place_in_memory(name: str, tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that only names of one and the same tensor share."""
    return (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else (name,)


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
    """Set the parameters and buffers of a network. ValueError, or what torch raises, if they are of another network."""
    state = network.state_dict(keep_vars=True)
    names = {place_in_memory(name, tensor): name for name, tensor in state.items() if name in tensors}
    first = {name: name if name in tensors else names.get(place_in_memory(name, tensor)) for name, tensor in state.items()}
    missing = [name for name, source in first.items() if source is None]
    if missing or (unknown := [name for name in tensors if name not in state]):
        raise ValueError(f"it has no {missing[0]}" if missing else f"it has {unknown[0]}, which the network has not")
    values = {name: tensors[source] for name, source in first.items() if source is not None}
    for name, tensor in state.items():
        if (tensor.shape, tensor.dtype) != (values[name].shape, values[name].dtype):
            is_, has = ([*one.shape, one.dtype] for one in (tensor, values[name]))
            raise ValueError(f"the network's {name} is {is_}, and the file's {has}")
    with torch.no_grad():
        network.load_state_dict({name: value for name, value in values.items() if not _overlaps(state[name])}, strict=False)
        for name, tensor in state.items():
            if _overlaps(tensor):
                _set_overlapping(tensor, values[name])
            elif not _is_same(tensor, values[name]):  # it shares memory with one of other values, which it did not in training
                tensor.data = torch.empty_like(tensor).copy_(values[name])
    for name, tensor in network.state_dict().items():
        if not _is_same(tensor, values[name]):
            raise ValueError(f"its {name} cannot be set in the network")


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor share memory, as those of an expanded one."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return bool(tensor.numel() > span)


def _set_overlapping(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values into a tensor whose elements share memory, for which torch has no copy."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    places = torch.arange(span).as_strided(tensor.shape, tensor.stride()).reshape(-1)
    tensor.as_strided((span,), (1,))[places.to(tensor.device)] = values.reshape(-1).to(tensor.device)


def _is_same(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    """Return whether two tensors have the same bits."""
    one, other = (each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in (tensor, values))
    return bool(torch.equal(one, other))


def check_keeping(trained: nn.Module, made: nn.Module) -> None:
    """Raise an error if weights of one network cannot be kept, or not be loaded into the other, which was made in the same way.

    Raises:
        SpecError: the state of a network has something that a file of weights cannot hold.
        DataError: the networks are different ones.
    """
    from safetensors.torch import load

    try:
        _set(made, load(content_of(trained)))
    except (RuntimeError, KeyError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        raise DataError(f"the network's weights cannot be loaded again when it is made anew: {said}; {INSTEAD}") from error
