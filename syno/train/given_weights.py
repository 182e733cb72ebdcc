"""Initial weights of a network from a user's file."""

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

STATES = ("state_dict", "model_state_dict", "model", "net")  # keys of a network's state in checkpoints
PREFIXES = ("module.", "_orig_mod.")  # prefixes of names, from DataParallel and torch.compile
COUNTS = "num_batches_tracked"  # missing in old files, and without influence on outputs
MOST_NAMES = 5  # names in a message


def content_of_weights(file: str | Path) -> bytes:
    """Return the content of a file of weights. DataError if it cannot be read."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise DataError(f"workload: weights: {file} cannot be read: {error.strerror or error}") from error


def give_weights(network: nn.Module, file: Path) -> None:
    """Load a user's trained weights into a network, in place.

    Args:
        network: the network, on the CPU; its number formats are kept.
        file: a safetensors file, or a state dict written by `torch.save`, possibly under a key such as "state_dict".

    Raises DataError, which lists missing, unexpected and mis-shaped tensors, if the weights do not fit the network.
    """
    tensors = _tensors_of(file)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    state = network.state_dict(keep_vars=True)
    tied = {place_in_memory(name, tensor): name for name, tensor in state.items() if name in tensors}
    sources = {name: name if name in tensors else tied.get(place_in_memory(name, tensor)) for name, tensor in state.items()}
    values = {name: tensors[source] for name, source in sources.items() if source is not None}
    missing = [name for name in state if name not in values and not name.endswith(COUNTS)]
    unexpected = [name for name in tensors if name not in state]
    shapes = [
        f"{name} is {list(values[name].shape)} and the network's is {list(tensor.shape)}"
        for name, tensor in state.items()
        if name in values and values[name].shape != tensor.shape
    ]
    by_problem = {"missing": missing, "not in the network": unexpected, "of another shape": shapes}
    if problems := [f"{len(names)} {problem} ({_some(names)})" for problem, names in by_problem.items() if names]:
        raise DataError(
            f"workload: weights: {file} has not the weights of {type(network).__name__}, which has {len(state)} tensors: "
            f"{'; '.join(problems)}; give the file of this network, or make the network as it was (model_settings, width)"
        )
    with torch.no_grad():
        for name, value in values.items():
            state[name].copy_(value)


def _tensors_of(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file of weights by name. DataError if it is no such file, or contains other objects."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = content_of_weights(file)
    with suppress(SafetensorError):
        return dict(load(content))
    try:
        loaded: Any = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file, or objects other than tensors
        said = " ".join(str(error).split())
        raise DataError(
            f"workload: weights: {file} holds no tensors only ({type(error).__name__}: {said[:150]}); write them with "
            "torch.save(model.state_dict(), FILE), or safetensors.torch.save_file(model.state_dict(), FILE)"
        ) from error
    if isinstance(loaded, Mapping) and not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        loaded = next((loaded[name] for name in STATES if isinstance(loaded.get(name), Mapping)), loaded)
    if isinstance(loaded, Mapping) and loaded:
        others = [name for name, value in loaded.items() if not isinstance(value, torch.Tensor)]
        if not others:
            return {str(name): tensor for name, tensor in loaded.items()}
        description = f"a mapping with {others[0]!r}, a {type(loaded[others[0]]).__name__}"
    else:
        description = f"a {type(loaded).__name__}"
    raise DataError(f"workload: weights: {file} holds {description}; it must be a state dict, of tensors by their names")


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
