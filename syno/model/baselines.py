"""What takes the place of a network's layers and is no single pGraph: modules of PyTorch, known layers, networks, mixtures.

It is named where a known operator can be a baseline: in `train: baselines`, in `syno tune`, in `substitute`. Its text, such as
`module NAME` or `network KIND SHARE`, stands in records where an operator's text stands. Reading names and texts does not load
torch.

>>> layer = MODULE_BASELINES["nas_pte_1"].build({"C_in": 16, "C_out": 16, "H": 7})
>>> sum(weight.numel() for weight in layer.parameters()) / (16 * 16 * 9)
0.375
>>> network_baseline("pruned_0.5")
NetworkBaseline(kind='pruned', share=0.5)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from syno.base.errors import ParseError, SpecError, UnknownNameError
from syno.base.files import check_name
from syno.base.registry import Registry, imported, is_path
from syno.ir.dim import content_id
from syno.ir.graph import PGraph
from syno.ir.library.efficient import dropped, grouped, low_rank, separable
from syno.ir.text import parse

if TYPE_CHECKING:
    from torch import nn


BEGINNING = "module "  # of the text of such a baseline


@dataclass(frozen=True)
class ModuleBaseline:
    """A baseline that is a PyTorch module.

    Attributes:
        name: its name in records and tables.
        factory: `package.module:name` of a function or class that returns the module: from [N, C_in, H, H] to
            [N, C_out, H, H], for any N. It takes the values of a layer's variables (C_in, C_out, H) as a mapping, and raises
            SizeError if they do not suit it.
        source: where it comes from.
    """

    name: str
    factory: str
    source: str = ""

    @property
    def id(self) -> str:
        """The id in records, 32 hexadecimal digits. It depends on the name or path, not on what the module computes."""
        return content_id("module", self._name_or_path)

    def __str__(self) -> str:
        return f"{BEGINNING}{self._name_or_path}\n"

    @property
    def _name_or_path(self) -> str:
        return self.name if self.name in MODULE_BASELINES else self.factory

    def build(self, values: Mapping[str, int], seed: int | None = None) -> nn.Module:
        """Return the module, in float32 on the CPU.

        Args:
            values: of C_in, C_out and H, as `Layer.values`.
            seed: of the weights; None: of the global random state.

        Raises SizeError if the sizes do not suit it, SpecError if the factory returns no module.
        """
        import torch

        factory = imported(self.factory, "module baseline")
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            made: Any = factory(dict(values))
        if not isinstance(made, torch.nn.Module):
            raise SpecError(
                f'the module baseline "{self._name_or_path}" returned {type(made).__name__}; it must return an nn.Module'
            )
        return made


WHOLE = "network "  # beginning of the text of a network with fewer channels
Kind: TypeAlias = Literal["pruned", "narrow"]


@dataclass(frozen=True)
class NetworkBaseline:
    """The original network with a share of the channels of each layer (`syno.model.pruning`).

    Attributes:
        kind: "pruned": training goes on from the trained original's weights; "narrow": from new ones.
        share: of the channels that stay.
    """

    kind: Kind
    share: float

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or not 0 < self.share < 1:
            raise UnknownNameError(
                f'"{self.kind}_{self.share:g}" is no narrower network: give pruned_SHARE or narrow_SHARE, with a share above 0 '
                "and below 1 of the channels, as in pruned_0.5"
            )

    @property
    def name(self) -> str:
        """The name in records and tables: "pruned_0.5"."""
        return f"{self.kind}_{self.share:g}"

    @property
    def id(self) -> str:
        """The id in records, 32 hexadecimal digits."""
        return content_id("network", self.name)

    @property
    def structure(self) -> NetworkBaseline:
        """The one that stands for all with the same shapes, so that its speed is that of the others."""
        return NetworkBaseline("narrow", self.share)

    def __str__(self) -> str:
        return f"{WHOLE}{self.kind} {self.share:g}\n"


def network_baseline(given: str) -> NetworkBaseline | None:
    """Return the narrower network of this name, as `pruned_0.5`; None if the name is not of this form.

    Raises UnknownNameError if the share is not above 0 and below 1.
    """
    found = re.fullmatch(rf"({'|'.join(get_args(Kind))})_([0-9.]+)", given)
    if found is None:
        return None
    with suppress(ValueError):
        return NetworkBaseline(cast(Kind, found[1]), float(found[2]))
    return None


BY_LAYER = "known layer "  # beginning of the text of a known layer
KnownKind: TypeAlias = Literal["separable", "grouped", "low_rank", "dropped"]
UNDIVIDED = ("separable", "dropped")  # those without a number
NARROWER = "narrower_"  # beginning of the name of a layer with fewer channels


@dataclass(frozen=True)
class KnownLayer:
    """An efficient layer in common use, in place of each of a network's layers: it reads what that layer reads.

    >>> operator = KnownLayer("grouped", 4).operator(kernel=(25,), inputs=16, outputs=32, groups=1)
    >>> operator.name, operator.weight_sizes(1)
    ('grouped_4', (Size(g), Size(g^-1*C_out), Size(g^-1*C_in), Size(k)))

    Attributes:
        kind: a convolution of each channel and one of 1x1 ("separable"), one of groups of channels ("grouped"), one to few
            channels and then to all ("low_rank"), or none: its output is its input ("dropped").
        divisor: the number of groups, or by how much fewer the few channels are; 1 for the others.
    """

    kind: KnownKind
    divisor: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(KnownKind) or (self.divisor < 2) != (self.kind in UNDIVIDED):
            raise UnknownNameError(_no_known_layer(self.name))

    @property
    def name(self) -> str:
        """The name in records and tables: "grouped_4"."""
        return self.kind if self.divisor == 1 else f"{self.kind}_{self.divisor}"

    @property
    def id(self) -> str:
        """The id in records, 32 hexadecimal digits."""
        return content_id("layers", self.name)

    def __str__(self) -> str:
        return f"{BY_LAYER}{self.name}\n"

    def operator(self, kernel: Sequence[int], inputs: int, outputs: int, groups: int) -> PGraph | None:
        """Return the operator in place of a layer; None where it would be no cheaper or does not fit, so that the layer stays.

        Args:
            kernel: of the layer, a size for each axis; () for a linear layer.
            inputs, outputs: the layer's channels or features.
            groups: of its channels; 1 for a linear layer.
        """
        taps = prod(kernel)
        elements = inputs * outputs * taps // groups  # of its weight: what an output of each channel costs
        if self.kind == "dropped":
            return dropped(kernel) if inputs == outputs else None
        if self.kind == "separable":
            return separable(kernel) if kernel and inputs * (taps + outputs) < elements else None
        if self.kind == "grouped":
            parts = gcd(self.divisor, inputs, outputs)
            return grouped(kernel, parts).renamed(self.name) if parts > groups else None
        rank = max(2, round(outputs / self.divisor))
        return low_rank(kernel, rank).renamed(self.name) if rank * (inputs * taps + outputs) < elements else None


@dataclass(frozen=True)
class NarrowerLayer:
    """The layer itself with a share of its channels: those whose weights are the largest (`syno.model.pruning`).

    The layers that read it have fewer inputs. It takes the place of layers whose channels no other layer has, such as the first
    one of a residual block.

    Attributes:
        share: of the channels that stay.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UnknownNameError(_no_known_layer(self.name))

    @property
    def name(self) -> str:
        """The name in records and tables: "narrower_0.5"."""
        return f"{NARROWER}{self.share:g}"

    @property
    def id(self) -> str:
        """The id in records, 32 hexadecimal digits."""
        return content_id("layers", self.name)

    def __str__(self) -> str:
        return f"{BY_LAYER}{self.name}\n"


def known_layer(given: str) -> KnownLayer | NarrowerLayer | None:
    """Return the known layer of this name, as `separable`, `grouped_4` or `narrower_0.5`; None if the name is not of this form.

    Raises UnknownNameError if there is no such layer.
    """
    if re.fullmatch(rf"{NARROWER}[0-9]*\.?[0-9]+", given):
        return NarrowerLayer(float(given.removeprefix(NARROWER)))
    found = re.fullmatch(rf"({'|'.join(get_args(KnownKind))})(?:_([0-9]+))?", given)
    if found is None:
        return None
    try:
        return KnownLayer(cast(KnownKind, found[1]), int(found[2] or 1))
    except UnknownNameError:
        raise UnknownNameError(_no_known_layer(given)) from None


def _no_known_layer(given: str) -> str:
    return (
        f'"{given}" is no known layer: give separable, dropped, grouped_NUMBER or low_rank_NUMBER, with 2 or more groups, or '
        "the number that divides the channels, as in grouped_4, or narrower_SHARE, with the share of the channels that stay, "
        "above 0 and below 1"
    )


LayerReplacement: TypeAlias = PGraph | ModuleBaseline | KnownLayer | NarrowerLayer  # what stands in place of a layer
MIXTURE, ON, LAYERS = "mixture ", "on ", "layers "  # beginnings of lines in the text of a mixture


@dataclass(frozen=True)
class Mixture:
    """Several operators in a network, each in some of its layers. The other layers stay.

    >>> from syno.ir.library import OPERATORS
    >>> operator = OPERATORS["conv1x1"]()
    >>> mixture = Mixture("mixture_1", ((operator, ("blocks.0.conv1", "blocks.0.conv2")),), NetworkBaseline("pruned", 0.5))
    >>> print("\\n".join(str(mixture).splitlines()[:4]))
    mixture mixture_1
    on network pruned 0.5
    layers blocks.0.conv1, blocks.0.conv2
    operator conv1x1
    >>> read_replacement(str(mixture)) == mixture
    True

    Attributes:
        name: its name in records and tables.
        parts: each operator with the names of its layers.
        base: the network that they are in, if it is a narrower one; None: the original.
    """

    name: str
    parts: tuple[tuple[LayerReplacement, tuple[str, ...]], ...]
    base: NetworkBaseline | None = None

    @property
    def id(self) -> str:
        """The id in records, 32 hexadecimal digits. It does not depend on names."""
        parts = sorted(f"{one.id} {' '.join(names)}" for one, names in self.parts)
        return content_id("mixture", "\n".join([*parts, *([] if self.base is None else [self.base.id])]))

    @property
    def structure(self) -> Mixture:
        """The one that stands for all with the same shapes, so that its speed is that of the others."""
        return self if self.base is None else replace(self, base=self.base.structure)

    @property
    def narrower(self) -> Mixture:
        """The same network without operators: its layers with fewer channels have these, and the others stay."""
        return replace(self, parts=tuple((one, names) for one, names in self.parts if isinstance(one, NarrowerLayer)))

    @property
    def layers(self) -> dict[str, LayerReplacement]:
        """The operator of each layer that has one."""
        return {name: one for one, names in self.parts for name in names}

    def __str__(self) -> str:
        base = [] if self.base is None else [f"{ON}{self.base}"]
        parts = [f"{LAYERS}{', '.join(names)}\n{one}" for one, names in self.parts]
        return "".join([f"{MIXTURE}{self.name}\n", *base, *(part if part.endswith("\n") else f"{part}\n" for part in parts)])


def _read_mixture(text: str) -> Mixture:
    """Return the mixture of a text. Raises ParseError if it holds none, SpecError for a name that it cannot have."""
    head, *rest = text.strip().splitlines()
    name = check_name(head.removeprefix(MIXTURE).strip(), "a mixture's name")
    base, parts = None, list[tuple[str, list[str]]]()
    for line in rest:
        if line.startswith(ON) and not parts:
            found = read_replacement(line.removeprefix(ON))
            if not isinstance(found, NetworkBaseline):
                raise ParseError(f'"{line}" names no narrower network; it is as in "on network pruned 0.5"')
            base = found
        elif line.startswith(LAYERS):
            parts.append((line.removeprefix(LAYERS), []))
        elif parts:
            parts[-1][1].append(line)
        else:
            raise ParseError(f'"{line}" in a mixture stands before the first line "layers ..."')
    read: list[tuple[LayerReplacement, tuple[str, ...]]] = []
    for names, lines in parts:
        one = read_replacement("\n".join(lines))
        if isinstance(one, NetworkBaseline | Mixture):
            raise ParseError("a mixture holds operators, and no whole networks")
        read.append((one, tuple(names.split(", "))))
    return Mixture(name, tuple(read), base)


def code_in(replacement: LayerReplacement | NetworkBaseline | Mixture | None) -> list[str]:
    """Return the paths of the code that makes an operator's modules; [] if it is a pGraph or all are known by name."""
    parts = [one for one, _ in replacement.parts] if isinstance(replacement, Mixture) else [replacement]
    return [one.factory for one in parts if isinstance(one, ModuleBaseline) and one.name not in MODULE_BASELINES]


Replacement: TypeAlias = LayerReplacement | NetworkBaseline | Mixture  # of layers, or of the network
MODULE_BASELINES: Registry[ModuleBaseline] = Registry("module baseline")

TURNER = "Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3"
for _number in (1, 2, 3):
    MODULE_BASELINES.register(f"nas_pte_{_number}")(
        ModuleBaseline(f"nas_pte_{_number}", f"syno.model.nas_pte:Sequence{_number}", TURNER)
    )


def module_baseline(given: str) -> ModuleBaseline:
    """Return a baseline by its name in `MODULE_BASELINES`, or the user's own by its path `package.module:name`.

    The path is not imported here. Raises UnknownNameError if there is no such baseline.
    """
    return ModuleBaseline(key_of_path(given), given) if is_path(given) else MODULE_BASELINES[given]


def is_module_baseline(given: str) -> bool:
    """Return whether this names a baseline that is a module."""
    return given in MODULE_BASELINES or is_path(given)


def key_of_path(given: str) -> str:
    """Return the name of a user's own baseline, which is a part of names of files: its path with "." in place of ":"."""
    return given.replace(":", ".")


def read_replacement(text: str) -> Replacement:
    """Return the operator, the baseline or the mixture of a text, as `str` writes it.

    Raises ParseError if it is neither, UnknownNameError if there is no such baseline.
    """
    if text.startswith(MIXTURE):
        return _read_mixture(text)
    if text.startswith(WHOLE):
        found = network_baseline("_".join(text.split()[1:]))
        if found is None:
            raise ParseError(f'"{text.strip()}" is no narrower network; it is as in "network pruned 0.5"')
        return found
    if text.startswith(BY_LAYER):
        layer = known_layer(text.removeprefix(BY_LAYER).strip())
        if layer is None:
            raise ParseError(f'"{text.strip()}" is no known layer; it is as in "known layer grouped_4"')
        return layer
    if not text.startswith(BEGINNING):
        return parse(text)
    given = text.removeprefix(BEGINNING).strip()
    try:
        return module_baseline(given)
    except UnknownNameError as error:
        raise UnknownNameError(f"{error} The record may be of another version of Syno") from None
