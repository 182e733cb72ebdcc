"""Execution paths of a network: which modules run, with which shapes, for each sample of its inputs.

A network whose `forward` branches on values, such as one with an early exit, may run different modules for different samples.
Its layers, FLOPs and latencies are then those of the samples with the most FLOPs.

>>> class Gate(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
...     def forward(self, x):
...         return self.second(self.first(x)) if x.mean() > 0 else self.first(x)
>>> find_paths(Gate(), torch.tensor([[-1.0] * 4, [1.0] * 4, [2.0] * 4])).samples
tensor([[1., 1., 1., 1.],
        [2., 2., 2., 2.]])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from syno.base.errors import SpecError, SynoError
from syno.base.user_code import unchanged_process
from syno.model.counting import count
from syno.model.extraction import LayerCall, replaceable, trace
from syno.model.inputs import Inputs, first_inputs, len_of_batch, mapped, of_batch
from syno.model.layer_rules import Where

MOST_SAMPLES = 8  # run one by one
MOST_NAMES = 3  # of modules in a description
SEED = 0
SCALES = (0.0, 1.0, 8.0)  # of random inputs, on which latencies are measured unless the path depends on values


@dataclass(frozen=True)
class ExecutionPaths:
    """The paths that samples take through a network.

    Attributes:
        inputs: the batch from which layers and FLOPs are taken: the given inputs, or a batch of the samples with the most
            FLOPs if the inputs as one batch do not run the longest path.
        samples: the samples with the most FLOPs, on which latencies are measured; None if the path does not depend on values.
        description: one line about how the paths differ; "" if all samples take one path.
    """

    inputs: Inputs
    samples: Inputs | None = None
    description: str = ""


@dataclass(frozen=True)
class _Path:
    """One execution path: the modules that run, their shapes, and the FLOPs including products of two activations."""

    calls: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    work: tuple[object, ...]
    flops: int

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _, _ in self.calls))


def find_paths(model: nn.Module, inputs: Inputs) -> ExecutionPaths:
    """Return the execution paths of a network for the first samples of its inputs, each run as a batch of one.

    The process's random state is restored. A network that fails on single samples counts as having one path.
    """
    whole = len_of_batch(inputs)
    samples = [_sample(inputs, place, whole) for place in range(min(whole, MOST_SAMPLES))]
    paths: dict[_Path, list[int]] = {}
    failures: list[str] = []
    for place, sample in enumerate(samples):
        try:
            paths.setdefault(_path(model, sample), []).append(place)
        except SynoError as error:
            failures.append(str(error))
    if not paths:
        return ExecutionPaths(inputs)
    longest, *others = sorted(paths, key=lambda path: (-path.flops, -len(path.calls)))
    said = []
    if others:
        said.append(_difference(model, longest, others, {path: len(places) for path, places in paths.items()}))
    if failures:
        said.append(f"{type(model).__name__} fails on {len(failures)} of {len(samples)} samples: {failures[0]}")
    chosen = _joined([samples[place] for place in paths[longest]], inputs, whole)
    if not said and _is_alike(model, samples[0], longest):
        if whole == 1 or (apart := _missing_modules(_modules(model, inputs) or longest.modules, longest.modules)) == "":
            return ExecutionPaths(inputs)
        return ExecutionPaths(inputs, None, f"{type(model).__name__} runs other modules for a batch of {whole}{apart}")
    if not said:
        said.append(
            f"{type(model).__name__} runs other modules for zeros or random numbers than for samples of the data, so its "
            "latencies are measured on the latter"
        )
    return ExecutionPaths(_longest_batch(model, inputs, chosen, longest), chosen, "; ".join(said))


def check_same_modules(original: nn.Module, network: nn.Module, inputs: Inputs, where: Where) -> None:
    """Raise SpecError if a network with an operator runs other modules than the original, apart from the replaced layers."""
    layers = {name for layer in replaceable(original, inputs, where) for name in layer.names}
    others = {name for name, _ in original.named_modules()} - layers
    before, after = ([name for name in _modules(model, inputs) or () if name in others] for model in (original, network))
    if set(before) != set(after):
        apart = _missing_modules(before, after) or _missing_modules(after, before).replace("without", "with")
        raise SpecError(
            f"{type(original).__name__} takes another execution path with the operator than without it{apart}, for the same "
            "samples, so that the two cannot be compared"
        )


def _longest_batch(model: nn.Module, inputs: Inputs, chosen: Inputs, longest: _Path) -> Inputs:
    """Return the inputs if they run the longest path as one batch, else a batch of the samples `chosen`, which run it."""
    whole = len_of_batch(inputs)
    for tried in (inputs, of_batch(chosen, whole)):
        try:
            path = _path(model, tried)
        except SynoError:
            continue
        if path.flops >= whole * longest.flops and set(longest.modules) <= set(path.modules):
            return tried
    return of_batch(_sample(chosen, 0, len_of_batch(chosen)), whole)  # of equal samples


def _is_alike(model: nn.Module, sample: Inputs, path: _Path) -> bool:
    """Return whether random samples of every scale take the path of this sample, so that the path does not depend on values."""
    generator = torch.Generator().manual_seed(SEED)
    for scale in SCALES if any(x.is_floating_point() for x in first_inputs(sample)) else ():
        drawn = mapped(
            lambda x: (
                (torch.rand(x.shape, generator=generator) - 0.5).mul_(scale).to(x) if x.is_floating_point() else x  # noqa: B023
            ),
            sample,
        )
        try:
            if _path(model, drawn) != path:
                return False
        except SynoError:
            return False
    return True


def _difference(model: nn.Module, longest: _Path, others: Sequence[_Path], counts: dict[_Path, int]) -> str:
    """Return a sentence about the samples that take a shorter path than the longest."""
    ahead, behind, last = counts[longest], sum(counts[path] for path in others), others[-1]
    shorter = f"{last.flops:,}" if others[0].flops == last.flops else f"{last.flops:,} to {others[0].flops:,}"
    apart = _missing_modules(longest.modules, last.modules) or _missing_modules(last.modules, longest.modules)
    apart = apart or ": shapes differ"
    return (
        f"{type(model).__name__} does not compute the same for all samples: {ahead} of {ahead + behind} took the longest "
        f"execution path, of {longest.flops:,} FLOPs, and {behind} one of {shorter}{apart}; layers, FLOPs and latencies are "
        "those of the longest"
    )


def _missing_modules(modules: Sequence[str], others: Sequence[str]) -> str:
    """Return the clause " (without first, second)" of the `modules` that are not in `others`; "" if all are."""
    names = [name or "the network itself" for name in modules if name not in others]
    left = len(names) - MOST_NAMES
    return f" (without {', '.join(names[:MOST_NAMES])}{f' and {left} more' if left > 0 else ''})" if names else ""


def _path(model: nn.Module, inputs: Inputs) -> _Path:
    calls = tuple((layer.name, layer.input, layer.output) for layer in _calls(model, inputs))
    with unchanged_process(SEED):
        counted = count(model, inputs)
    work = tuple((part.layer, part.runs_in, part.input, part.output, part.flops) for part in counted.work)
    return _Path(calls, work, counted.flops + counted.attention_flops)


def _calls(model: nn.Module, inputs: Inputs) -> list[LayerCall]:
    with unchanged_process(SEED):
        return trace(model, inputs)


def _modules(model: nn.Module, inputs: Inputs) -> tuple[str, ...] | None:
    """Return the names of the modules that run for a whole batch; None if the network fails, which other checks report."""
    try:
        return tuple(dict.fromkeys(layer.name for layer in _calls(model, inputs)))
    except SynoError:
        return None


def _sample(inputs: Inputs, place: int, whole: int) -> Any:
    """Return the sample at index `place` as a batch of one; `whole` is the batch size."""
    return mapped(lambda x: x[place : place + 1] if x.dim() and len(x) == whole else x, inputs)


def _joined(samples: Sequence[Inputs], inputs: Inputs, whole: int) -> Any:
    """Return the concatenation of single samples along the batch axis; tensors without that axis are the first sample's."""
    columns = iter(zip(*map(first_inputs, samples), strict=True))

    def joined(tensor: torch.Tensor) -> torch.Tensor:
        column = next(columns)
        return torch.cat(column) if tensor.dim() and len(tensor) == whole else column[0]

    return mapped(joined, inputs)
