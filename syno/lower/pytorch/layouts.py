"""The order of a weight's axes in memory: the one in which the statement that reads the weight needs no copy of it.

The shape of a weight follows the operator's text. Its strides follow its reader: torch would otherwise copy the weight
at each call, which takes longer than the multiplications where a picture is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from syno.lower.pytorch.costs import Work

Order: TypeAlias = tuple[int, ...]  # numbers of axes, the one with the largest stride first


@dataclass(frozen=True)
class Convolution:
    """A statement that is a convolution.

    Attributes:
        moves: whether the kernel is larger than 1.
        work: its work on channels-first data.
        weight: the expression for the weight.
        channels_first, channels_last: the orders of the weight's axes in memory with which the kernel needs no copy in these
            memory formats; None if there is no such order.
    """

    moves: bool
    work: Work
    weight: str
    channels_first: Order | None
    channels_last: Order | None


def convolution_layouts(convolutions: Mapping[int, Convolution], last: set[int]) -> dict[str, Order]:
    """Return the orders for the weights of convolutions; `last` are the numbers of those with channels-last data."""
    orders = {
        made.weight: made.channels_last if number in last else made.channels_first for number, made in convolutions.items()
    }
    return {weight: order for weight, order in orders.items() if order is not None and list(order) != sorted(order)}


def kernels_in_channels_last(
    prepared: list[tuple[str, str]], convolutions: Mapping[int, Convolution], last: set[int]
) -> list[tuple[str, str]]:
    """Return statements that bring kernels into channels-last format where no layout of the weight does."""
    shapes = {statement.partition(" = ")[0]: shape for statement, shape in prepared}
    kernels = [
        made.weight.removeprefix("self.") for number, made in convolutions.items() if number in last and not made.channels_last
    ]
    return [
        (f"{name} = {name}.contiguous(memory_format=torch.channels_last)", shapes[name]) for name in kernels if name in shapes
    ]
