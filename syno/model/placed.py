"""Operators that are in a network before others are searched for: those that earlier searches found for other layers."""

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
    """An operator that is in a network already."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    operator: str
    """the operator's text, or `module NAME` of a baseline that is a PyTorch module"""
    layers: str
    """the layers that it is in, as in `layers` of a workload"""

    @property
    def replacement(self) -> AnyOperator:
        """The operator, or the baseline that is a module. Raises ParseError if the text holds neither."""
        return read_replacement(self.operator)


def without_nothing(network: BaseModel, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a network, as they are written, as they were before networks had `OPTIONAL` ones.

    Those that are given stay. Names of records depend on the text.
    """
    return {name: value for name, value in settings.items() if name not in OPTIONAL or getattr(network, name)}


def without_placed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a network, as they are written, without the operators that are placed in it."""
    return {name: value for name, value in settings.items() if name != "placed"}


def with_placed(
    model: nn.Module, placed: Sequence[PlacedOperator], example: Inputs, seed: int, batch: int | None = None
) -> nn.Module:
    """Return a copy of a network with operators in place of its layers, or the network itself if there is none.

    Args:
        model: the network as it is made.
        placed: the operators, each for layers of the network with those before it.
        example: the network's inputs.
        seed: of the operators' weights.
        batch: the batch size to choose the form of their code for; None: a usual one.

    Raises the errors of `syno.substitute`.
    """
    from syno.model.substitution import substitute

    for number, one in enumerate(placed, 1):
        own_seed = seed + number * SEEDS_APART
        model = substitute(model, one.replacement, example, where=one.layers, seed=own_seed, batch=batch)
    return model


def placed_layers(model: nn.Module, placed: Sequence[PlacedOperator], example: Inputs) -> dict[str, str]:
    """Return the names of the layers that have an operator already, each with the operator's name.

    Its errors are those of `with_placed`, and so are its arguments.
    """
    from syno.model.extraction import replaceable

    found: dict[str, str] = {}
    for number, one in enumerate(placed):
        before = with_placed(model, placed[:number], example, seed=0)
        found |= {layer.name: one.replacement.name for layer in replaceable(before, example, one.layers)}
    return found
