"""A backbone with an operator in its layers, as something to be measured."""

from __future__ import annotations

from typing import Literal

from syno.evaluate.settings import ORIGINAL
from syno.evaluate.subjects import SEED, Material, Subject
from syno.ir.graph import PGraph
from syno.ir.text import parse


class NetworkSubject(Subject):
    """A backbone, as it is or with an operator.

    Attributes:
        model: the backbone, by name or as `package.module:function`.
        width: multiplies its features.
        classes: of its output.
        image_shape: [channels, height, width] of a picture.
        operator: the text of the operator that stands in its layers; None for the network as it is.
        memory_format: "channels_last" or "contiguous": of pictures and of the network's own convolutions.
    """

    kind: Literal["network"] = "network"
    model: str
    width: float = 1.0
    classes: int
    image_shape: tuple[int, int, int]
    operator: str | None = None
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
        from syno.model.substitution import substitute

        graph, shape = self.graph, (batch, *self.image_shape)
        layout = torch.channels_last if self.memory_format == "channels_last" else torch.contiguous_format
        make = BACKBONES.find(self.model)
        original = make(classes=self.classes, channels=self.image_shape[0], width=self.width, seed=SEED)
        example = torch.zeros(shape)

        def placed(network: nn.Module) -> nn.Module:
            for module in network.modules():
                if isinstance(module, nn.Conv2d):
                    module.to(memory_format=layout)
            return network.to(device).eval()

        if graph is None:
            network, reference, reference_name = original, original, "eager module"
        else:
            network, reference = (substitute(original, graph, example, seed=SEED, mode=mode) for mode in ("fused", "literal"))
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
