"""The order of a weight's axes in memory: the one in which the statement that reads the weight needs no copy of it.

The shape of a weight follows the operator's text. Its strides follow its reader: torch would otherwise copy the weight
at each call, which takes longer than the multiplications where a picture is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from syno.algebra import Size
from syno.lower.pytorch.costs import StatementWork

Order: TypeAlias = tuple[int, ...]  # numbers of axes, the one with the largest stride first


@dataclass(frozen=True)
class Convolution:
    """A statement that is a convolution.

    Attributes:
        moves: whether the kernel is larger than 1.
        is_grouped: whether it has groups.
        work: its work on channels-first data.
        weight: the expression for the weight.
        kernel_text: the expression for the kernel that is made of it, in the call.
        kernel: the sizes of the kernel's axes: output channels, input channels, and those of the window.
        channels_first, channels_last: the orders of the weight's axes in memory with which the kernel needs no copy in these
            memory formats; None if there is no such order.
    """

    moves: bool
    is_grouped: bool
    work: StatementWork
    weight: str
    kernel_text: str
    kernel: tuple[Size, ...]
    channels_first: Order | None
    channels_last: Order | None


def convolution_layouts(convolutions: Mapping[int, Convolution], last: set[int]) -> dict[str, Order]:
    """Return the orders for the weights of convolutions; `last` are the numbers of those with channels-last data."""
    orders = {
        made.weight: made.channels_last if number in last else made.channels_first for number, made in convolutions.items()
    }
    return {weight: order for weight, order in orders.items() if order is not None and list(order) != sorted(order)}


def kernels_in_channels_last(
    prepared: Sequence[tuple[str, str]], convolutions: Mapping[int, Convolution], last: set[int]
) -> list[tuple[str, str]]:
    """Return the statements on weights alone, in which each two-dimensional kernel of a convolution in `last` is channels-last.

    A kernel has axes of length 1, and torch tells the memory format from the strides of these, too. Where they are not those of
    channels-last data, its own convolution, which runs without oneDNN and in double precision, fails in the backward pass. So a
    kernel whose weight is stored in its order gets these axes while the channels are innermost, and others are cloned, since
    `contiguous` leaves the strides of such axes as they are.
    """
    statements = list(prepared)
    for number in sorted(last):
        made = convolutions[number]
        name = made.weight.removeprefix("self.")
        own = [index for index, (statement, _) in enumerate(statements) if statement.startswith(f"{name} = ")]
        if not own:
            continue  # the weight is the kernel as it is
        statement, shape = statements[own[-1]]
        if made.channels_last is None:
            statements.insert(own[-1] + 1, (f"{name} = {name}.clone(memory_format=torch.channels_last)", shape))
        elif ".reshape(" in statement:
            results, channels, *taps = (size.integer_text() for size in made.kernel)
            is_ordered = list(made.channels_last) == sorted(made.channels_last)
            stored = made.weight if is_ordered else f"{made.weight}.permute({', '.join(map(str, made.channels_last))})"
            kernel = f"{name} = {stored}.reshape({results}, {', '.join(taps)}, {channels})"
            inner = ", ".join(made.kernel[place].fraction_text for place in (0, *range(2, len(made.kernel)), 1))
            statements[own[0] : own[-1] + 1] = [(kernel, f"[{inner}]"), (f"{name} = {name}.permute(0, 3, 1, 2)", shape)]
    return statements
