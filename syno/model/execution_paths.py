"""The execution paths of a network: which modules run, with which shapes, for the samples of its inputs.

A network whose `forward` looks at values, as one with an early exit does, may run other modules for other samples. Its layers,
FLOPs and latencies are then those of the samples with the most FLOPs.

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

MOST_SAMPLES = 8  # that are tried one by one
MOST_NAMES = 3  # of modules in a description
SEED = 0
SCALES = (0.0, 1.0, 8.0)  # of random numbers in place of samples: latencies are measured on such, as a rule


@dataclass(frozen=True)
class ExecutionPaths:
    """The paths that samples take through a network.

    Attributes:
        inputs: a batch of which the network's layers and FLOPs are: the one that was given, or if other samples have more
            FLOPs, one of these.
        samples: to measure latencies on, where the path depends on values: some of those with the most FLOPs; else None.
        description: what is different, in one line; "" if all samples take one path.
    """

    inputs: Inputs
    samples: Inputs | None = None
    description: str = ""


@dataclass(frozen=True)
class _Path:
    """What runs for some inputs: modules, their shapes, and FLOPs with those of products of activations."""

    calls: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    work: tuple[object, ...]
    flops: int

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _, _ in self.calls))


def find_paths(model: nn.Module, inputs: Inputs) -> ExecutionPaths:
    """Return the paths that the samples of inputs take through a network, of which some are tried one by one.

    The process's random numbers are left as they are. A network that takes no single sample is taken to have one path.
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
        if whole == 1 or (apart := _apart(_modules(model, inputs) or longest.modules, longest.modules)) == "":
            return ExecutionPaths(inputs)
        return ExecutionPaths(inputs, None, f"{type(model).__name__} runs other modules for a batch of {whole}{apart}")
    if not said:
        said.append(
            f"{type(model).__name__} runs other modules for zeros or random numbers than for samples of the data, so its "
            "latencies are measured on the latter"
        )
    return ExecutionPaths(_longest_batch(model, inputs, chosen, longest), chosen, "; ".join(said))


def check_same_modules(original: nn.Module, network: nn.Module, inputs: Inputs, where: Where) -> None:
    """Raise SpecError if a network with an operator runs other modules than the original, beside the layers to replace."""
    layers = {name for layer in replaceable(original, inputs, where) for name in layer.names}
    others = {name for name, _ in original.named_modules()} - layers
    before, after = ([name for name in _modules(model, inputs) or () if name in others] for model in (original, network))
    if set(before) != set(after):
        apart = _apart(before, after) or _apart(after, before).replace("without", "with")
        raise SpecError(
            f"{type(original).__name__} takes another execution path with the operator than without it{apart}, for the same "
            "samples, so that the two cannot be compared"
        )


def _longest_batch(model: nn.Module, inputs: Inputs, chosen: Inputs, longest: _Path) -> Inputs:
    """Return the inputs if as a batch they take the longest path of any sample, else a batch of the samples that take it."""
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
    """Return whether random numbers in place of a sample's values take the sample's path."""
    generator = torch.Generator().manual_seed(SEED)
    for scale in SCALES if any(one.is_floating_point() for one in first_inputs(sample)) else ():
        drawn = mapped(
            lambda one: (
                (torch.rand(one.shape, generator=generator) - 0.5).mul_(scale).to(one) if one.is_floating_point() else one  # noqa: B023
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
    """Return the sentence about samples that take other paths than the longest."""
    ahead, behind, last = counts[longest], sum(counts[path] for path in others), others[-1]
    shorter = f"{last.flops:,}" if others[0].flops == last.flops else f"{last.flops:,} to {others[0].flops:,}"
    apart = _apart(longest.modules, last.modules) or _apart(last.modules, longest.modules) or ": shapes differ"
    return (
        f"{type(model).__name__} does not compute the same for all samples: {ahead} of {ahead + behind} took the longest "
        f"execution path, of {longest.flops:,} FLOPs, and {behind} one of {shorter}{apart}; layers, FLOPs and latencies are "
        "those of the longest"
    )


def _apart(modules: Sequence[str], others: Sequence[str]) -> str:
    """Return the names of modules that are not among others, as a clause; "" if all are."""
    names = [name or "the network itself" for name in modules if name not in others]
    left = len(names) - MOST_NAMES
    return f" (without {', '.join(names[:MOST_NAMES])}{f' and {left} more' if left > 0 else ''})" if names else ""


def _path(model: nn.Module, inputs: Inputs) -> _Path:
    calls = tuple((one.name, one.input, one.output) for one in _calls(model, inputs))
    with unchanged_process(SEED):
        counted = count(model, inputs)
    work = tuple((one.layer, one.runs_in, one.input, one.output, one.flops) for one in counted.work)
    return _Path(calls, work, counted.flops + counted.attention_flops)


def _calls(model: nn.Module, inputs: Inputs) -> list[LayerCall]:
    with unchanged_process(SEED):
        return trace(model, inputs)


def _modules(model: nn.Module, inputs: Inputs) -> tuple[str, ...] | None:
    """Return the modules that run for a whole batch; None if the network fails on it, which others report."""
    try:
        return tuple(dict.fromkeys(one.name for one in _calls(model, inputs)))
    except SynoError:
        return None


def _sample(inputs: Inputs, place: int, whole: int) -> Any:
    """Return one sample as a batch of one."""
    return mapped(lambda one: one[place : place + 1] if one.dim() and len(one) == whole else one, inputs)


def _joined(samples: Sequence[Inputs], inputs: Inputs, whole: int) -> Any:
    """Return single samples of inputs as one batch."""
    columns = iter(zip(*map(first_inputs, samples), strict=True))

    def joined(tensor: torch.Tensor) -> torch.Tensor:
        column = next(columns)
        return torch.cat(column) if tensor.dim() and len(tensor) == whole else column[0]

    return mapped(joined, inputs)
