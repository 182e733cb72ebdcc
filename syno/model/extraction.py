"""Extraction of a network's layers: which layers run, which of them can be replaced, and their sizes.

The network is run once on an example with hooks, so that this works for any network that runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from syno.base.errors import SpecError, UserCodeError, suggestion
from syno.base.user_code import kind_of, user_code
from syno.model.computation import padding_of
from syno.model.geometry import CONVOLUTIONS, TRANSPOSED, axes_of
from syno.model.inputs import Inputs, call, first_inputs, shapes_in_words
from syno.model.layer import Layer
from syno.model.layer_rules import KINDS, LAYER_RULES, NOT_NAMED, PATTERN, STEM, Where, names_of, rule_for
from syno.model.proof import prove

QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.qat", "torch.ao.nn.intrinsic", "torch.ao.quantization.fake_quantize")
ADAPTER = re.compile(r"(^|\.)lora_(A|B|a|b|up|down|embedding_[AB])(\.|$)")
MOST_REASONS, MOST_NAMES = 4, 20  # in a message


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer in a forward pass, with the shapes of its first input and of its output."""

    name: str
    module: nn.Module
    input: tuple[int, ...]
    output: tuple[int, ...]


def trace(model: nn.Module, example: Inputs) -> list[LayerCall]:
    """Run a model once in evaluation mode, and return every call of a module that does work itself, in order.

    Such a module has weights of its own (perhaps parametrized) or no submodules; a parametrization is no module of its own.
    Modules that TorchScript has compiled take no hooks and are left out. The model is unchanged.

    Raises SpecError if there is no batch in the example, UserCodeError if the model fails on it.
    """
    check_example(example)
    calls: list[LayerCall] = []

    def note(name: str, module: nn.Module, inputs: object, output: object) -> None:
        calls.append(LayerCall(name, module, shape_of(inputs), shape_of(output)))

    inside = {part for module in model.modules() if is_parametrized(module) for part in module.parametrizations.modules()}
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule) or module in inside:
                continue
            if not list(module.children()) or list(module.parameters(recurse=False)) or is_parametrized(module):
                hooks.enter_context(module.register_forward_hook(partial(note, name)))
        description = f"{type(model).__name__}, run on {shapes_in_words(example)},"
        with torch.no_grad(), evaluation_mode(model), plain_attention(), user_code(description):
            call(model, example)
    return calls


def check_example(example: object) -> None:
    """Raise SpecError if there is no batch in an example of a network's inputs."""
    if any(tensor.dim() and len(tensor) for tensor in first_inputs(example)):
        return
    kind = (
        f"a {type(example).__name__}" if not isinstance(example, torch.Tensor) else f"a tensor of shape {list(example.shape)}"
    )
    raise SpecError(
        f"the example is {kind}, without a batch; give a tensor whose first axis is the batch, a tuple of arguments, or a "
        "dict of named arguments"
    )


def shape_of(value: object) -> tuple[int, ...]:
    """Return the shape of a tensor, or of the first tensor in a tuple or list; () if there is none."""
    if isinstance(value, tuple | list):
        return shape_of(value[0]) if value else ()
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Disable the fused fast path of `nn.MultiheadAttention` in the block: it calls no layers and makes nested tensors."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode in the block, so that batch normalization does not update its running statistics."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def replaceable(model: nn.Module, example: Inputs, where: Where = "spatial", *, keep_stem: bool = True) -> tuple[Layer, ...]:
    """Return the layers of `model` that operators can replace, in the order in which they run.

    A layer can be replaced if it computes what a convolution or a linear layer with its attributes computes, and if the network
    has the same output with another module in its place: see `syno.model.proof`.

    Args:
        model: run on the example, in both modes; it is unchanged.
        example: its inputs, with the batch size N: a tensor, a tuple of arguments, or a dict of named arguments; tokens
            [N, seq_len] for a language model.
        where: selects layers. Either a rule: a function of a layer that returns the reason to keep it, or None to replace it.
            Or the name of a rule: in the model's `layer_rules`, in `LAYER_RULES`, or your own as `package.module:name`. Or
            names or patterns of layers.
        keep_stem: whether the convolution that runs first stays, unless it is named.

    Raises:
        SpecError: no layer is selected, or a named layer does not exist or cannot be replaced. The message says why.
        UnknownNameError: there is no such rule.
    """
    layers, refused = sorted_out(model, example, where, keep_stem=keep_stem)
    if not layers:
        check_network(model, "the network is")
        kinds = getattr(rule_for(model, where), "kind", KINDS)
        none_runs = f"it runs no {' and no '.join(words_for(kinds))}"
        raise SpecError(
            f"{type(model).__name__} has no layer to replace ({_by_reason(refused) or none_runs}); "
            f"{_rules_that_take_layers(model, example, keep_stem)}"
        )
    return layers


def check_network(network: object, description: str) -> None:
    """Raise UserCodeError unless this is an eager, unquantized module with layers. Its message begins with `description`."""
    advice = ""
    if not isinstance(network, nn.Module):
        exported = type(network).__name__ == "ExportedProgram"
        advice = "give the module that was exported" if exported else "it must return the network, an nn.Module"
    elif hasattr(network, "_orig_mod"):
        advice = "it was compiled by torch.compile: give the module from before, which is its _orig_mod"
    elif isinstance(network, torch.jit.ScriptModule):
        advice = "it was compiled by TorchScript: give the module that was scripted or traced"
    elif isinstance(network, torch.fx.GraphModule) and not any(isinstance(module, KINDS) for module in network.modules()):
        advice = "it is a graph of functions without layers, as torch.export makes it: give the module that was exported"
    else:
        for name, module in network.named_modules():
            if type(module).__module__.startswith(QUANTIZED):
                place = f"its {name} is {kind_of(module)} of {type(module).__module__}"
                advice = f"it was quantized, or prepared for that ({place}): give the network from before, in floating point"
                break
    if advice:
        raise UserCodeError(f"{description} {kind_of(network)}; {advice}")


def _by_reason(refused: Mapping[str, str]) -> str:
    """Return the reasons why layers stay, each once with its first layer, the most frequent reason first."""
    names: dict[str, list[str]] = {}
    for name, reason in refused.items():
        names.setdefault(reason, []).append(name)
    ordered = sorted(names.items(), key=lambda pair: -len(pair[1]))
    shown = [f"{layers[0]}{'' if len(layers) == 1 else f' and {len(layers) - 1} more'}: {reason}" for reason, layers in ordered]
    more = len(shown) - MOST_REASONS
    return "; ".join(shown[:MOST_REASONS]) + (f"; and {more} other reason{'s' * (more > 1)}" if more > 0 else "")


def _rules_that_take_layers(model: nn.Module, example: Inputs, keep_stem: bool) -> str:
    """Return advice for an error: the rules that select layers of this model, with their numbers of layers, most first."""
    names = dict.fromkeys((*getattr(model, "layer_rules", {}), *LAYER_RULES))
    counts = {name: len(sorted_out(model, example, name, keep_stem=keep_stem)[0]) for name in names}
    taking = sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])
    if not taking:
        return "give another model, or name its layers"
    others = "".join(f", {name} {counts[name]}" for name in taking[1:3])
    best = f'`layers: {taking[0]}` (in Python: where="{taking[0]}")'
    return f"add {best}, which takes {counts[taking[0]]} of its layers{others and f'; other rules:{others[1:]}'}"


def layers_of(model: nn.Module, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the layers of a model's copy, each with the module of the same name in this model."""
    return tuple(replace(layer, module=model.get_submodule(layer.name)) for layer in layers)


def words_for(kinds: type[nn.Module] | tuple[type[nn.Module], ...]) -> list[str]:
    """Return the nouns for classes of layers, such as "convolution" and "linear layer"."""
    named = {"convolution": (*CONVOLUTIONS, *TRANSPOSED), "linear layer": (nn.Linear,)}
    return [name for name, known in named.items() if any(issubclass(kind, kinds) for kind in known)]


def sorted_out(
    model: nn.Module, example: Inputs, where: Where = "spatial", *, keep_stem: bool = True
) -> tuple[tuple[Layer, ...], dict[str, str]]:
    """Return the layers that `replaceable` selects (perhaps none), and the reason why each other layer stays, by name.

    Arguments and exceptions are the same as for `replaceable`.
    """
    refuse = rule_for(model, where)
    kinds = getattr(refuse, "kind", KINDS)
    uses: dict[str, list[LayerCall]] = {}
    for use in trace(model, example):
        if isinstance(use.module, kinds):
            uses.setdefault(use.name, []).append(use)
    convolutions = [name for name, (use, *_) in uses.items() if isinstance(use.module, CONVOLUTIONS)]
    names = names_of(refuse)
    stem = [name for name in convolutions[:1] if keep_stem and not any(fnmatchcase(name, pattern) for pattern in names)]
    aliases: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        aliases.setdefault(id(module), []).append(name)
    layers: list[Layer] = []
    refused: dict[str, str] = {}
    for name, used in uses.items():
        layer = STEM if name in stem else _layer(used, aliases.get(id(used[0].module), ()))
        if (
            isinstance(layer, Layer) and layer.is_projection and layer.axes != 1 and not hasattr(refuse, "kind")
        ):  # only the built-in rules are written for inputs with several axes of positions
            layer = f"its input is {list(used[0].input)}, not [N, seq_len, H_in]; the rule linear takes it"
        if isinstance(layer, Layer) and ADAPTER.search(name) and not any(fnmatchcase(name, pattern) for pattern in names):
            layer = "it is half of an adapter (LoRA), whose two layers are one update of a weight; merge it into the layer"
        reason = layer if isinstance(layer, str) else refuse(layer)
        if reason is not None:
            refused[name] = reason
        elif isinstance(layer, Layer):
            with evaluation_mode(layer.module):  # spectral normalization updates its state when the weight is read
                padding = padding_of(layer.module, layer.own_input)
            if isinstance(padding, str):
                refused[name] = padding
                continue
            layer = replace(layer, padding=padding)
            if layer.expected_output != layer.own_output:
                expected, own = list(layer.expected_output), list(layer.own_output)
                refused[name] = f"its output is {own}, where its attributes make {expected}"
            else:
                layers.append(layer)
    proof = prove(model, example, layers)
    refused |= proof.refused
    layers = [
        replace(layer, memory_format=proof.formats.get(layer.name), read=proof.read.get(layer.name, frozenset()))
        for layer in layers
        if layer.name not in proof.refused
    ]
    _check_names(model, names, layers, refused)
    return tuple(layers), refused


def _layer(used: list[LayerCall], names: Sequence[str]) -> Layer | str:
    """Return the layer that made these calls, or the reason why an operator cannot replace the layer."""
    if len(used) > 1:
        return f"it runs {len(used)} times"
    use = used[0]
    axes = len(axes_of(use.module))
    if not use.input:
        return "its input is given by keyword, and an operator takes it by position"
    if isinstance(use.module, nn.Linear) and len(use.input) < 2:
        return f"its input is {list(use.input)}, not [N, ..., features]"
    if axes and len(use.input) != axes + 2:
        return f"its input is {list(use.input)}, without an axis for the batch"
    if not isinstance(use.module, KINDS):
        return f"it is a {type(use.module).__name__}, not a {' or '.join(words_for(KINDS))}"
    return Layer(use.name, use.module, use.input, use.output, aliases=tuple(name for name in names if name != use.name))


def _check_names(model: nn.Module, names: Sequence[str], replaceable: Sequence[Layer], refused: Mapping[str, str]) -> None:
    """Raise SpecError if a layer that the user named does not exist or cannot be replaced."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for name in names:
        if any(fnmatchcase(own, name) for layer in replaceable for own in layer.names):
            continue
        if matching := next((own for own in refused if fnmatchcase(own, name) and refused[own] != NOT_NAMED), None):
            raise SpecError(f'layer "{matching}" cannot be replaced: {refused[matching]}; leave it out')
        if PATTERN.intersection(name):
            layers = [own for own, module in modules.items() if isinstance(module, KINDS)]
            more = f" and {len(layers) - MOST_NAMES} more" if len(layers) > MOST_NAMES else ""
            raise SpecError(
                f'the pattern "{name}" takes no layer of {type(model).__name__}; its layers: '
                f"{', '.join(layers[:MOST_NAMES]) or 'none'}{more}"
            )
        if name not in modules:
            raise SpecError(f'{type(model).__name__} has no layer "{name}".{suggestion(name, modules)}')
        kind, allowed = type(modules[name]).__name__, " or ".join(words_for(KINDS))
        if inner := [f"{name}.{own}" for own, module in modules[name].named_modules() if own and isinstance(module, KINDS)]:
            raise SpecError(f'"{name}" is a {kind} of {len(inner)} layers; name them, such as {inner[0]}, or all: {name}.*')
        why = "which is not called (a function may use its weight)" if isinstance(modules[name], KINDS) else f"not a {allowed}"
        raise SpecError(f'layer "{name}" is a {kind}, {why}; name layers that run and are a {allowed}')


@dataclass(frozen=True)
class DistinctLayer:
    """The first of a network's layers of one size.

    Attributes:
        position: index among all replaceable layers, counted from 1: layer L7 of the paper has position 7.
        layer: the layer with its sizes.
    """

    position: int
    layer: Layer

    @property
    def kernel(self) -> int:
        """The size of the convolution's window along an axis."""
        return int(self.layer.module.kernel_size[0])

    @property
    def name(self) -> str:
        """The layer's name by its sizes, as `conv_io64`: 64 channels before and after.

        Also `conv_i64_o128`; `residual_...` for the 1x1 convolution around a block; `projection_i768_o2304` for a linear layer.
        Layers for different picture sizes or lengths may have the same name.
        """
        layer = self.layer
        axis = -1 if layer.is_projection else 1
        before, after = layer.input[axis], layer.output[axis]
        channels = f"io{before}" if before == after else f"i{before}_o{after}"
        if layer.is_projection:
            return f"projection_{channels}"
        return f"{'residual' if self.kernel == 1 else 'conv'}_{channels}"


def distinct_layers(model: nn.Module, example: Inputs, where: Where = "paper") -> tuple[DistinctLayer, ...]:
    """Return the first replaceable layer of each size, in the order in which they run: ten layers of ResNet-34.

    Each is named after its sizes as in the paper's Figure 9 and its artifact. Arguments are those of `replaceable`.

    Raises SpecError if the model has no layer to replace.

    Source: paper, Figure 9 (layers L1 to L31); the artifact's folders `resnet34layers`.
    """
    first: dict[tuple[object, ...], DistinctLayer] = {}
    for position, layer in enumerate(replaceable(model, example, where), 1):
        first.setdefault(size_of(layer), DistinctLayer(position, layer))
    return tuple(first.values())


def size_of(layer: Layer) -> tuple[object, ...]:
    """Return a key that layers of equal size share: kernel, groups, stride, and the shapes of input and output."""
    kernel = () if layer.is_projection else (layer.module.kernel_size, layer.module.groups)
    return (*kernel, layer.stride, *layer.input, *layer.output)
