"""Count the share of the FLOPs of networks that is in layers which operators can replace, by the rule that takes them.

    python benchmarks/replaceable_layers.py --output docs/measured/replaceable_layers.md

Networks have no data here (PyTorch's device `meta`), so this takes seconds. They are the paper's networks, and those of the
folder `examples`. `before` is the default rule as it was: square convolutions of pictures, of stride 1 without bias.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import median

import reports
import torch
from torch import nn

from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.counting import model_cost
from syno.model.extraction import sorted_out
from syno.model.layer import Layer
from syno.model.layer_rules import Convolutions
from syno.model.spec import rest_cost

PICTURES = ("resnet18", "resnet34", "densenet121", "resnext29_2x64d", "efficientnet_v2_s")
SIDES = {"resnext29_2x64d": 32}  # of pictures; the others take 224
TEXT = "gpt2"
RULES = ("spatial", "pointwise", "grouped", "transposed", "linear")
EXAMPLES = Path(__file__).parents[1] / "examples"
SAMPLES = {  # of the examples: the classes and the shape of a sample
    "own_cnn": (12, (3, 16, 16)),
    "mobilenet": (12, (3, 16, 16)),
    "resnet_biases": (12, (3, 16, 16)),
    "keyword_spotting": (8, (1, 2048)),
    "segmentation": (4, (3, 20, 28)),
    "mixer": (12, (3, 16, 16)),
}


def before(layer: Layer) -> str | None:
    """The default rule of earlier versions."""
    if not layer.is_square:
        return "it is no convolution of square pictures"
    return Convolutions()(layer) or (None if layer.module.bias is None else "it has a bias")


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print the page, and write it if asked for."""
    options = reports.parse(argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0]), arguments)
    rows, now, then = [], [], []
    for name in (*PICTURES, TEXT, *SAMPLES):
        model, example = network(name)
        whole = model_cost(model, example).flops
        found = {rule: sorted_out(model, example, rule)[0] for rule in RULES}
        earlier = sorted_out(model, example, before)[0] if name != TEXT else sorted_out(model, example, "paper")[0]
        shares = [share(model, example, layers, whole) for layers in (earlier, *found.values())]
        every = {layer.name: layer for layers in found.values() for layer in layers}
        shares.append(share(model, example, tuple(every.values()), whole))
        rows.append([name, str(len(every)), *(f"{one:.1%}" if one else "–" for one in shares)])
        then.append(shares[0])
        now.append(shares[-1])
    lines = reports.heading("Layers that operators can replace", "benchmarks/replaceable_layers.py")
    lines += reports.paragraph(
        "- Shares of the multiply-adds of the whole network. The first convolution counts as one that stays. "
        "`before` is the default rule of earlier versions (convolutions of square pictures, of stride 1 without bias), and for "
        "GPT-2 the projections to queries, keys and values. `all` is of the layers that any of the rules takes. The networks "
        "after gpt2 are those of the folder examples."
    )
    lines += ["", *reports.table(["network", "layers", "before", *RULES, "all"], rows), ""]
    for title, part in (("the first six networks", slice(0, -len(SAMPLES))), ("the examples", slice(-len(SAMPLES), None))):
        lines += [f"Median of {title}: {median(then[part]):.1%} before, {median(now[part]):.1%} now.", ""]
    lines.pop()
    reports.deliver(lines, options.output)
    return 0


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """A network and an example, without data."""
    if name in SAMPLES:
        classes, shape = SAMPLES[name]
        return own_network(name)(classes=classes, channels=shape[0]).to("meta"), torch.zeros(1, *shape, device="meta")
    if name == TEXT:
        model = SEQUENCE_BACKBONES[name](vocabulary=50257, context=2048)
        return model.to("meta"), torch.zeros(1, 2048, dtype=torch.long, device="meta")
    side = SIDES.get(name, 224)
    model = BACKBONES[name](classes=100 if name in SIDES else 1000)
    return model.to("meta"), torch.zeros(1, 3, side, side, device="meta")


def own_network(name: str) -> Callable[..., nn.Module]:
    """The function that makes an example's network. All of them are called network.py."""
    found = spec_from_file_location(f"{name}_network", EXAMPLES / name / "network.py")
    assert found is not None and found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module.make


def share(model: torch.nn.Module, example: torch.Tensor, layers: Sequence[Layer], whole: float) -> float:
    """The share of the network's FLOPs in these layers."""
    return 1 - rest_cost(model, example, layers).flops / whole if layers else 0.0


if __name__ == "__main__":
    sys.exit(main())
