"""Code on one tensor, whose axes are dims: every line that is written keeps the list of axes right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syno.algebra import Size
from syno.ir.dim import Dim


class TensorCode:
    """Python statements that transform the tensor in one variable.

    Attributes:
        variable: the variable's name in the generated code.
        axes: what indexes each axis of the tensor now.
        lines: the statements, each with a comment that gives the shape after it.
        functions: names of the functions of `functions.py` that are used.
    """

    def __init__(self, variable: str, axes: Sequence[Dim], source: str | None = None) -> None:
        self.variable = variable
        self.axes = list(axes)
        self.lines: list[tuple[str, str]] = []
        self.functions: set[str] = set()
        self._value = source or variable  # what the first statement reads
        self._shape = [dim.size for dim in axes]  # as torch sees it: differs from the axes where a reshape merged some
        self._reshaped_from: tuple[str, list[Size]] | None = None  # what a reshape just written read, and its shape

    @property
    def value(self) -> str:
        """The expression that holds the tensor now."""
        return self._value

    def assign(self, expression: str, axes: Iterable[Dim], shape: Sequence[Size] | None = None) -> None:
        """`variable = expression`, after which the tensor has these axes, and `shape` if some of them are merged."""
        self.axes = list(axes)
        self._shape = [dim.size for dim in self.axes] if shape is None else list(shape)
        self.lines.append((f"{self.variable} = {expression}", shape_comment(self._shape)))
        self._value = self.variable
        self._reshaped_from = None

    def call(self, function: str, arguments: str, axes: Iterable[Dim]) -> None:
        """Assign the result of a function of `functions.py`."""
        self.functions.add(function)
        self.assign(f"{function}({self.value}, {arguments})", axes)

    def position(self, dim: Dim) -> int:
        """The number of the axis indexed by `dim`."""
        return self.axes.index(dim)

    def order(self, axes: Sequence[Dim]) -> None:
        """Permute to this order; nothing is written where it is the order already."""
        if list(axes) != self.axes:
            self.assign(f"{self.value}.permute({', '.join(str(self.position(dim)) for dim in axes)})", axes)

    def reshape(self, sizes: Sequence[Size], axes: Sequence[Dim] | None = None) -> None:
        """Reshape to `sizes`. `axes` are the dims after, where each axis is one."""
        if self._reshaped_from is None:
            self._reshaped_from = self._value, self._shape
        elif self._shape != self._reshaped_from[1]:  # only the last of two reshapes in a row counts
            self.lines.pop()
        self._value, before = self._reshaped_from
        self._shape = list(sizes)
        if self._shape != before:
            shape = ", ".join(size.integer_text() for size in sizes)
            self.lines.append((f"{self.variable} = {self._value}.reshape({shape})", shape_comment(sizes)))
            self._value = self.variable
        if axes is not None:
            self.axes = list(axes)

    def replace(self, old: Sequence[Dim], new: Sequence[Dim]) -> None:
        """Reshape so that the adjacent axes `old` become the axes `new`, of the same number of elements."""
        start = self.position(old[0])
        axes = [*self.axes[:start], *new, *self.axes[start + len(old) :]]
        self.reshape([dim.size for dim in axes], axes)

    def relabel(self, old: Dim, new: Dim) -> None:
        """The axis `old` is now called `new`; no code."""
        self.axes[self.position(old)] = new

    def adjacent(self, dims: Sequence[Dim]) -> None:
        """Permute so that these axes follow each other, where the first of them is now."""
        rest = [dim for dim in self.axes if dim not in dims[1:]]
        start = rest.index(dims[0])
        self.order([*rest[: start + 1], *dims[1:], *rest[start + 1 :]])

    def roll(self, old: Dim, new: Dim, amount: int) -> None:
        """Rotate an axis: afterwards index i holds what index i - amount held."""
        axis = self.position(old)
        self.assign(f"{self.value}.roll({amount}, {axis})", [new if dim is old else dim for dim in self.axes])

    def insert(self, dim: Dim, position: int) -> None:
        """A new axis along which the tensor is repeated, without a copy."""
        axes = [*self.axes[:position], dim, *self.axes[position:]]
        sizes = ", ".join(dim.size.integer_text() if other is dim else "-1" for other in axes)
        self.assign(f"{self.value}.unsqueeze({position}).expand({sizes})", axes)

    def spread(self, dim: Dim, taps: Dim) -> None:
        """A new last axis, as long as that of `dim`, that is zero but where both indices are equal."""
        self.order([*(other for other in self.axes if other is not dim), dim])
        self.assign(f"torch.diag_embed({self.value})", [*self.axes, taps])

    def sum(self, dims: Sequence[Dim]) -> None:
        """Sum over axes."""
        numbers = [str(self.position(dim)) for dim in dims]
        over = numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"
        self.assign(f"{self.value}.sum({over})", [dim for dim in self.axes if dim not in dims])


def shape_comment(sizes: Iterable[Size]) -> str:
    """`[N, C_in/g, H, H]`."""
    return f"[{', '.join(size.fraction_text for size in sizes)}]"
