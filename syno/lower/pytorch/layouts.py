"""Memory layouts of weights: the order of axes in which the statement that reads a weight needs no copy of it.

The shape of a weight follows the operator's text, its strides the statement that reads it: otherwise torch would copy the
weight at each call, which takes longer than the multiplications for small pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from syno.algebra import Size
from syno.lower.pytorch.costs import StatementWork

Order: TypeAlias = tuple[int, ...]  # numbers of axes, from the largest stride to the smallest


@dataclass(frozen=True)
class Convolution:
    """A generated statement that calls a convolution.

    Attributes:
        moves: whether the kernel is larger than 1.
        is_grouped: whether it has groups.
        work: its work with channels-first data.
        weight: the expression of the weight.
        kernel_text: the expression of the kernel, made from the weight, in the call.
        kernel: the kernel's shape: output channels, input channels, window sizes.
        channels_first, channels_last: the orders of the weight's axes in memory in which the kernel needs no copy for these
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
    """Return the memory order of each convolution's weight, by the weight's expression, except for row-major ones.

    `last` has the numbers of the convolutions with channels-last data.
    """
    orders = {
        made.weight: made.channels_last if number in last else made.channels_first for number, made in convolutions.items()
    }
    return {weight: order for weight, order in orders.items() if order is not None and list(order) != sorted(order)}


def kernels_in_channels_last(
    prepared: Sequence[tuple[str, str]], convolutions: Mapping[int, Convolution], last: set[int]
) -> list[tuple[str, str]]:
    """Return the statements on weights alone, changed so that the kernels of the convolutions in `last` are channels-last.

    torch infers the memory format also from the strides of axes of length 1, and its native convolution (used without oneDNN,
    and in float64) fails in the backward pass if these strides are not those of channels-last data. So if the weight is stored
    in the kernel's order, axes of length 1 are added while the channels are innermost. Otherwise the kernel is cloned;
    `contiguous` would not change the strides of axes of length 1.
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
