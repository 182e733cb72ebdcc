"""The layers of a network that an operator can replace, and the rules that say which of them are replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, TypeAlias

from torch import nn

from syno.base.registry import Registry, is_path


@dataclass(frozen=True)
class Layer:
    """A convolution or a linear layer that can be replaced.

    Attributes:
        name: in the network, as `get_submodule` takes it.
        module: the layer, an `nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d` or `nn.Linear`.
        values: of N, C_in, C_out and H for a convolution: an operator in its place maps [N, C_in, H, H] to [N, C_out, H, H].
            On pictures that are not square also of W, and the shapes are [N, C_in, H, W] and [N, C_out, H, W]. In one dimension
            of L in place of H, in three of D, H and W.
            Of N, seq_len, H_in and H_out for a linear layer: there it maps [N, seq_len, H_in] to [N, seq_len, H_out], which is
            [N, seq_len, t*H_in] for a projection to queries, keys and values.
        axes: of a linear layer: how many there are between N and the features. Together they are seq_len, 1 if there are none.
        stride: of the convolution, whose own input is longer by it along all axes; an operator comes after a pooling by it.
    """

    name: str
    module: nn.Module
    values: Mapping[str, int]
    stride: int = 1
    axes: int = 1

    @property
    def is_projection(self) -> bool:
        """Whether the layer is linear."""
        return isinstance(self.module, nn.Linear)

    @property
    def is_square(self) -> bool:
        """Whether it is a convolution of pictures that are as wide as they are high."""
        return isinstance(self.module, nn.Conv2d) and "W" not in self.values

    @property
    def lengths(self) -> tuple[str, ...]:
        """The variables of the axes after that of the channels: H twice for square pictures. () for a linear layer."""
        match self.module:
            case nn.Conv1d():
                return ("L",)
            case nn.Conv2d():
                return ("H", "H" if self.is_square else "W")
            case nn.Conv3d():
                return ("D", "H", "W")
        return ()

    @property
    def input(self) -> tuple[int, ...]:
        """The input shape of an operator in its place."""
        names = ("N", "seq_len", "H_in") if self.is_projection else ("N", "C_in", *self.lengths)
        return tuple(self.values[name] for name in names)

    @property
    def output(self) -> tuple[int, ...]:
        """The output shape of the layer, and of an operator in its place."""
        if self.is_projection:
            return (*self.input[:-1], int(self.module.out_features))
        return (self.values["N"], self.values["C_out"], *self.input[2:])

    @property
    def own_input(self) -> tuple[int, ...]:
        """The input shape of the layer itself: before the pooling by its stride."""
        return (*self.input[:2], *(self.stride * length for length in self.input[2:]))


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
KINDS = (*CONVOLUTIONS, nn.Linear)
NOT_NAMED = "it is not named"

LayerRule: TypeAlias = Callable[[Layer], str | None]  # returns in words why the layer is not replaced; None if it is
Where: TypeAlias = str | LayerRule | Sequence[str]  # the name of a rule, a rule, or names of layers (in a text, with commas)
LAYER_RULES: Registry[LayerRule] = Registry("rule for layers")


@dataclass(frozen=True)
class Convolutions:
    """A rule: convolutions with windows of one side length that keep the size, but for their stride.

    Attributes:
        kernels: allowed side lengths; None: every odd one above 1.
        strides: allowed strides; None: any, the same along all axes.
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
        kernel, padding, stride = convolution.kernel_size, convolution.padding, convolution.stride
        sides, strides = "x".join(map(str, kernel)), " or ".join(map(str, self.strides or ()))
        same = tuple(d * (k // 2) for d, k in zip(convolution.dilation, kernel, strict=True))
        checks = (
            (len(set(kernel)) > 1, f"its kernel is {sides}, with different sides"),
            (kernel[0] % 2 == 0, f"its kernel is {sides}, not odd"),
            (kernel[0] not in (self.kernels or range(2, kernel[0] + 1)), f"its kernel is {sides}"),
            (len(set(stride)) > 1, f"its stride is {stride}, not the same along all axes"),
            (self.strides is not None and stride[0] not in self.strides, f"its stride is {stride}, not {strides}"),
            (self.groups not in (None, convolution.groups), f"it has {convolution.groups} groups"),
            (convolution.groups < self.least_groups, f"it has {convolution.groups} group{'s' * (convolution.groups > 1)}"),
            (padding not in (same, "same"), f"its padding is {padding}, which does not keep the size"),
        )
        return next((reason for holds, reason in checks if holds), None) or _too_small(layer, self.least_size)


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
        return None if any(fnmatchcase(layer.name, name) for name in self.names) else NOT_NAMED


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
        return None if None in reasons else "; ".join(dict.fromkeys(map(str, reasons)))


def _too_small(layer: Layer, least: int, names: Sequence[str] = ()) -> str | None:
    size, name = min((size, name) for name, size in layer.values.items() if name in names or (name != "N" and not names))
    return f"its {name} is {size}, below {least}" if size < least else None


LAYER_RULES.register("spatial")(Convolutions(strides=None))
LAYER_RULES.register("pointwise")(Convolutions(kernels=(1,), strides=None))
LAYER_RULES.register("grouped")(Convolutions(kernels=None, strides=None, groups=None, least_groups=2))
# The layers of the paper's searches in ResNets, and of its evaluation on ImageNet: 16 and 19 layers of ResNet-18.
LAYER_RULES.register("paper-3x3")(Convolutions(kernels=(3,), strides=(1, 2), least_size=4))
LAYER_RULES.register("paper")(Convolutions(kernels=(1, 3), strides=(1, 2), least_size=4))
LAYER_RULES.register("projections")(Projections())
LAYER_RULES.register("linear")(Linears(least_size=16))


def rule_for(model: nn.Module, where: Where) -> LayerRule:
    """Return the rule that `where` means for this model.

    A text is the name of a rule or of several, or names or patterns of layers, with commas between them: "spatial, pointwise",
    or "stem, blocks.*.conv1".

    A model's own `layer_rules`, a mapping, goes before `LAYER_RULES`: the layers that the paper replaced depend on the network.

    Raises UnknownNameError if there is no such rule.
    """
    if callable(where):
        return where
    if not isinstance(where, str):
        return NamedLayers(tuple(where))
    own: Mapping[str, LayerRule] = getattr(model, "layer_rules", {})
    if where in own:
        return own[where]
    names = tuple(part.strip() for part in where.split(","))
    if len(names) > 1 and all(name in own or name in LAYER_RULES or is_path(name) for name in names):
        return AnyOf(tuple(rule_for(model, name) for name in names))
    layers = [name for name, module in model.named_modules() if isinstance(module, KINDS)]
    is_names = where not in LAYER_RULES and any(fnmatchcase(layer, name) for layer in layers for name in names)
    return NamedLayers(names) if is_names else LAYER_RULES.find(where)
