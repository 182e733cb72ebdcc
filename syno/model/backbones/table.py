"""The tables that the modules beside this one fill, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import nn

from syno.base.errors import SpecError
from syno.base.registry import Registry


class Backbone(Protocol):
    """Makes a network. Equal arguments give equal weights; the global random state is left as it was.

    A network's `layer_rules`, if it has any, say what the name of a rule means in it: `paper`, for the layers that the paper
    replaced; see `syno.model.layers`.
    """

    def __call__(self, *, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
        """The network [N, channels, H, H] -> [N, classes]; `width` multiplies the number of features."""
        ...


class SequenceBackbone(Protocol):
    """Makes a language model, as `Backbone` makes a network. Its `causal` is true: it predicts each token from those before."""

    def __call__(self, *, vocabulary: int, context: int, width: float = 1.0, seed: int = 0) -> nn.Module:
        """The model [N, L] of tokens below `vocabulary` -> [N, L, vocabulary], for every L up to `context`.

        `width` multiplies the number of features.
        """
        ...


BACKBONES: Registry[Backbone] = Registry("backbone")
SEQUENCE_BACKBONES: Registry[SequenceBackbone] = Registry("backbone of sequences")


def widened(features: Sequence[int], width: float) -> tuple[int, ...]:
    """The numbers of features, each a multiple of the first, times `width`. SpecError if one is no whole number."""
    found = [width * number for number in features]
    if any(number < 1 or number != int(number) for number in found):
        raise SpecError(
            f"width is {width:g}, which makes {found[0]:g} features of {features[0]}; give a multiple of 1/{features[0]}"
        )
    return tuple(map(int, found))
