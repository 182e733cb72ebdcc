"""Subjects of measurements: a network, original or with an operator in its layers, or one of these layers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from syno.base.errors import SpecError, SynoError
from syno.base.files import ORIGINAL
from syno.base.identity import Identity, identity_of, identity_of_paths
from syno.base.registry import OWN_PACKAGE, is_path
from syno.data.settings import is_picture
from syno.ir.graph import PGraph
from syno.measure.subjects import SEED, GivenInputs, Subject
from syno.model.networks import read_replacement
from syno.model.placed import PlacedOperator, with_placed, without_nothing
from syno.model.replacements import AnyOperator

if TYPE_CHECKING:
    import torch
    from torch import nn

    from syno.measure.reference import Material
    from syno.model.inputs import Inputs


_MADE: dict[str, Identity] = {}  # what networks of users' own are, by their subjects


class BackboneSubject(Subject):
    """A network, original or with an operator.

    Attributes:
        model: a backbone's name, or `package.module:function`.
        model_settings: further arguments of this function.
        width: factor on the network's numbers of features.
        placed: operators that other layers already contain.
        operator: the text of the operator, or of another replacement; None for the original network.
        layers: the layers to replace, as in `syno.train.settings.WorkloadSettings`.
        layer: the name of one of these layers, such as "layer2.0.conv1", to measure it alone, on an input of its size in the
            network (including the pooling for a stride). None: the whole network.
        samples: inputs to measure on, if the execution path depends on values; None: random inputs.
    """

    model: str
    model_settings: Mapping[str, Any] = {}
    width: float = 1.0
    placed: tuple[PlacedOperator, ...] = ()
    operator: str | None = None
    layers: str
    layer: str | None = None
    samples: GivenInputs | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_not_given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the subject's fields without optional fields that are not set, since names of records are hashes of them."""
        return without_nothing(self, write(self))

    @property
    def replacement(self) -> AnyOperator | None:
        """The operator or other replacement in the network; None for the original network."""
        return None if self.operator is None else read_replacement(self.operator)

    @property
    def title(self) -> str:
        """The name of the replacement; for the original, of the network."""
        found = self.replacement
        return ORIGINAL if found is None else found.name

    @property
    def symbols(self) -> int | None:
        """The vocabulary size if the input is token ids; None if it is real numbers."""
        return None

    @property
    @abstractmethod
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of an input without the batch axis."""

    def backbone(self, batch: int | None = None) -> nn.Module:
        """Return the original network including its placed operators, whose code is optimized for this batch size."""
        return with_placed(self._network_alone(), self.placed, self.example(), SEED, batch)

    @abstractmethod
    def _network_alone(self) -> nn.Module:
        """Return the network without any operator."""

    def _made(self) -> tuple[Identity, ...]:
        if not is_path(self.model) or self.model.startswith(OWN_PACKAGE):
            return ()
        code = identity_of_paths([self.model, self.layers])
        assert code is not None  # the model is one
        key = f"{code.checksum} {self.model_copy(update={'operator': None, 'layer': None}).model_dump_json()}"
        if key not in _MADE:
            with suppress(SynoError):  # its measurement says why it cannot be made
                _MADE[key] = identity_of({"the network": self._network_alone()}, weights=False)
        return (_MADE[key],) if key in _MADE else ()

    def example(self, batch: int = 1) -> Inputs:
        """Return inputs of the network: the subject's samples if it has any; else zeros for real numbers."""
        return self._drawn(batch) if self.samples is None else self.samples.make(batch)

    def _drawn(self, batch: int) -> Inputs:
        """Return inputs of the network for this batch size, with zeros for real numbers."""
        return _zeros((batch, *self.sample_shape), self.symbols)

    def layout(self) -> torch.memory_format:
        """Return the memory format of input pictures, and of the weights of the network's own convolutions."""
        import torch

        return torch.contiguous_format

    def make(self, device: str, batch: int) -> Material:
        """Return the network, or the single layer, to be measured.

        Its reference is the network in double precision and literal mode.
        """
        import torch
        from torch import nn

        from syno.measure.reference import Material, filled, in_double, random_input, vary_constants
        from syno.model.calls import with_own_inputs
        from syno.model.counting import count
        from syno.model.execution_paths import check_same_modules
        from syno.model.inputs import first_inputs
        from syno.model.layer_rules import rule_for
        from syno.model.outputs import OfTensors
        from syno.model.substitution import substitute

        operator, layout, original = self.replacement, self.layout(), self.backbone(batch)
        shape, symbols = (batch, *self.sample_shape), self.symbols
        # These are of the whole network, even if only one of its layers is measured.
        rule, causal = rule_for(original, self.layers), getattr(original, "causal", False)
        if self.layer is not None:
            original, shape = self._one_layer(original, self.example(batch))
            symbols = None
        example = self.example(batch) if self.layer is None else _zeros(shape, symbols)

        if operator is None:
            network, literal, reference_name = original, original, "eager module"
        else:
            options: dict[str, Any] = {
                "seed": SEED,
                "where": rule,
                "causal": causal,
                "keep_stem": self.layer is None,
                "batch": batch,
            }
            network, literal = (substitute(original, operator, example, mode=mode, **options) for mode in ("fused", "literal"))
            reference_name = "network of literal modules" if isinstance(operator, PGraph) else "eager module"
        price = count(network, example)
        generator, given = torch.Generator().manual_seed(SEED), None
        has_values = self.layer is None and self.samples is not None
        if has_values:  # other inputs and weights may take another execution path
            given = drawn = example
            if operator is not None:
                check_same_modules(original, network, example, rule)
        elif self.layer is None and isinstance(self, NetworkWithInputs):
            given = example
            drawn = filled(example, lambda lengths: random_input(lengths, generator))
        else:
            drawn = random_input(shape, generator, symbols)
        if not has_values:
            vary_constants(network.eval(), drawn, SEED)
        literal.load_state_dict(network.state_dict())
        if given is not None:
            network, literal = OfTensors(network.eval(), given), OfTensors(literal, given)
        network = with_own_inputs(network, *first_inputs(drawn))
        reference = in_double(literal)  # a copy, made before the network moves to the device
        for module in network.modules():
            if isinstance(module, nn.Conv2d) and layout is not torch.contiguous_format:  # else as `substitute` laid it out
                module.to(memory_format=layout)
        return Material(
            module=network.to(device).eval(),
            shape=shape,
            generator=torch.Generator(device).manual_seed(SEED),
            symbols=symbols,
            layout=layout,
            reference=reference,
            reference_name=reference_name,
            flops=price.flops,
            parameters=price.parameters,
            inside=price.inside,
            by_sample=not is_path(self.model),  # a user's own might not
            network_inputs=given,
            has_values=has_values,
        )

    def _one_layer(self, network: nn.Module, example: Inputs) -> tuple[nn.Module, tuple[int, ...]]:
        """Return the layer to be measured alone, and the shape of its input."""
        from syno.model.extraction import replaceable

        layers = {layer.name: layer for layer in replaceable(network, example, self.layers)}
        if self.layer not in layers:
            raise SpecError(f'{self.model} has no layer "{self.layer}" to replace; there are: {", ".join(layers)}')
        found = layers[self.layer]
        return found.module, found.own_input


class NetworkSubject(BackboneSubject):
    """A network that takes pictures, or other samples of real numbers.

    Attributes:
        classes: the number of classes.
        image_shape: [channels, height, width] of a picture, or [channels, ...] of another sample.
        memory_format: "channels_last" or "contiguous": of pictures and of the weights of the network's own convolutions;
            samples that are no pictures are always contiguous.
    """

    kind: Literal["network"] = "network"
    classes: int
    image_shape: tuple[int, ...] = Field(min_length=1)
    layers: str = "spatial"
    memory_format: Literal["channels_last", "contiguous"] = "contiguous"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of a picture, or of another sample."""
        return self.image_shape

    def _network_alone(self) -> nn.Module:
        from syno.model.backbones import BACKBONES
        from syno.model.network_function import make_network

        given = {"classes": self.classes, "channels": self.image_shape[0], "width": self.width, "seed": SEED}
        return make_network(BACKBONES, self.model, given, self.model_settings, self.example())

    def layout(self) -> torch.memory_format:
        """Return the memory format in the subject's settings."""
        import torch

        is_last = self.memory_format == "channels_last" and is_picture(self.image_shape)
        return torch.channels_last if is_last else torch.contiguous_format


class LanguageModelSubject(BackboneSubject):
    """A network that takes tokens.

    Attributes:
        vocabulary: the number of different tokens.
        length: the number of tokens of a sequence, and the model's context.
    """

    kind: Literal["language_model"] = "language_model"
    vocabulary: int = Field(ge=1)
    length: int = Field(ge=1)
    layers: str = "paper"

    @property
    def symbols(self) -> int:
        """The number of different tokens, which is the vocabulary."""
        return self.vocabulary

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of a sequence of tokens: (length,)."""
        return (self.length,)

    def _network_alone(self) -> nn.Module:
        from syno.model.backbones import SEQUENCE_BACKBONES
        from syno.model.network_function import make_network

        given = {"vocabulary": self.vocabulary, "context": self.length, "width": self.width, "seed": SEED}
        return make_network(SEQUENCE_BACKBONES, self.model, given, self.model_settings, self.example())


class NetworkWithInputs(BackboneSubject):
    """A user's own network with several inputs, or inputs of other dtypes.

    Attributes:
        inputs: description of its inputs.
        memory_format: memory format of inputs with four axes, and of the weights of the network's own convolutions.
    """

    kind: Literal["network_with_inputs"] = "network_with_inputs"
    inputs: GivenInputs
    layers: str = "spatial"
    memory_format: Literal["channels_last", "contiguous"] = "contiguous"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """(), since each input has a shape of its own."""
        return ()

    def _drawn(self, batch: int) -> Inputs:
        return self.inputs.make(batch)

    def _network_alone(self) -> nn.Module:
        from syno.model.backbones import BACKBONES
        from syno.model.network_function import make_network

        given = {"width": self.width, "seed": SEED}
        return make_network(BACKBONES, self.model, given, self.model_settings, self.example())

    def layout(self) -> torch.memory_format:
        """Return the memory format in the subject's settings."""
        import torch

        return torch.channels_last if self.memory_format == "channels_last" else torch.contiguous_format


AnyNetwork: TypeAlias = NetworkSubject | LanguageModelSubject | NetworkWithInputs


def _zeros(shape: tuple[int, ...], symbols: int | None) -> torch.Tensor:
    import torch

    return torch.zeros(shape, dtype=torch.float32 if symbols is None else torch.int64)
