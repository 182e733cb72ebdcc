"""Rules that select the layers of a network to replace."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, TypeAlias

from torch import nn

from syno.base.errors import UnknownNameError, suggestion
from syno.base.registry import Registry, is_path
from syno.model.geometry import CONVOLUTIONS, TRANSPOSED
from syno.model.layer import Layer

KINDS = (*CONVOLUTIONS, *TRANSPOSED, nn.Linear)
PATTERN = frozenset("*?[")  # signs of patterns of names
NOT_NAMED, STEM = "it is not named", "it is the first convolution"

LayerRule: TypeAlias = Callable[[Layer], str | None]  # returns the reason to keep the layer, in words; None: replace it
Where: TypeAlias = str | LayerRule | Sequence[str]  # the name of a rule, a rule, or names of layers (in a text, with commas)
LAYER_RULES: Registry[LayerRule] = Registry("rule for layers")


@dataclass(frozen=True)
class Convolutions:
    """A rule: convolutions, with any padding and dilation.

    Attributes:
        kernels: allowed side lengths, the same along all axes; None: any kernel with more than one position.
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
        """Return the reason to keep the layer; None to replace it."""
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
    """A rule: transposed convolutions, with the attributes of `Convolutions`."""

    kind: ClassVar[tuple[type[nn.Module], ...]] = TRANSPOSED


@dataclass(frozen=True)
class Projections:
    """A rule: linear layers with `ratio` times as many output as input features, such as projections to queries, keys, values.

    Attributes:
        ratio: number of output features over input features: 3 for queries, keys and values in one layer.
        least_size: layers with a smaller seq_len or H_in are not replaced.
    """

    kind: ClassVar[type[nn.Module]] = nn.Linear

    ratio: int = 3
    least_size: int = 1

    def __call__(self, layer: Layer) -> str | None:
        """Return the reason to keep the layer; None to replace it."""
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
        """Return the reason to keep the layer; None to replace it."""
        return _too_small(layer, self.least_size, ("H_in", "H_out"))


@dataclass(frozen=True)
class NamedLayers:
    """A rule: the layers with these names, which may be patterns as in a shell: `blocks.*.conv1`."""

    kind: ClassVar[tuple[type[nn.Module], ...]] = KINDS

    names: tuple[str, ...]

    def __call__(self, layer: Layer) -> str | None:
        """Return None for a layer that the rule names, else the reason to keep it."""
        return None if any(fnmatchcase(own, name) for own in layer.names for name in self.names) else NOT_NAMED


@dataclass(frozen=True)
class AnyOf:
    """A rule: the union of several rules."""

    rules: tuple[LayerRule, ...]

    @property
    def kind(self) -> tuple[type[nn.Module], ...]:
        """The classes of layers to which the rules apply."""
        kinds = (getattr(rule, "kind", KINDS) for rule in self.rules)
        return tuple(kind for each in kinds for kind in (each if isinstance(each, tuple) else (each,)))

    def __call__(self, layer: Layer) -> str | None:
        """Return None if one of the rules selects the layer, else the reasons of all rules to keep it."""
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
    """Return the names and patterns of layers that a rule lists; () if it lists none."""
    parts = rule.rules if isinstance(rule, AnyOf) else (rule,)
    return tuple(name for part in parts if isinstance(part, NamedLayers) for name in part.names)


NEGATED = re.compile(r"[!~^-]|(not|all but|all except|except|without)\b", re.IGNORECASE)


def rule_for(model: nn.Module, where: Where) -> LayerRule:
    """Return the rule that `where` describes for this model.

    A string lists names of rules, and names or patterns of layers, separated by commas: "spatial, pointwise",
    "stem, blocks.*.conv1", or "spatial, stem".

    Rules are looked up in the model's own `layer_rules`, then in `LAYER_RULES`: which layers the paper replaced depends on the
    network. A pattern or the name of a module is no rule, even if it matches no layer.

    Raises UnknownNameError if a name is neither a rule nor a module.
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
