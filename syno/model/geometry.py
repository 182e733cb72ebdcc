"""Where the windows of a convolution lie, and how an operator that keeps the size of its input takes their place.

Along an axis, an operator has one output position for each position of its input, and reads around it. A convolution with
another padding has more or fewer, one with a stride skips some, and a transposed one adds some between. So zeros are added to
the layer's input, and the first and last positions of the operator's output are left out, such that a convolution that is
written as an operator reads what the layer reads at every position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from types import MappingProxyType
from typing import ClassVar, TypeAlias

import torch
from torch import nn

from syno.base.errors import UnknownNameError, suggestion
from syno.base.registry import Registry, is_path
from syno.ir.rewriting import HEIGHT, NAMES_OF_AXES, WIDTH

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class ConvolutionAxis:
    """A convolution along one axis. Positions are counted from 0.

    Attributes:
        kernel, stride, dilation: of the layer.
        padding: zeros ahead and behind.
    """

    kernel: int
    stride: int
    dilation: int
    padding: tuple[int, int]

    @property
    def _first(self) -> int:
        """The input's position that is the middle of the first window; of two, the second."""
        return self.dilation * (self.kernel // 2) - self.padding[0]

    @property
    def _rest(self) -> int:
        """The positions that a window reaches behind its middle, less the zeros behind."""
        return self.dilation * (self.kernel - 1 - self.kernel // 2) - self.padding[1]

    @property
    def skipped(self) -> int:
        """Positions of the operator that come before the layer's first one."""
        return -(-max(self._first, 0) // self.stride)

    @property
    def zeros(self) -> tuple[int, int]:
        """Zeros that are added to the input, ahead and behind."""
        return self.stride * self.skipped - self._first, max(-self._rest, 0)

    @property
    def keeps(self) -> bool:
        """Whether there is an operator's position for each of the layer's, and no other."""
        return self.zeros == (0, 0) and self.skipped == 0 and self._rest <= 0

    def positions(self, length: int) -> int:
        """Return the operator's positions along the axis for an input of this length."""
        ahead, behind = self.zeros
        return -(-(ahead + length + behind) // self.stride)

    def output(self, length: int) -> int:
        """Return the layer's positions along the axis for an input of this length."""
        return (length - 1 - self._first - self._rest) // self.stride + 1


@dataclass(frozen=True)
class TransposedAxis:
    """A transposed convolution along one axis: each position of the input becomes `stride` positions of the output.

    Attributes:
        kernel, stride, dilation, padding: of the layer.
        output_padding: positions that are added behind.
    """

    kernel: int
    stride: int
    dilation: int
    padding: int
    output_padding: int

    @property
    def _reach(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def _margins(self) -> tuple[int, int]:
        """Positions of the output ahead of and behind those that the input's positions become; negative if there are fewer."""
        ahead = -((self.stride - self._reach) // 2) - self.padding
        return ahead, self._reach + self.output_padding - self.stride - 2 * self.padding - ahead

    @property
    def zeros(self) -> tuple[int, int]:
        """Zeros that are added to the input, ahead and behind."""
        ahead, behind = (-(-max(margin, 0) // self.stride) for margin in self._margins)
        return ahead, behind

    @property
    def skipped(self) -> int:
        """Positions of the operator's output that come before the layer's first one."""
        return self.stride * self.zeros[0] - self._margins[0]

    @property
    def keeps(self) -> bool:
        """Whether there is an operator's position for each of the layer's, and no other."""
        return self._margins == (0, 0)

    def positions(self, length: int) -> int:
        """Return the positions of the operator's output for an input of this length."""
        return self.stride * (sum(self.zeros) + length)

    def output(self, length: int) -> int:
        """Return the layer's positions along the axis for an input of this length."""
        return self.stride * length + sum(self._margins)


LayerAxis: TypeAlias = ConvolutionAxis | TransposedAxis
Ends: TypeAlias = tuple[tuple[int, int], ...]  # positions ahead of and behind those along each axis


@dataclass(frozen=True)
class Padding:
    """The padding that a convolution adds around its input.

    Attributes:
        mode: "zeros", "circular", "reflect" or "replicate", as PyTorch names them; or "ceil": as many zeros as make
            ceil(length / stride) positions of an input of any length, as TensorFlow's "SAME" does.
        ends: how many positions are added; for "ceil" what they are depends on the length, and this is ().
    """

    mode: str
    ends: Ends = ()

    @property
    def is_of_zeros(self) -> bool:
        """Whether it is of zeros, as many for each length, which `axes_of` knows. Another padding comes before the axes."""
        return self.mode == "zeros"


def ends_of(layer: nn.Module) -> Ends:
    """Return the positions that a convolution adds, as its attribute `padding` has them.

    "same" adds as many as the window reaches, of an odd number one more behind.
    """
    reaches = [dilation * (kernel - 1) for kernel, dilation in zip(layer.kernel_size, layer.dilation, strict=True)]
    if layer.padding == "same":
        return tuple((reach // 2, reach - reach // 2) for reach in reaches)
    return tuple((zeros, zeros) for zeros in ([0] * len(reaches) if isinstance(layer.padding, str) else layer.padding))


def ends_of_ceil(layer: nn.Module, lengths: Sequence[int]) -> Ends:
    """Return the zeros that make ceil(length / stride) positions along each axis, of an odd number one more behind."""
    ends = []
    for length, kernel, stride, dilation in zip(lengths, layer.kernel_size, layer.stride, layer.dilation, strict=True):
        missing = dilation * (kernel - 1) + 1 - stride + (-length) % stride
        missing = missing * (missing > 0)  # not max(), which torch.fx cannot trace
        ends.append((missing // 2, missing - missing // 2))
    return tuple(ends)


def axes_of(layer: nn.Module, padding: Padding | None = None) -> tuple[LayerAxis, ...]:
    """Return a convolution's axes after that of the channels; () for another layer.

    Args:
        layer: any layer.
        padding: of a convolution, if it is another one than its attribute `padding` says.
    """
    if isinstance(layer, TRANSPOSED):
        fields = zip(layer.kernel_size, layer.stride, layer.dilation, layer.padding, layer.output_padding, strict=True)
        return tuple(TransposedAxis(*one) for one in fields)
    if not isinstance(layer, CONVOLUTIONS):
        return ()
    ends = ends_of(layer) if padding is None else padding.ends if padding.is_of_zeros else ((0, 0),) * len(layer.kernel_size)
    sizes = zip(layer.kernel_size, layer.stride, layer.dilation, ends, strict=True)
    return tuple(ConvolutionAxis(kernel, stride, dilation, zeros) for kernel, stride, dilation, zeros in sizes)


# ---- layers ----------------------------------------------------------------------------------------------------------

# A layer of a network that an operator can replace, with the sizes that it has there.

STRIDE = "stride"  # the variable of operators that have the layer's stride themselves


@dataclass(frozen=True)
class Layer:
    """A convolution, transposed convolution or linear layer that can be replaced.

    Attributes:
        name: in the network, as `get_submodule` takes it.
        module: the layer.
        own_input, own_output: the shapes that it has in the network.
        padding: of a convolution, if it is another one than its attribute `padding` says.
        aliases: its other names in the network.
        memory_format: the only one that the network takes the layer's output in, as `view` does; None if it takes others.
        read: its attributes that the network reads, such as `stride`.
    """

    name: str
    module: nn.Module
    own_input: tuple[int, ...]
    own_output: tuple[int, ...]
    padding: Padding | None = None
    aliases: tuple[str, ...] = ()
    memory_format: torch.memory_format | None = None
    read: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names in the network."""
        return (self.name, *self.aliases)

    @property
    def windows(self) -> tuple[LayerAxis, ...]:
        """A convolution's axes after that of the channels; () for a linear layer."""
        return axes_of(self.module, self.padding)

    @property
    def pads_before(self) -> bool:
        """Whether it adds positions that are no zeros, or a number that depends on the length: before its windows."""
        return self.padding is not None and not self.padding.is_of_zeros

    @property
    def positions(self) -> tuple[int, ...]:
        """The lengths of its input along the axes after that of the channels, with the positions that it adds before them."""
        lengths = self.own_input[2:]
        if self.padding is None or not self.pads_before:
            return lengths
        ends = self.padding.ends or ends_of_ceil(self.module, lengths)
        return tuple(ahead + length + behind for length, (ahead, behind) in zip(lengths, ends, strict=True))

    @property
    def expected_output(self) -> tuple[int, ...]:
        """The shape of its output as its attributes say."""
        if self.is_projection:
            return (*self.own_input[:-1], int(self.module.out_features))
        lengths = (axis.output(length) for axis, length in zip(self.windows, self.positions, strict=True))
        return (self.own_input[0], int(self.module.out_channels), *lengths)

    @property
    def values(self) -> Mapping[str, int]:
        """The variables of an operator in its place.

        Of N, C_in, C_out and H for a convolution: an operator in its place maps [N, C_in, H, H] to [N, C_out, H, H]. On
        pictures that are not square also of W, and the shapes are [N, C_in, H, W] and [N, C_out, H, W]. In one dimension of
        L in place of H, in three of D, H and W. A pooling by the stride comes before the operator, and for a transposed
        convolution an enlargement.

        Of N, seq_len, H_in and H_out for a linear layer: there it maps [N, seq_len, H_in] to [N, seq_len, H_out], which is
        [N, seq_len, t*H_in] for a projection to queries, keys and values. All axes between N and the features are seq_len.
        """
        before, after = self.own_input, self.own_output
        if self.is_projection:
            found = {"N": before[0], "seq_len": prod(before[1:-1]), "H_in": before[-1], "H_out": after[-1]}
        else:
            lengths = [axis.positions(length) for axis, length in zip(self.windows, self.positions, strict=True)]
            names = NAMES_OF_AXES[len(lengths)]
            found = {"N": before[0], "C_in": before[1], "C_out": after[1], **dict(zip(names, lengths, strict=True))}
            if names == (HEIGHT, WIDTH) and lengths[0] == lengths[1]:
                del found[WIDTH]
        return MappingProxyType(found)

    @property
    def is_projection(self) -> bool:
        """Whether the layer is linear."""
        return isinstance(self.module, nn.Linear)

    @property
    def is_transposed(self) -> bool:
        """Whether it is a transposed convolution."""
        return isinstance(self.module, TRANSPOSED)

    @property
    def channels(self) -> tuple[int, int]:
        """The channels or features of its input and its output."""
        module = self.module
        ends = (module.in_features, module.out_features) if self.is_projection else (module.in_channels, module.out_channels)
        return int(ends[0]), int(ends[1])

    @property
    def is_square(self) -> bool:
        """Whether it is a convolution of pictures, with as many positions along both axes."""
        return len(self.windows) == 2 and WIDTH not in self.values

    @property
    def axes(self) -> int:
        """The number of axes between N and the features of a linear layer."""
        return len(self.own_input) - 2

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride along each axis; () for a linear layer."""
        return tuple(axis.stride for axis in self.windows)

    @property
    def stride(self) -> int:
        """The largest stride; 1 for a linear layer."""
        return max(self.strides, default=1)

    @property
    def keeps(self) -> bool:
        """Whether it has an operator's positions, so that there is no zero to add, and no position to leave out."""
        return all(axis.keeps for axis in self.windows)

    @property
    def lengths(self) -> tuple[str, ...]:
        """The variables of the axes after that of the channels: H twice for square pictures. () for a linear layer."""
        return (HEIGHT, HEIGHT) if self.is_square else NAMES_OF_AXES.get(len(self.windows), ())

    @property
    def input(self) -> tuple[int, ...]:
        """The input shape of an operator in its place."""
        names = ("N", "seq_len", "H_in") if self.is_projection else ("N", "C_in", *self.lengths)
        return tuple(self.values[name] for name in names)

    @property
    def output(self) -> tuple[int, ...]:
        """The output shape of an operator in its place."""
        if self.is_projection:
            return (*self.input[:-1], int(self.module.out_features))
        return (self.values["N"], self.values["C_out"], *self.input[2:])

    @property
    def values_with_stride(self) -> Mapping[str, int]:
        """The variables of an operator in its place that has the layer's stride itself: fewer positions, and the stride."""
        few = {name: self.values[name] // stride for name, stride in zip(self.lengths, self.strides, strict=True)}
        return MappingProxyType({**self.values, **(few if self.is_transposed else {}), STRIDE: self.stride})

    @property
    def shapes_with_stride(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The input and output shapes of an operator that has the layer's stride itself."""
        values, ends = self.values_with_stride, (self.input[:2], self.output[:2])
        few = tuple(values[name] for name in self.lengths)
        many = tuple(length * stride for length, stride in zip(few, self.strides, strict=True))
        before, after = (few, many) if self.is_transposed else (many, few)
        return (*ends[0], *before), (*ends[1], *after)


# ---- rules that choose layers ----------------------------------------------------------------------------------------

# The rules that say which layers of a network are replaced.

KINDS = (*CONVOLUTIONS, *TRANSPOSED, nn.Linear)
PATTERN = frozenset("*?[")  # signs of patterns of names
NOT_NAMED, STEM = "it is not named", "it is the first convolution"

LayerRule: TypeAlias = Callable[[Layer], str | None]  # returns in words why the layer is not replaced; None if it is
Where: TypeAlias = str | LayerRule | Sequence[str]  # the name of a rule, a rule, or names of layers (in a text, with commas)
LAYER_RULES: Registry[LayerRule] = Registry("rule for layers")


@dataclass(frozen=True)
class Convolutions:
    """A rule: convolutions, with any padding and dilation.

    Attributes:
        kernels: allowed side lengths, the same along all axes; None: any, if one is above 1.
        strides: allowed strides; None: any.
        groups: number of groups; None: any number.
        least_groups: layers with fewer groups are not replaced.
        least_size: layers with a smaller C_in, C_out or H are not replaced.
    """

    kind: ClassVar[tuple[type[nn.Module], ...]] = CONVOLUTIONS

    kernels: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = (1,)
    groups: int | None = 1
    least_groups: int = 1
    least_size: int = 1

    def __call__(self, layer: Layer) -> str | None:
        """Return why the layer is not replaced; None if it is."""
        convolution = layer.module
        kernel, stride = convolution.kernel_size, convolution.stride
        sides, strides = "x".join(map(str, kernel)), " or ".join(map(str, self.strides or ()))
        checks = (
            (max(kernel) == 1 if self.kernels is None else kernel[0] not in self.kernels, f"its kernel is {sides}"),
            (self.kernels is not None and len(set(kernel)) > 1, f"its kernel is {sides}, with different sides"),
            (self.strides is not None and not set(stride) <= set(self.strides), f"its stride is {stride}, not {strides}"),
            (self.groups not in (None, convolution.groups), f"it has {convolution.groups} groups"),
            (convolution.groups < self.least_groups, f"it has {convolution.groups} group{'s' * (convolution.groups > 1)}"),
        )
        return next((reason for holds, reason in checks if holds), None) or _too_small(layer, self.least_size)


@dataclass(frozen=True)
class TransposedConvolutions(Convolutions):
    """A rule: transposed convolutions; its attributes are those of `Convolutions`."""

    kind: ClassVar[tuple[type[nn.Module], ...]] = TRANSPOSED


@dataclass(frozen=True)
class Projections:
    """A rule: linear layers along a sequence that make `ratio` times as many features.

    Attributes:
        ratio: t, the output's features to the input's: 3 for queries, keys and values at once.
        least_size: layers with a smaller seq_len or H_in are not replaced.
    """

    kind: ClassVar[type[nn.Module]] = nn.Linear

    ratio: int = 3
    least_size: int = 1

    def __call__(self, layer: Layer) -> str | None:
        """Return why the layer is not replaced; None if it is."""
        before, after = layer.input[-1], layer.output[-1]
        if after != self.ratio * before:
            return f"it makes {after} features of {before}, not {self.ratio} times as many"
        return _too_small(layer, self.least_size)


@dataclass(frozen=True)
class Linears:
    """A rule: linear layers with any number of axes before the features.

    Attributes:
        least_size: layers with a smaller H_in or H_out are not replaced, such as the head of a network with few classes.
    """

    kind: ClassVar[type[nn.Module]] = nn.Linear

    least_size: int = 1

    def __call__(self, layer: Layer) -> str | None:
        """Return why the layer is not replaced; None if it is."""
        return _too_small(layer, self.least_size, ("H_in", "H_out"))


@dataclass(frozen=True)
class NamedLayers:
    """A rule: the layers with these names, which may be patterns as in a shell: `blocks.*.conv1`."""

    kind: ClassVar[tuple[type[nn.Module], ...]] = KINDS

    names: tuple[str, ...]

    def __call__(self, layer: Layer) -> str | None:
        """Return None for a named layer, and a reason for the others."""
        return None if any(fnmatchcase(one, name) for one in layer.names for name in self.names) else NOT_NAMED


@dataclass(frozen=True)
class AnyOf:
    """A rule: the layers that one of several rules takes."""

    rules: tuple[LayerRule, ...]

    @property
    def kind(self) -> tuple[type[nn.Module], ...]:
        """The kinds of layers that the rules know."""
        kinds = (getattr(rule, "kind", KINDS) for rule in self.rules)
        return tuple(one for each in kinds for one in (each if isinstance(each, tuple) else (each,)))

    def __call__(self, layer: Layer) -> str | None:
        """Return None if a rule takes the layer, else the reasons of all."""
        reasons = [rule(layer) for rule in self.rules if isinstance(layer.module, getattr(rule, "kind", KINDS))]
        told = [reason for reason in dict.fromkeys(map(str, reasons)) if reason != NOT_NAMED] or [NOT_NAMED]
        return None if None in reasons else "; ".join(told)


def _too_small(layer: Layer, least: int, names: Sequence[str] = ()) -> str | None:
    size, name = min((size, name) for name, size in layer.values.items() if name in names or (name != "N" and not names))
    return f"its {name} is {size}, below {least}" if size < least else None


LAYER_RULES.register("spatial")(Convolutions(strides=None))
LAYER_RULES.register("pointwise")(Convolutions(kernels=(1,), strides=None))
LAYER_RULES.register("grouped")(Convolutions(kernels=None, strides=None, groups=None, least_groups=2))
LAYER_RULES.register("transposed")(TransposedConvolutions(strides=None))
# The layers of the paper's searches in ResNets, and of its evaluation on ImageNet: 16 and 19 layers of ResNet-18.
LAYER_RULES.register("paper-3x3")(Convolutions(kernels=(3,), strides=(1, 2), least_size=4))
LAYER_RULES.register("paper")(Convolutions(kernels=(1, 3), strides=(1, 2), least_size=4))
LAYER_RULES.register("projections")(Projections())
LAYER_RULES.register("linear")(Linears(least_size=16))


def names_of(rule: LayerRule) -> tuple[str, ...]:
    """Return the names and patterns of layers in a rule."""
    parts = rule.rules if isinstance(rule, AnyOf) else (rule,)
    return tuple(name for part in parts if isinstance(part, NamedLayers) for name in part.names)


NEGATED = re.compile(r"[!~^-]|(not|all but|all except|except|without)\b", re.IGNORECASE)


def rule_for(model: nn.Module, where: Where) -> LayerRule:
    """Return the rule that `where` means for this model.

    A text has names of rules, and names or patterns of layers, with commas between them: "spatial, pointwise",
    "stem, blocks.*.conv1", or "spatial, stem".

    A model's own `layer_rules`, a mapping, goes before `LAYER_RULES`: the layers that the paper replaced depend on the network.
    What is a pattern, or the name of a module, is no rule, whether or not it takes a layer.

    Raises UnknownNameError if a name is neither of a rule nor of a module.
    """
    if callable(where):
        return where
    if not isinstance(where, str):
        return NamedLayers(tuple(where))
    own: Mapping[str, LayerRule] = getattr(model, "layer_rules", {})
    if where in own:
        return own[where]
    names = tuple(name for part in where.split(",") if (name := part.strip())) or ("",)
    rules = tuple(name for name in names if name in own or name in LAYER_RULES or is_path(name))
    if rules and len(names) > 1:
        others = tuple(name for name in names if name not in rules)
        return AnyOf((*(rule_for(model, name) for name in rules), *([NamedLayers(others)] if others else [])))
    if rules:
        return LAYER_RULES.find(rules[0])
    modules = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    if negated := next((name for name in names if name not in modules and NEGATED.match(name)), None):
        raise UnknownNameError(
            f'"{negated}" takes all layers but some, and layers are named one by one: name those to replace, or a pattern of '
            'them such as blocks.*.conv1; or write a rule of your own, "package.module:rule", which returns for a layer why it '
            "stays, or None"
        )
    unknown = [name for name in names if not name or not (PATTERN.intersection(name) or name in modules)]
    if not unknown:
        return NamedLayers(names)
    layers = [name for name, module in model.named_modules() if isinstance(module, KINDS)]
    known = tuple(dict.fromkeys((*own, *LAYER_RULES)))
    hint = suggestion(unknown[0], (*known, *layers)) or " `syno data` lists the layers."
    raise UnknownNameError(
        f'"{unknown[0]}" is no rule for layers, and {type(model).__name__} has no layer of that name; the rules are: '
        f'{", ".join(known)}, or your own as "package.module:rule"; layers are named as in {", ".join(layers[:3]) or "conv1"}, '
        f"or by a pattern such as blocks.*.conv1.{hint}"
    )
