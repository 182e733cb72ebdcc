"""The paper's Table 1, as one table: what each primitive does to coordinates.

A primitive is read from bottom (the output's side) to top (the inputs' side): it takes the coordinates below it and
says which coordinates of the tensor above are read. This is the only definition of the primitives: the interpreter, the
printers and the code generators all evaluate these rows, with different arithmetic (arrays of integers, symbolic
expressions).

Paper: section 4.1, Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, assert_never

from syno.algebra import ONE, Size
from syno.base.errors import GraphError


class Arithmetic(Protocol):
    """The operations on coordinates that involve sizes. `+`, `-`, `*`, `//` and `%` are those of the coordinate type."""

    def size(self, size: Size) -> Any:
        """Return a size as a value by which coordinates can be multiplied and divided."""

    def half(self, size: Size) -> Any:
        """Return `size // 2`."""

    def guard(self, index: Any, extent: Size) -> Any:
        """Return `index`, and record that the whole summand is zero where the index is not in [0, extent)."""


class ParameterKind(Enum):
    """The kind of parameter that a primitive carries besides the coordinates below it."""

    NONE = "no parameter"
    BLOCK = "a block size"
    FACTOR = "a factor (a size)"
    AMOUNT = "a number of positions, not 0"
    DOMAIN = "a domain (a size) and a number that tells equal domains apart"
    WEIGHT = "the number of a weight, from 1"


Parameter = Size | int | tuple[Size, int] | None
Sizes = Sequence[Size]


@dataclass(frozen=True, eq=False)  # there is one object for each row: equal means the same, and is quick as a key of dicts
class Primitive:
    """One row of Table 1.

    Attributes:
        name: the primitive's name in the text of an operator.
        rule: the row of the table, as `[coordinates]:[sizes] <- [coordinates]:[sizes]`, bottom to top.
        meaning: the effect on data that flows from top to bottom, in words.
        bottoms, tops: the names of the coordinates below and above.
        parameter: the kind of parameter.
        top_sizes: function `(sizes, parameter)` of the sizes below that returns the sizes above.
        index: function `(arithmetic, coordinates, sizes, parameter)` of the coordinates below that returns those above.
    """

    name: str
    rule: str
    meaning: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    parameter: ParameterKind
    top_sizes: Callable[[Sizes, Any], tuple[Size, ...]]
    index: Callable[[Arithmetic, Sequence[Any], Sizes, Any], tuple[Any, ...]]

    def __repr__(self) -> str:
        return self.name

    def check_parameter(self, parameter: Parameter) -> None:
        """Raise GraphError unless `parameter` has the type that this primitive carries: a size, a distance or nothing."""
        match self.parameter:
            case ParameterKind.NONE:
                fine = parameter is None
            case ParameterKind.BLOCK | ParameterKind.FACTOR:
                fine = isinstance(parameter, Size) and parameter is not ONE
            case ParameterKind.AMOUNT:
                fine = type(parameter) is int and parameter != 0
            case ParameterKind.WEIGHT:
                fine = type(parameter) is int and parameter >= 1
            case ParameterKind.DOMAIN:
                fine = isinstance(parameter, tuple)
            case kind:
                assert_never(kind)
        if not fine:
            raise GraphError(f"{self.name} carries {self.parameter.value}; given: {parameter}")


def _reduce_has_no_index(*_: Any) -> tuple[Any, ...]:
    raise GraphError("a Reduce is a loop variable of its own: its coordinate must be given, it cannot be computed")


SPLIT = Primitive(
    name="Split",
    rule="[i, j]:[G, B] <- [B*i + j]:[G*B]",
    meaning="one axis of the tensor above is read as a group and a position in it (reshape)",
    bottoms=("major", "minor"),
    tops=("whole",),
    parameter=ParameterKind.NONE,
    top_sizes=lambda sizes, _: (sizes[0] * sizes[1],),
    index=lambda a, at, sizes, _: (at[0] * a.size(sizes[1]) + at[1],),
)
MERGE = Primitive(
    name="Merge",
    rule="[i]:[N] <- [i // B, i % B]:[N/B, B]",
    meaning="two axes of the tensor above are read as one (reshape)",
    bottoms=("whole",),
    tops=("quotient", "remainder"),
    parameter=ParameterKind.BLOCK,
    top_sizes=lambda sizes, block: (sizes[0] / block, block),
    index=lambda a, at, _, block: (at[0] // a.size(block), at[0] % a.size(block)),
)
SHIFT = Primitive(
    name="Shift",
    rule="[i]:[N] <- [(i + d) % N]:[N]",
    meaning="an axis is rotated by d positions; what leaves at one end enters at the other (roll)",
    bottoms=("from",),
    tops=("to",),
    parameter=ParameterKind.AMOUNT,
    top_sizes=lambda sizes, _: (sizes[0],),
    index=lambda a, at, sizes, amount: ((at[0] + amount) % a.size(sizes[0]),),
)
EXPAND = Primitive(
    name="Expand",
    rule="[i]:[C] <- []",
    meaning="the coordinate is not used above: the tensor is repeated along it (expand)",
    bottoms=("repeated",),
    tops=(),
    parameter=ParameterKind.NONE,
    top_sizes=lambda *_: (),
    index=lambda *_: (),
)
UNFOLD = Primitive(
    name="Unfold",
    rule="[i, j]:[N, K] <- [i + j - K//2]:[N], zero outside",
    meaning="around each position of an axis a window of K neighbours is read; beyond the borders it reads zero",
    bottoms=("position", "window"),
    tops=("axis",),
    parameter=ParameterKind.NONE,
    top_sizes=lambda sizes, _: (sizes[0],),
    # For an even K the window reaches one position further back than ahead, as K//2 is subtracted. The guard is on the axis's
    # length N: with K in its place, most of what the published TVM kernels compute is zero.
    index=lambda a, at, sizes, _: (a.guard(at[0] + at[1] - a.half(sizes[1]), sizes[0]),),
)
STRIDE = Primitive(
    name="Stride",
    rule="[i]:[K] <- [S*i]:[S*K]",
    meaning="every S-th position of an axis is read (strided slice); the axis above must be the window of an Unfold",
    bottoms=("step",),
    tops=("axis",),
    parameter=ParameterKind.FACTOR,
    top_sizes=lambda sizes, factor: (sizes[0] * factor,),
    index=lambda a, at, _, factor: (at[0] * a.size(factor),),
)
REDUCE = Primitive(
    name="Reduce",
    rule="[] <- sum over r of [r]:[D]",
    meaning="the tensor above is summed over an axis",
    bottoms=(),
    tops=("loop",),
    parameter=ParameterKind.DOMAIN,
    top_sizes=lambda _, domain: (domain[0],),
    index=_reduce_has_no_index,
)
SHARE = Primitive(
    name="Share",
    rule="[i]:[N] <- data [i]:[N] * weight [i]:[N]",
    meaning="the tensor above is multiplied with a weight that is read at the same coordinate",
    bottoms=("shared",),
    tops=("data", "weight"),
    parameter=ParameterKind.WEIGHT,
    top_sizes=lambda sizes, _: (sizes[0], sizes[0]),
    index=lambda a, at, sizes, _: (at[0], at[0]),
)

TABLE: dict[str, Primitive] = {
    row.name: row for row in (SPLIT, MERGE, SHIFT, EXPAND, UNFOLD, STRIDE, REDUCE, SHARE)
}  # fmt: skip
