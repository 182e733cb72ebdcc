"""The weights that a network begins with, from a user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from syno.base.errors import DataError
from syno.train.weights import place_in_memory

STATES = ("state_dict", "model_state_dict", "model", "net")  # names under which checkpoints have a network's state
PREFIXES = ("module.", "_orig_mod.")  # of names, by DataParallel and torch.compile
COUNTS = "num_batches_tracked"  # which old files have not, and no output depends on
MOST_NAMES = 5  # in a message


def content_of_weights(file: str | Path) -> bytes:
    """Return the content of a file of weights. DataError if it cannot be read."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise DataError(f"workload: weights: {file} cannot be read: {error.strerror or error}") from error


def give_weights(network: nn.Module, file: Path) -> None:
    """Set the parameters and buffers of a network, in place, to the trained ones in a file of a user's.

    Args:
        network: on the CPU; its number formats stay.
        file: of safetensors, or a state dict of tensors that `torch.save` wrote, perhaps under a name such as "state_dict".

    Raises DataError, which lists what is missing, unexpected or of another shape, if the weights are not those of the network.
    """
    given = _tensors_of(file)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in given):
            given = {name.removeprefix(prefix): tensor for name, tensor in given.items()}
    state = network.state_dict(keep_vars=True)
    tied = {place_in_memory(name, tensor): name for name, tensor in state.items() if name in given}
    sources = {name: name if name in given else tied.get(place_in_memory(name, tensor)) for name, tensor in state.items()}
    values = {name: given[source] for name, source in sources.items() if source is not None}
    missing = [name for name in state if name not in values and not name.endswith(COUNTS)]
    unexpected = [name for name in given if name not in state]
    shapes = [
        f"{name} is {list(values[name].shape)} and the network's is {list(tensor.shape)}"
        for name, tensor in state.items()
        if name in values and values[name].shape != tensor.shape
    ]
    found = {"missing": missing, "not in the network": unexpected, "of another shape": shapes}
    if problems := [f"{len(names)} {what} ({_some(names)})" for what, names in found.items() if names]:
        raise DataError(
            f"workload: weights: {file} has not the weights of {type(network).__name__}, which has {len(state)} tensors: "
            f"{'; '.join(problems)}; give the file of this network, or make the network as it was (model_settings, width)"
        )
    with torch.no_grad():
        for name, value in values.items():
            state[name].copy_(value)


def _tensors_of(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file of weights by name. DataError if it is none, or holds anything else."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = content_of_weights(file)
    with suppress(SafetensorError):
        return dict(load(content))
    try:
        found: Any = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, or one with objects other than tensors
        said = " ".join(str(error).split())
        raise DataError(
            f"workload: weights: {file} holds no tensors only ({type(error).__name__}: {said[:150]}); write them with "
            "torch.save(model.state_dict(), FILE), or safetensors.torch.save_file(model.state_dict(), FILE)"
        ) from error
    if isinstance(found, Mapping) and not all(isinstance(one, torch.Tensor) for one in found.values()):
        found = next((found[name] for name in STATES if isinstance(found.get(name), Mapping)), found)
    if isinstance(found, Mapping) and found:
        others = [name for name, one in found.items() if not isinstance(one, torch.Tensor)]
        if not others:
            return {str(name): tensor for name, tensor in found.items()}
        given = f"a mapping with {others[0]!r}, a {type(found[others[0]]).__name__}"
    else:
        given = f"a {type(found).__name__}"
    raise DataError(f"workload: weights: {file} holds {given}; it must be a state dict, of tensors by their names")


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
