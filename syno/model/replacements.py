"""Replacements: operators, known layers, modules, narrower networks and mixtures that change a network.

The method `apply` of each class makes the changed network; only it loads torch. `syno.model.networks` parses their names.

>>> layer = MODULE_BASELINES["nas_pte_1"].build({"C_in": 16, "C_out": 16, "H": 7})
>>> sum(weight.numel() for weight in layer.parameters()) / (16 * 16 * 9)
0.375
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from syno.base.errors import MisfitError, SpecError, UnknownNameError
from syno.base.registry import Registry, imported
from syno.ir.dim import content_id
from syno.ir.graph import PGraph
from syno.ir.library.efficient import dropped, grouped, low_rank, separable

if TYPE_CHECKING:
    from torch import nn

    from syno.model.layer import Layer
    from syno.model.layer_modules import Placement

SEEDS_APART = 2**32  # distance of the seeds of two operators in one network: those within an operator are consecutive


class Replacement(ABC):
    """Base class of replacements: of a network's layers, or of the whole network.

    Attributes:
        beginning: first words of its text in records.
        hashed_as: name of the kind of replacement, hashed into the id.
        is_whole: whether it changes a whole network, and so cannot replace a single layer.
        is_chosen_by_speed: whether it was selected by a measured latency, so that its verdict needs a new measurement.
    """

    beginning: ClassVar[str]
    hashed_as: ClassVar[str]
    is_whole: ClassVar[bool] = False
    is_chosen_by_speed: ClassVar[bool] = False

    if TYPE_CHECKING:  # a property at run time would be the default of a dataclass's field `name`

        @property
        def name(self) -> str:
            """The replacement's name in records and tables."""

    @property
    def _title(self) -> str:
        return self.name

    @property
    def id(self) -> str:
        """The replacement's id in records: 32 hexadecimal digits."""
        return content_id(self.hashed_as, self._title)

    def __str__(self) -> str:
        return f"{self.beginning}{self._title}\n"

    @property
    def structure(self) -> Replacement:
        """Representative of all replacements with equal shapes: its measured latency is reused for them."""
        return self

    @property
    def is_quantized(self) -> bool:
        """Whether a network with this replacement is also tested in 8-bit integers.

        False for known layers alone, which are slower.
        """
        return False

    @property
    def begins_anew(self) -> bool:
        """Whether all layers of the network get new weights, also those that are not replaced."""
        return False

    @property
    def factories(self) -> tuple[str, ...]:
        """Import paths of users' functions that make the replacing modules."""
        return ()

    @property
    def around(self) -> Replacement | None:
        """The narrower network that contains the operators; None if they are in the original."""
        return None

    def operator_in(self, layer: Layer) -> PGraph | None:
        """Return the operator in place of a layer; None if the layer stays, or its replacement is no operator."""
        return None

    def fitted(self, layers: Sequence[str]) -> set[str]:
        """Return the names of those layers whose replacement is fitted to the trained layer's outputs before training."""
        return set(layers)

    def apply(self, to: Placement) -> nn.Module:
        """Return the changed network: by default with `operator_in(layer)` in place of each layer.

        Raises MisfitError if the replacement does not fit a layer.
        """
        from syno.model.layer_modules import with_operators

        return with_operators(to, self.name, [self.operator_in(layer) for layer in to.layers or ()])


class OperatorInLayers(Replacement):
    """A replacement that puts one operator in each layer."""

    def __init__(self, graph: PGraph) -> None:
        self.graph = graph

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def id(self) -> str:
        return self.graph.id

    def __str__(self) -> str:
        return str(self.graph)

    def operator_in(self, layer: Layer) -> PGraph | None:
        return self.graph


@dataclass(frozen=True)
class ModuleBaseline(Replacement):
    """A baseline that is a PyTorch module.

    Attributes:
        name: the baseline's name in records and tables.
        factory: `package.module:name` of a function or class that returns the module: from [N, C_in, H, H] to
            [N, C_out, H, H], for any N. It takes the values of a layer's variables (C_in, C_out, H) as a mapping, and raises
            SizeError if they do not suit it.
        source: the publication of the baseline.
    """

    beginning = "module "
    hashed_as = "module"

    name: str
    factory: str
    source: str = ""

    @property
    def _title(self) -> str:
        return self.factory if self.factories else self.name

    @property
    def factories(self) -> tuple[str, ...]:
        return () if self.name in MODULE_BASELINES else (self.factory,)

    def build(self, values: Mapping[str, int], seed: int | None = None) -> nn.Module:
        """Return the module, in float32 on the CPU.

        Args:
            values: values of C_in, C_out and H, as `Layer.values`.
            seed: seed of the weights; None: the global random state.

        Raises SizeError if the sizes do not suit it, SpecError if the factory returns no module.
        """
        import torch

        factory = imported(self.factory, "module baseline")
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            made: Any = factory(dict(values))
        if not isinstance(made, torch.nn.Module):
            raise SpecError(f'the module baseline "{self._title}" returned {type(made).__name__}; it must return an nn.Module')
        return made

    def apply(self, to: Placement) -> nn.Module:
        from syno.model.layer_modules import with_module

        return with_module(to, self.name, self.build)


Kind: TypeAlias = Literal["pruned", "narrow"]


@dataclass(frozen=True)
class NarrowerNetwork(Replacement):
    """The original network with a share of the channels of each layer (`syno.model.pruning`).

    Attributes:
        kind: "pruned": training continues from the trained original's weights; "narrow": it begins with new weights.
        share: share of the channels that stay.
    """

    beginning = "network "
    hashed_as = "network"
    is_whole = True

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
        return f"{self.kind}_{self.share:g}"

    def __str__(self) -> str:
        return f"{self.beginning}{self.kind} {self.share:g}\n"

    @property
    def structure(self) -> NarrowerNetwork:
        return NarrowerNetwork("narrow", self.share)

    @property
    def is_quantized(self) -> bool:
        return self.kind == "pruned"

    @property
    def begins_anew(self) -> bool:
        return self.kind == "narrow"

    def fitted(self, layers: Sequence[str]) -> set[str]:
        return set()

    def apply(self, to: Placement) -> nn.Module:
        from syno.model.pruning import narrowed

        return narrowed(to.network, to.example, self.share)


KnownKind: TypeAlias = Literal["separable", "grouped", "low_rank", "dropped"]
UNDIVIDED = ("separable", "dropped")  # kinds without a divisor


@dataclass(frozen=True)
class KnownLayer(Replacement):
    """An efficient layer of the literature in place of each of a network's layers, with the same receptive field.

    >>> operator = KnownLayer("grouped", 4).operator(kernel=(25,), inputs=16, outputs=32, groups=1)
    >>> operator.name, operator.weight_sizes(1)
    ('grouped_4', (Size(g), Size(g^-1*C_out), Size(g^-1*C_in), Size(k)))

    Attributes:
        kind: "separable": a depthwise and a 1x1 convolution; "grouped": a grouped convolution; "low_rank": a convolution to few
            channels and a 1x1 one to all; "dropped": the identity.
        divisor: the number of groups, or the number of channels over the rank; 1 for the other kinds.
    """

    beginning = "known layer "
    hashed_as = "layers"

    kind: KnownKind
    divisor: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(KnownKind) or (self.divisor < 2) != (self.kind in UNDIVIDED):
            raise UnknownNameError(no_known_layer(self.name))

    @property
    def name(self) -> str:
        return self.kind if self.divisor == 1 else f"{self.kind}_{self.divisor}"

    def operator(self, kernel: Sequence[int], inputs: int, outputs: int, groups: int) -> PGraph | None:
        """Return the operator in place of a layer; None if it would not be cheaper or does not fit, so that the layer stays.

        Args:
            kernel: sizes of the layer's kernel along each axis; () for a linear layer.
            inputs, outputs: the layer's numbers of channels or features.
            groups: the layer's number of groups; 1 for a linear layer.
        """
        taps = prod(kernel)
        elements = inputs * outputs * taps // groups  # of its weight: multiply-adds of one output position
        if self.kind == "dropped":
            return dropped(kernel) if inputs == outputs else None
        if self.kind == "separable":
            return separable(kernel) if kernel and inputs * (taps + outputs) < elements else None
        if self.kind == "grouped":
            parts = gcd(self.divisor, inputs, outputs)
            return grouped(kernel, parts).renamed(self.name) if parts > groups else None
        rank = max(2, round(outputs / self.divisor))
        return low_rank(kernel, rank).renamed(self.name) if rank * (inputs * taps + outputs) < elements else None

    def operator_in(self, layer: Layer) -> PGraph | None:
        kernel, groups = [axis.kernel for axis in layer.windows], getattr(layer.module, "groups", 1)
        return self.operator(kernel, *layer.channels, groups)


@dataclass(frozen=True)
class NarrowerLayer(Replacement):
    """The layer itself with a share of its channels, those with the largest weights (`syno.model.pruning`).

    The layers that read it get fewer inputs. Only layers whose channels are not tied to other layers' are narrowed, such as the
    first layer of a residual block.

    Attributes:
        share: share of the channels that stay.
    """

    beginning = KnownLayer.beginning
    hashed_as = KnownLayer.hashed_as

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UnknownNameError(no_known_layer(self.name))

    @property
    def name(self) -> str:
        return f"narrower_{self.share:g}"

    def fitted(self, layers: Sequence[str]) -> set[str]:
        return set()

    def apply(self, to: Placement) -> nn.Module:
        from syno.model.pruning import narrowable, narrowed

        layers = to.layers or ()
        names = narrowable(to.network, to.example, self.share, [layer.name for layer in layers])
        if not names:
            raise MisfitError(
                f"{self.name} fits none of the {len(layers)} layers: their channels are those of other layers, too, or too few"
            )
        return narrowed(to.network, to.example, self.share, names)


def no_known_layer(name: str) -> str:
    """Return the error message for a name that is not the name of a known layer."""
    return (
        f'"{name}" is no known layer: give separable, dropped, grouped_NUMBER or low_rank_NUMBER, with 2 or more groups, or '
        "the number that divides the channels, as in grouped_4, or narrower_SHARE, with the share of the channels that stay, "
        "above 0 and below 1"
    )


@dataclass(frozen=True)
class Mixture(Replacement):
    """Several replacements in one network, each in some of its layers; the other layers stay.

    >>> from syno.ir.library import OPERATORS
    >>> operator = OPERATORS["conv1x1"]()
    >>> mixture = Mixture("mixture_1", ((operator, ("blocks.0.conv1", "blocks.0.conv2")),), NarrowerNetwork("pruned", 0.5))
    >>> print("\\n".join(str(mixture).splitlines()[:4]))
    mixture mixture_1
    on network pruned 0.5
    layers blocks.0.conv1, blocks.0.conv2
    operator conv1x1

    Attributes:
        name: the mixture's name in records and tables.
        parts: each operator with the names of its layers.
        base: the narrower network that contains them; None: the original.
    """

    beginning = "mixture "
    hashed_as = "mixture"
    is_whole = True
    is_chosen_by_speed = True
    on: ClassVar[str] = "on "  # beginnings of lines of its text
    in_layers: ClassVar[str] = "layers "

    name: str
    parts: tuple[tuple[AnyOperator, tuple[str, ...]], ...]
    base: NarrowerNetwork | None = None

    @property
    def _title(self) -> str:
        """The content that is hashed into the id: ids of operators with their layers, and the base; without the name."""
        parts = sorted(f"{part.id} {' '.join(names)}" for part, names in self.parts)
        return "\n".join([*parts, *([] if self.base is None else [self.base.id])])

    def __str__(self) -> str:
        base = [] if self.base is None else [f"{self.on}{self.base}"]
        parts = [f"{self.in_layers}{', '.join(names)}\n{part}" for part, names in self.parts]
        lines = [f"{self.beginning}{self.name}\n", *base, *parts]
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    @property
    def is_quantized(self) -> bool:
        return True

    @property
    def structure(self) -> Mixture:
        return self if self.base is None else replace(self, base=self.base.structure)

    @property
    def factories(self) -> tuple[str, ...]:
        return tuple(path for part, _ in self.parts for path in as_replacement(part).factories)

    @property
    def narrower(self) -> Mixture:
        """The mixture without its operators: its narrower layers only."""
        return replace(self, parts=tuple((part, names) for part, names in self.parts if isinstance(part, NarrowerLayer)))

    @property
    def around(self) -> Mixture | None:
        narrower = self.narrower
        return narrower if narrower.base is not None or narrower.parts else None

    @property
    def layers(self) -> dict[str, AnyOperator]:
        """The operator or other replacement of each layer that has one, by the layer's name."""
        return {name: part for part, names in self.parts for name in names}

    def fitted(self, layers: Sequence[str]) -> set[str]:
        return {name for part, names in self.parts for name in as_replacement(part).fitted(names)}

    def apply(self, to: Placement) -> nn.Module:
        from syno.model.extraction import layers_of, replaceable
        from syno.model.pruning import narrowed
        from syno.model.shared_memory import copy_of

        changed = to.network if self.base is None else self.base.apply(to)
        for part, names in self.narrower.parts:  # first, since operators must have the narrowed sizes
            assert isinstance(part, NarrowerLayer)
            changed = narrowed(changed, to.example, part.share, names)
        parts = [part for part in enumerate(self.parts, 1) if not isinstance(part[1][0], NarrowerLayer)]
        layers = to.layers
        if parts and (layers is None or changed is not to.network):  # all are looked for at once
            layers = replaceable(changed, to.example, [name for _, (_, names) in parts for name in names])
        for number, (part, names) in parts:
            chosen = [layer for layer in layers or () if layer.name in names]
            if lost := set(names) - {layer.name for layer in chosen}:
                raise MisfitError(f"{self.name} has an operator for the layer {sorted(lost)[0]}, which cannot be replaced here")
            own = replace(
                to,
                network=changed,
                layers=layers_of(changed, chosen),
                seed=to.seed + number * SEEDS_APART,
                takes_all=True,
            )
            changed = as_replacement(part).apply(own)
        return copy_of(to.network) if changed is to.network else changed


AnyOperator: TypeAlias = PGraph | Replacement


def as_replacement(operator: AnyOperator) -> Replacement:
    """Return a pGraph as a replacement that puts it in each layer; a replacement is returned as is."""
    return operator if isinstance(operator, Replacement) else OperatorInLayers(operator)


def code_in(operator: AnyOperator | None) -> list[str]:
    """Return the import paths of users' functions that make an operator's modules; [] if it needs none."""
    return [] if operator is None else [*as_replacement(operator).factories]


MODULE_BASELINES: Registry[ModuleBaseline] = Registry("module baseline")

TURNER = "Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3"
for _number in (1, 2, 3):
    MODULE_BASELINES.register(f"nas_pte_{_number}")(
        ModuleBaseline(f"nas_pte_{_number}", f"syno.model.nas_pte:Sequence{_number}", TURNER)
    )
