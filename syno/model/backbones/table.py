"""The registries of backbones, and what the backbones share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from syno.base.errors import SpecError
from syno.base.registry import Registry


class Backbone(Protocol):
    """A function that makes a network. Equal arguments give equal weights; the global random state is left as it was.

    A network's attribute `layer_rules`, if it has one, gives the name of a rule a meaning of its own, such as `paper` for the
    layers that the paper replaced; see `syno.model.geometry`.
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
    """Return numbers of features, each a multiple of the first, times `width`. SpecError if one becomes no whole number."""
    found = [width * number for number in features]
    if any(number < 1 or number != int(number) for number in found):
        raise SpecError(
            f"width is {width:g}, which makes {found[0]:g} features of {features[0]}; give a multiple of 1/{features[0]}"
        )
    return tuple(map(int, found))


def seeded(seed: int, make: Callable[..., nn.Module], *arguments: Any, **options: Any) -> nn.Module:
    """Return `make(*arguments, **options)`, whose weights are drawn with this seed; the global random state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(*arguments, **options)
