"""The registries of backbones, and functions that make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from syno.base.errors import SpecError
from syno.base.registry import Registry


class Backbone(Protocol):
    """A function that makes a network. Equal arguments give equal weights; the global random state is restored.

    A network may have an attribute `layer_rules`, a mapping from names to rules, which takes precedence over `LAYER_RULES` of
    `syno.model.layer_rules`: `paper` selects the layers that the paper replaced in this network.
    """

    def __call__(self, *, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
        """Return the network [N, channels, H, H] -> [N, classes]; `width` multiplies the numbers of features."""
        ...


class SequenceBackbone(Protocol):
    """A function that makes a language model, as `Backbone` makes a network.

    The model's attribute `causal` is true: it predicts each token from those before it.
    """

    def __call__(self, *, vocabulary: int, context: int, width: float = 1.0, seed: int = 0) -> nn.Module:
        """Return the model [N, L] of tokens below `vocabulary` -> [N, L, vocabulary], for every L up to `context`.

        `width` multiplies the numbers of features.
        """
        ...


BACKBONES: Registry[Backbone] = Registry("backbone")
SEQUENCE_BACKBONES: Registry[SequenceBackbone] = Registry("backbone of sequences")


def widened(features: Sequence[int], width: float) -> tuple[int, ...]:
    """Return numbers of features times `width`; SpecError if a product is no whole number.

    Each number is a multiple of the first, so that the first decides.
    """
    scaled = [width * number for number in features]
    if any(number < 1 or number != int(number) for number in scaled):
        raise SpecError(
            f"width is {width:g}, which makes {scaled[0]:g} features of {features[0]}; give a multiple of 1/{features[0]}"
        )
    return tuple(map(int, scaled))


def seeded(seed: int, make: Callable[..., nn.Module], *arguments: Any, **options: Any) -> nn.Module:
    """Return `make(*arguments, **options)` with weights drawn with this seed; the global random state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(*arguments, **options)
