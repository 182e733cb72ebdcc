"""A backbone with an operator in its layers, or one of these layers, as something to be measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from syno.errors import SpecError
from syno.evaluate.settings import ORIGINAL
from syno.evaluate.subjects import SEED, Material, Subject
from syno.ir.graph import PGraph
from syno.ir.text import parse

if TYPE_CHECKING:
    import torch
    from torch import nn


class NetworkSubject(Subject):
    """A backbone, as it is or with an operator.

    Attributes:
        model: the backbone, by name or as `package.module:function`.
        width: multiplies its features.
        classes: of its output.
        image_shape: [channels, height, width] of a picture.
        operator: the text of the operator that stands in its layers; None for the network as it is.
        layers: which layers: a name in `LAYER_RULES`, or `package.module:rule`.
        layer: the name of one of them, such as "layer2.0.conv1": it is measured by itself, on as large an input as it has in
            the network (with the pooling, where it has a stride). None for the whole network.
        memory_format: "channels_last" or "contiguous": of pictures and of the network's own convolutions.
    """

    kind: Literal["network"] = "network"
    model: str
    width: float = 1.0
    classes: int
    image_shape: tuple[int, int, int]
    operator: str | None = None
    layers: str = "spatial"
    layer: str | None = None
    memory_format: Literal["channels_last", "contiguous"] = "contiguous"

    @property
    def graph(self) -> PGraph | None:
        """The operator."""
        return None if self.operator is None else parse(self.operator)

    @property
    def title(self) -> str:
        """The operator's name."""
        graph = self.graph
        return ORIGINAL if graph is None else graph.name

    def make(self, device: str, batch: int) -> Material:
        """See the base. The output is compared with that of the network whose operators are in their literal form."""
        import torch
        from torch import nn

        from syno.model.backbones import BACKBONES
        from syno.model.counting import model_cost
        from syno.model.layers import rule_for
        from syno.model.substitution import substitute

        graph = self.graph
        layout = torch.channels_last if self.memory_format == "channels_last" else torch.contiguous_format
        make = BACKBONES.find(self.model)
        original = make(classes=self.classes, channels=self.image_shape[0], width=self.width, seed=SEED)
        shape: tuple[int, ...] = (batch, *self.image_shape)
        rule = rule_for(original, self.layers)  # of the network, also where one of its layers is all that is left of it
        if self.layer is not None:
            original, shape = self._one_layer(original, torch.zeros(shape))
        example = torch.zeros(shape)

        def placed(network: nn.Module) -> nn.Module:
            for module in network.modules():
                if isinstance(module, nn.Conv2d):
                    module.to(memory_format=layout)
            return network.to(device).eval()

        if graph is None:
            network, reference, reference_name = original, original, "eager module"
        else:
            options: dict[str, Any] = {"seed": SEED, "rule": rule, "keep_stem": self.layer is None}
            network, reference = (substitute(original, graph, example, mode=mode, **options) for mode in ("fused", "literal"))
            reference_name = "network of literal modules"
        price = model_cost(network, example)
        module, compared = placed(network), placed(reference)
        generator = torch.Generator(device).manual_seed(SEED)

        def make_inputs() -> tuple[torch.Tensor, ...]:
            return (torch.rand(shape, device=device, generator=generator).sub_(0.5).contiguous(memory_format=layout),)

        return Material(
            module=module,
            make_inputs=make_inputs,
            reference=compared,
            reference_name=reference_name,
            flops=int(price.flops),
            parameters=int(price.parameters),
        )

    def _one_layer(self, network: nn.Module, example: torch.Tensor) -> tuple[nn.Module, tuple[int, ...]]:
        """The layer, and the shape of its input."""
        from syno.model.extraction import replaceable

        layers = {layer.name: layer for layer in replaceable(network, example, self.layers)}
        if self.layer not in layers:
            raise SpecError(f'{self.model} has no layer "{self.layer}" to replace; there are: {", ".join(layers)}')
        found = layers[self.layer]
        return found.module, found.own_input
