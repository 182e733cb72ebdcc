"""Specs of the paper's searches, one per model: the layers to replace, and the bounds.

The sizes follow from the models' architectures at 224x224 pixels (GPT-2: 2048 tokens). FLOPs and parameters outside the
replaced layers are derived from the published results.

Paper: section 8.1 (setup). Source: settings and results of the published artifact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from syno.base.registry import Registry
from syno.space.spec import OperatorSpec

BATCH = 128  # images

PRESETS: Registry[Callable[[], OperatorSpec]] = Registry("model")


def preset(model: str) -> OperatorSpec:
    """Return the spec of the paper's search for a model.

    >>> import syno
    >>> spec = syno.preset("resnet18")
    >>> spec.depth, spec.input, sum(layer.count for layer in spec.layers)
    (12, 'N, C_in: unordered, H, H', 19)

    Raises:
        UnknownNameError: there is no such model; the message lists them.
    """
    return PRESETS[model]()


class VisionModel(NamedTuple):
    """The values in which the paper's searches for vision models differ.

    Attributes:
        rows: (C_in, C_out, H, number of layers of these sizes) for each size of the replaced layers.
        flops, rest_flops: FLOPs of the original model, and of its layers that are not replaced, for one image.
        rest_parameters: parameters of the layers that are not replaced.
        largest_outer, most_low_rank, merges: options of the space.
        ratio: least and most FLOPs of the model, as shares of the original's.
    """

    rows: tuple[tuple[int, int, int, int], ...]
    flops: float
    rest_flops: float
    rest_parameters: float
    largest_outer: int
    ratio: tuple[float, float] = (0.15, 0.9)
    merges: int = 1
    most_low_rank: int = 8

    def spec(self, name: str) -> OperatorSpec:
        """Return the spec of the model's search, with this name."""
        least, most = self.ratio
        return OperatorSpec(
            name=name,
            input="N, C_in: unordered, H, H",
            output="N, C_out: unordered, H, H",
            variables="N:0, C_in:2, C_out:4, H:0; k_1=3:2, k_2=7:2, s=2:2, g=32:3",
            bound_axes=[(0, 0)],
            depth=12,
            layers=[{"values": {"N": BATCH, "C_in": i, "C_out": o, "H": h}, "count": n} for i, o, h, n in self.rows],
            occurrences={"tensors": 3, "merges": self.merges, "splits": 3, "shifts": 2, "strides": 0},
            windows={"least_ratio": 2.3},
            contractions={"largest_outer": self.largest_outer, "least_low_rank": 8, "most_low_rank": self.most_low_rank},
            repeats={"largest": 1, "tile": False},
            budget={
                "least_flops": max(least * self.flops, self.rest_flops) * BATCH,
                "most_flops": most * self.flops * BATCH,
                "rest_flops": self.rest_flops * BATCH,
                "rest_parameters": self.rest_parameters,
            },
        )


# fmt: off
VISION_MODELS = {
    "resnet18": VisionModel(  # all 3x3 and 1x1 convolutions (19)
        ((64, 64, 56, 4), (64, 128, 28, 2), (128, 128, 28, 3), (128, 256, 14, 2), (256, 256, 14, 3), (256, 512, 7, 2),
         (512, 512, 7, 3)),
        flops=1.824e9, rest_flops=129.7e6, rest_parameters=70_308, largest_outer=2048,
    ),
    "resnet34": VisionModel(  # all 3x3 and 1x1 convolutions (35); the paper evaluates ResNet-18's operators in this model
        ((64, 64, 56, 6), (64, 128, 28, 2), (128, 128, 28, 7), (128, 256, 14, 2), (256, 256, 14, 11), (256, 512, 7, 2),
         (512, 512, 7, 5)),
        flops=3.678e9, rest_flops=136.4e6, rest_parameters=77_732, largest_outer=2048,
    ),
    "densenet121": VisionModel(  # all 3x3 convolutions (58)
        ((128, 32, 56, 6), (128, 32, 28, 12), (128, 32, 14, 24), (128, 32, 7, 16)),
        flops=2.896e9, rest_flops=1657.6e6, rest_parameters=4_918_244, largest_outer=5120, ratio=(0.15, 1.0),
    ),
    "resnext29_2x64d": VisionModel(  # all 3x3 convolutions (10), which are grouped
        ((128, 128, 56, 3), (256, 256, 28, 3), (512, 512, 14, 3), (1024, 1024, 7, 1)),
        flops=5.126e9, rest_flops=2816.7e6, rest_parameters=11_787_048, largest_outer=4096, ratio=(0.15, 0.95), merges=2,
    ),
    "efficientnet_v2_s": VisionModel(  # the 3x3 convolutions of its fused blocks (10)
        ((24, 24, 112, 2), (24, 96, 56, 1), (48, 192, 56, 3), (48, 192, 28, 1), (64, 256, 28, 3)),
        flops=2.90e9, rest_flops=1515.0e6, rest_parameters=19_500_340, largest_outer=6144, ratio=(0.5, 0.9), most_low_rank=24,
    ),
}
# fmt: on
for name, model in VISION_MODELS.items():
    PRESETS.register(name)(partial(model.spec, name))


@PRESETS.register("gpt2")
def gpt2() -> OperatorSpec:
    """Return the spec of the search for GPT-2, which replaces the 12 projections to query, key and value."""
    projections = 12 * 2048 * 768 * 2304
    rest = 209.69e9
    return OperatorSpec(
        name="gpt2",
        input="N, seq_len, H_in: unordered",
        output="N, seq_len, t*H_in",
        variables="N:0, seq_len:0, H_in:4; k_1=2:3, k_2=5:2, t=3:3, g=32:3",
        layers=[{"values": {"N": 1, "seq_len": 2048, "H_in": 768}, "count": 12}],
        bound_axes=[(0, 0)],
        depth=7,
        occurrences={"tensors": 3, "merges": 2, "splits": 2, "shifts": 2, "strides": 0, "chain_length": 5},
        windows={"least_ratio": 2.3},
        contractions={"least_elements": 100_000, "largest_outer": 6144, "least_low_rank": 8, "most_low_rank": 8},
        repeats={"largest": 5, "tile": True},
        budget={
            "least_flops": rest,
            "most_flops": 1.2 * (rest + projections),
            "rest_flops": rest,
            "rest_parameters": 102_392_064,
        },
    )
