"""Placed operators: operators of earlier searches that a network already contains when others are searched for other layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from syno.base.validation import Settings
from syno.model.networks import read_replacement
from syno.model.replacements import SEEDS_APART, AnyOperator

if TYPE_CHECKING:
    from torch import nn

    from syno.model.inputs import Inputs

OPTIONAL = ("model_settings", "placed", "samples")


class PlacedOperator(Settings):
    """An operator that a network contains before the search."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    operator: str
    """the operator's text, or `module NAME` of a baseline that is a PyTorch module"""
    layers: str
    """the layers that the operator replaces, as in `layers` of a workload"""

    @property
    def replacement(self) -> AnyOperator:
        """The operator, or the baseline that is a module. Raises ParseError if the text holds neither."""
        return read_replacement(self.operator)


def without_nothing(network: BaseModel, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's settings without those in `OPTIONAL` that are not set.

    Names of records are hashes of this text, and must be as they were before these settings existed.
    """
    return {name: value for name, value in settings.items() if name not in OPTIONAL or getattr(network, name)}


def without_placed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a network without its placed operators."""
    return {name: value for name, value in settings.items() if name != "placed"}


def with_placed(
    model: nn.Module, placed: Sequence[PlacedOperator], example: Inputs, seed: int, batch: int | None = None
) -> nn.Module:
    """Return a copy of a network that contains the placed operators, or the network itself if there are none.

    Args:
        model: the network without operators.
        placed: the operators, substituted one after the other.
        example: the network's inputs.
        seed: seed of the operators' weights.
        batch: the batch size for which the operators' code is optimized; None: a usual one.

    Raises the errors of `syno.substitute`.
    """
    from syno.model.substitution import substitute

    for number, operator in enumerate(placed, 1):
        own_seed = seed + number * SEEDS_APART
        model = substitute(model, operator.replacement, example, where=operator.layers, seed=own_seed, batch=batch)
    return model


def placed_layers(model: nn.Module, placed: Sequence[PlacedOperator], example: Inputs) -> dict[str, str]:
    """Return the name of the placed operator in each layer that one replaces, by the layer's name.

    Arguments and exceptions are those of `with_placed`.
    """
    from syno.model.extraction import replaceable

    names: dict[str, str] = {}
    for number, operator in enumerate(placed):
        before = with_placed(model, placed[:number], example, seed=0)
        names |= {layer.name: operator.replacement.name for layer in replaceable(before, example, operator.layers)}
    return names
