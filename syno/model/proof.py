"""Proof by trial that layers can be replaced: with a stand-in for a layer, the network must still run as before.

A stand-in computes exactly what its layer computes, but is another module. Copies of the network run with stand-ins. A layer
can be replaced if its stand-in is called as often as the layer was, gets gradients, and the network's output is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from syno.base.errors import ReplacedWeightError
from syno.base.user_code import OF_THE_MACHINE, reason_of, unchanged_process
from syno.model.inputs import Inputs, call, first_inputs, mapped, of_batch
from syno.model.layer import Layer
from syno.model.outputs import tensors_in
from syno.model.shared_memory import copy_of
from syno.model.stand_ins import SIZES, SIZES_OF_LINEAR, InPlace, clear_hooks, put_in_place

SEED = 0
OTHER_SEEDS = range(1, 9)  # a layer that is dropped at random in training (stochastic depth) runs with at least one seed
PAIR = 2  # samples: batch normalization does not learn from one
TOLERANCE = 1e-3  # of the largest output: other memory formats round in another order
AXES_OF_PICTURES = 4  # [N, C, H, W]: torch.channels_last is defined for these only
KEEPS_ANOTHER_NAME = (
    "forward does not reach the module in its place: a list, a function or a bound method keeps the layer itself"
)
NEVER_RUNS = "forward does not call the module in its place: it may ask for the layer's class"
USES_WEIGHT = "forward calls a function with its weight"
LEARNS_NOTHING = "no gradient reaches it, so an operator in its place would not learn"


@dataclass(frozen=True)
class _Run:
    """The record of one run of a network.

    Attributes:
        counts: number of calls of each layer, by name.
        uses: names of layers whose weights were passed to functions outside of the layers.
        outputs: the tensors in the network's output.
        learnt: names of layers whose weights got a gradient; None if no parameter of the network gets one.
    """

    counts: Counter[str]
    uses: frozenset[str]
    outputs: tuple[torch.Tensor, ...]
    learnt: frozenset[str] | None


@dataclass(frozen=True)
class Proof:
    """The result of `prove`: which layers can be replaced, and the needs of their replacements. Mappings are by layer's name.

    Attributes:
        refused: layers that cannot be replaced, each with the reason.
        formats: layers whose output must have one memory format for the network to run, with this format.
        read: layers of which the network reads attributes such as `stride`, with the names of these attributes.
    """

    refused: Mapping[str, str]
    formats: Mapping[str, torch.memory_format] = field(default_factory=dict)
    read: Mapping[str, frozenset[str]] = field(default_factory=dict)


def prove(model: nn.Module, example: Inputs, layers: Sequence[Layer]) -> Proof:
    """Return the proof for these layers, each of which runs once in evaluation mode: which of them can be replaced.

    Args:
        model: the network; its buffers and gradients are restored.
        example: inputs of the network, for the runs.
        layers: the candidates, with their names in the network.
    """
    if not layers or layers[0].module is model:
        return Proof({})
    with _Unchanged(model):
        return _Prover(model, example, layers).proof()


class _Prover:
    """Runs a network and copies of it with stand-ins, and compares their outputs, calls and gradients."""

    def __init__(self, model: nn.Module, example: Inputs, layers: Sequence[Layer]) -> None:
        self.model, self.example, self.layers = model, example, layers
        self.is_meta = any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers(), *first_inputs(example)))
        self.read: dict[str, set[str]] = {}  # attributes that the network reads, by the layer's name
        self.formats: dict[str, torch.memory_format] = {}  # of the layers' own outputs
        self.inputs, self.before = self._first_runs()

    def proof(self) -> Proof:
        refused = self._by_counts()
        left = [layer for layer in self.layers if layer.name not in refused]
        needed: frozenset[str] = frozenset()
        if left and self._fault(left, moved=left) is not None:
            faulty = {} if self._fault(left) is None else self._culprits(left)
            refused |= faulty
            left = [layer for layer in left if layer.name not in faulty]
            needed = self._in_need_of_format(left)
        formats = {name: self.formats[name] for name in needed}
        return Proof(refused, formats, {name: frozenset(read) for name, read in self.read.items()})

    def _first_runs(self) -> tuple[Inputs, dict[bool, _Run]]:
        """Return inputs for all runs, and the unchanged network's run in each mode; the key is True for training mode.

        The inputs are two random samples if the network runs on them, else two of the example's, else the whole example.
        A mode in which the network fails is left out.
        """
        runs: dict[bool, _Run] = {}
        for inputs in self._possible_inputs():
            self.inputs, runs = inputs, {}
            for mode in (True, False):
                try:
                    runs[mode] = self._run(copy_of(self.model), self.layers, training=mode)
                except Exception as error:
                    if type(error).__name__ in OF_THE_MACHINE:
                        raise
                    if mode and inputs is not self.example:
                        break  # batch normalization may need more samples
            if False in runs and (True in runs or inputs is self.example):
                break
        return self.inputs, runs

    def _possible_inputs(self) -> Iterator[Inputs]:
        few = of_batch(self.example, PAIR)
        yield drawn(few)
        yield few
        yield self.example

    def _by_counts(self) -> dict[str, str]:
        """Return the layers that do not run exactly once in each mode, each with that as the reason."""
        counts = {mode: run.counts for mode, run in self.before.items()}
        refused = {}
        for layer in self.layers:
            if False in counts and (count := counts[False][layer.name]) != 1:
                refused[layer.name] = f"it runs {count} times" if count else KEEPS_ANOTHER_NAME  # than the copy's
            elif True in counts and (count := counts[True][layer.name]) > 1:
                refused[layer.name] = f"it runs {count} times in training mode"
        left = [layer for layer in self.layers if layer.name not in refused]
        never = [layer for layer in left if True in counts and not counts[True][layer.name]]
        for seed in OTHER_SEEDS if never else ():
            again = self._run(copy_of(self.model), never, training=True, backward=False, seed=seed).counts
            never = [layer for layer in never if not again[layer.name]]
        return refused | {layer.name: "it runs in evaluation mode only" for layer in never}

    def _culprits(self, layers: Sequence[Layer]) -> dict[str, str]:
        """Return the layers that cannot be replaced by stand-ins, each with the reason."""
        faults = {layer.name: fault for layer in layers if (fault := self._fault([layer])) is not None}
        left = [layer for layer in layers if layer.name not in faults]
        if left and (fault := self._fault(left)) is not None:
            faults |= {layer.name: f"it and others cannot be replaced at once: {fault}" for layer in left}
        return faults

    def _in_need_of_format(self, layers: Sequence[Layer]) -> frozenset[str]:
        """Return the names of layers whose output must keep its memory format, since the network fails otherwise."""
        needing = [layer for layer in layers if self._fault(layers, moved=[layer]) is not None]
        others = [layer for layer in layers if layer not in needing]
        if self._fault(layers, moved=others) is not None:
            needing = list(layers)
        return frozenset(layer.name for layer in needing)

    def _fault(self, layers: Sequence[Layer], moved: Sequence[Layer] = ()) -> str | None:
        """Return the fault that appears if stand-ins replace all `layers` at once; None if there is none.

        The outputs of the stand-ins for `moved` layers have another memory format than the layers' own.
        """
        for mode, before in self.before.items():
            copied = copy_of(self.model)
            stand_ins: dict[str, _StandIn] = {}
            replaced: dict[str, list[nn.Module]] = {}
            for layer in layers:
                own = copied.get_submodule(layer.name)
                stand_ins[layer.name] = _StandIn(copy_of(own), is_moved=layer in moved)
                put_in_place(copied, layer.names, stand_ins[layer.name])
                replaced[layer.name] = [own, layer.module]
            # Tied weights of layers that stay may be used.
            shared = {id(weight) for weight in (*copied.parameters(), *self._parameters_outside(layers))}
            weights = {
                id(weight): name
                for name, modules in replaced.items()
                for module in modules
                for weight in module.parameters()
                if id(weight) not in shared
            }
            try:
                after = self._run(copied, layers, training=mode, stand_ins=stand_ins, weights=weights)
            except ReplacedWeightError as error:
                return f"forward uses its weight: {reason_of(error).removeprefix('ReplacedWeightError: ')}"
            except Exception as error:
                if type(error).__name__ in OF_THE_MACHINE:
                    raise
                said = reason_of(error).replace(f"'{_StandIn.__name__}' object", "an operator")
                return f"the network fails with another module in its place: {said}"
            if fault := self._difference(before, after, layers, mode, is_moved=bool(moved)):
                return fault
            for name, stand_in in stand_ins.items():
                self.read.setdefault(name, set()).update(stand_in.read)
                if stand_in.format is not None:
                    self.formats[name] = stand_in.format
        return None

    def _parameters_outside(self, layers: Sequence[Layer]) -> Iterator[nn.Parameter]:
        """Yield the parameters of the network's modules other than these layers and their submodules."""
        replaced = {id(part) for layer in layers for part in layer.module.modules()}
        for module in self.model.modules():
            if id(module) not in replaced:
                yield from module.parameters(recurse=False)

    def _difference(self, before: _Run, after: _Run, layers: Sequence[Layer], mode: bool, *, is_moved: bool) -> str | None:
        in_mode = "training mode" if mode else "evaluation mode"
        for layer in layers:
            was, now = before.counts[layer.name], after.counts[layer.name]
            if now > was:
                return f"the module in its place runs {now} times in {in_mode}, not {was}"
            if now < was:
                return KEEPS_ANOTHER_NAME if layer.name in after.uses else NEVER_RUNS
        if used := [layer.name for layer in layers if layer.name in after.uses]:
            return USES_WEIGHT if len(layers) == 1 else f"{USES_WEIGHT} ({used[0]})"
        if [y.shape for y in before.outputs] != [y.shape for y in after.outputs]:
            return f"the network's output has another shape in {in_mode}"
        if not self.is_meta and not _are_close(before.outputs, after.outputs):
            if is_moved and mode:
                # In another memory format dropout draws other masks, and numbers are rounded in another order, which
                # normalization over two samples may amplify.
                return self._fault(layers)
            if self._is_repeatable(before, mode):
                return f"the network's output depends on more of the layer than the output of its forward, in {in_mode}"
        if after.learnt is not None and {layer.name for layer in layers} - after.learnt:
            return LEARNS_NOTHING
        return None

    def _is_repeatable(self, before: _Run, mode: bool) -> bool:
        again = self._run(copy_of(self.model), self.layers, training=mode, backward=False).outputs
        return [y.shape for y in again] == [y.shape for y in before.outputs] and _are_close(before.outputs, again)

    def _run(
        self,
        model: nn.Module,
        layers: Sequence[Layer],
        *,
        training: bool,
        stand_ins: Mapping[str, nn.Module] | None = None,
        weights: Mapping[int, str] | None = None,
        backward: bool = True,
        seed: int = SEED,
    ) -> _Run:
        """Run a copy of the network, and return the record of the run.

        Args:
            model: the copy.
            layers: the layers whose calls are counted.
            training: whether it runs in training mode.
            stand_ins: the modules in place of the layers, by the layer's name; their calls are counted then.
            weights: the name of the layer of each weight whose uses by functions are recorded, by the weight's `id()`.
            backward: whether gradients are computed, in training mode.
            seed: seed of torch's random numbers.
        """
        counts: Counter[str] = Counter()
        watched = stand_ins or {layer.name: model.get_submodule(layer.name) for layer in layers}
        with ExitStack() as stack:
            for name, module in watched.items():
                module.forward = _counting_forward(
                    module.forward, counts, name
                )  # not a hook, which `layer.forward(x)` passes by
            backward = backward and training and not self.is_meta
            stack.enter_context(unchanged_process(seed))
            model.train(training)
            uses = _Uses(weights or {})
            with torch.set_grad_enabled(backward), uses:
                outputs = tuple(tensors_in(call(model, self.inputs)))
            counts = Counter(counts)  # a checkpoint runs layers again on the way back
            learnt = None
            if backward:
                for weight in model.parameters():
                    weight.grad = None
                losses = [y.float().square().mean() for y in outputs if y.requires_grad and y.is_floating_point()]
                if losses:
                    torch.stack([loss.cpu() for loss in losses]).sum().backward()
                    learnt = frozenset(
                        name for name, module in watched.items() if any(w.grad is not None for w in module.parameters())
                    )
        return _Run(counts, frozenset(uses.used), tuple(y.detach() for y in outputs), learnt)


class _StandIn(InPlace):
    """Computes what a layer computes, with weights of its own.

    Args:
        layer: a copy of the layer.
        is_moved: whether the output is a strided view whose axes are permuted in memory and have gaps, as the output of an
            operator may be that crops positions.
    """

    def __init__(self, layer: nn.Module, *, is_moved: bool) -> None:
        super().__init__()
        self.is_moved = is_moved
        self.read: set[str] = set()
        self.format: torch.memory_format | None = None
        self.stand_for(layer)
        self.__dict__.pop("bias", None)
        self.__dict__["layer"] = layer  # hidden, as it is not part of the network any more
        clear_hooks(layer)
        for number, (name, weight) in enumerate(layer.named_parameters(), 1):
            # An operator in place of a frozen layer learns.
            self._parameters["bias" if name == "bias" else f"w{number}"] = weight.requires_grad_()
        if "bias" not in self._parameters:
            self.__dict__["bias"] = layer.bias
        self.training = layer.training
        self.read.clear()

    def __getattribute__(self, name: str) -> Any:
        if name in SIZES or name in SIZES_OF_LINEAR:
            self.__dict__["read"].add(name)
        return super().__getattribute__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer: Any = self.__dict__["layer"]
        y = layer.train(self.training)(x)
        if self.is_moved:
            y = functional.pad(y.movedim(1, -1).contiguous(), (0, 1) * (y.dim() - 1))
            return y[(slice(None), *[slice(-1)] * (y.dim() - 1))].movedim(-1, 1)
        self.format = format_of(y)
        return y


class _Uses(TorchFunctionMode):  # type: ignore[misc]
    """Records which of `weights` are passed to torch functions: names of their layers in `used`.

    Args:
        weights: the name of its layer for each weight, by the weight's `id()`.
    """

    def __init__(self, weights: Mapping[int, str]) -> None:
        super().__init__()
        self.weights, self.used = weights, set[str]()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.weights and getattr(function, "__name__", "") != "__get__":  # attributes, such as its shape
            lists = [value for value in (*args, *kwargs.values()) if isinstance(value, list | tuple)]
            values = chain(args, kwargs.values(), *lists)
            self.used |= {self.weights[id(value)] for value in values if id(value) in self.weights}
        return function(*args, **kwargs)


def _counting_forward(forward: Callable[..., Any], counts: Counter[str], name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return forward(*args, **kwargs)

    return run


def drawn(inputs: Inputs) -> Inputs:
    """Return inputs with standard normal numbers in place of floating-point values; integers stay.

    If there are several tensors, only constant ones are replaced: the others may have a meaning that the network checks, such
    as increasing times, while constants are placeholders.
    """
    tensors, generators = first_inputs(inputs), dict[torch.device, torch.Generator]()

    def draw(tensor: torch.Tensor) -> torch.Tensor:
        if (
            not tensor.is_floating_point()
            or tensor.is_meta
            or (len(tensors) > 1 and bool((tensor != tensor.flatten()[:1]).any()))
        ):
            return tensor
        generator = generators.setdefault(tensor.device, torch.Generator(tensor.device).manual_seed(SEED))
        drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float32, device=tensor.device)
        return drawn.to(tensor.dtype, memory_format=format_of(tensor))

    return mapped(draw, inputs)


def format_of(x: torch.Tensor) -> torch.memory_format:
    """Return a tensor's memory format: torch.channels_last, or torch.contiguous_format for any other strides."""
    is_last = x.dim() == AXES_OF_PICTURES and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if is_last else torch.contiguous_format


class _Unchanged:
    """Context that restores a network's buffers, gradients and modes: copies may share modules with it through closures."""

    def __init__(self, model: nn.Module) -> None:
        self.buffers = [(weight, weight.detach().clone()) for weight in model.buffers() if not weight.is_meta]
        self.gradients = [(weight, weight.grad) for weight in model.parameters()]
        self.modes = [(module, module.training) for module in model.modules()]
        for weight, _ in self.gradients:
            weight.grad = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        with torch.no_grad():
            for weight, before in self.buffers:
                if not torch.equal(weight, before):
                    weight.copy_(before)
        for weight, gradient in self.gradients:
            weight.grad = gradient
        for module, training in self.modes:
            module.training = training


def _are_close(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
    for first, second in zip(before, after, strict=True):
        if first.is_meta or not first.numel():
            continue
        if not (first.is_floating_point() or first.is_complex()):
            continue  # a rounding may change an index
        finite = first[first.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 0.0
        if not torch.allclose(first, second, rtol=TOLERANCE, atol=TOLERANCE * largest, equal_nan=True):
            return False
    return True
