"""Code that transforms one tensor, whose axes are dims; every statement updates the list of axes.

Views are collected, and written only before a statement that reads the tensor. Any sequence of reshapes and permutes then
becomes at most one reshape that splits axes, one permute, and one reshape that merges axes; only the last of these may copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Protocol

from syno.algebra import Size, Valuations, product
from syno.ir.dim import Dim
from syno.lower.pytorch.costs import StatementWork, estimated_microseconds
from syno.lower.pytorch.layouts import Convolution, Order


class _Piece:
    """A part of an axis in a pending reshape: an axis that was merged, or will be split, consists of several pieces."""

    def __init__(self, size: Size) -> None:
        self.size = size


class TensorCode:
    """Python statements that transform the tensor in one variable.

    Attributes:
        variable: the variable's name in the generated code.
        lines: the statements, each with a comment that gives the shape after it.
        functions: names of the functions of `syno.lower.pytorch.source.FUNCTIONS` that are called.
        convolutions: the statements that are convolutions, by their index in `lines`.
        prepared: the statements on weights alone, in the same form as `lines`.
        work: the work of all statements, for the cost model.
        layouts: for expressions of weights, the order of their axes in memory with which their reader needs no copy.
        lazy: whether views are collected until the tensor is read; otherwise each is written at once.
    """

    def __init__(self, variable: str, axes: Sequence[Dim], source: str | None = None, *, lazy: bool = True) -> None:
        self.variable = variable
        self.source = source or variable
        self.lines: list[tuple[str, str]] = []
        self.functions: set[str] = set()
        self.convolutions: dict[int, Convolution] = {}
        self.prepared: list[tuple[str, str]] = []
        self.work: list[StatementWork] = []
        self.layouts: dict[str, Order] = {}
        self.lazy = lazy
        self._value = self.source  # the expression that the next statement reads
        self._rolled: tuple[str, list[int], list[int], int] | None = None  # the last roll: expression, amounts, axes, line
        self._have([[dim] for dim in axes])

    def _have(self, parts: Sequence[Sequence[Dim]]) -> None:
        """Set the tensor's axes; each is the merge of some dims, from the outermost."""
        self._pieces = {dim: [_Piece(dim.size)] for part in parts for dim in part}
        self._physical = [[piece for dim in part for piece in self._pieces[dim]] for part in parts]
        self.axes = [dim for part in parts for dim in part]

    # ---- statements ---------------------------------------------------------------------------------------------

    def assign(self, expression: str, parts: Iterable[Dim | Sequence[Dim]], kind: str = "") -> None:
        """Write `variable = expression`.

        Args:
            expression: the new value.
            parts: the axes after it; each is a dim, or the merge of several dims.
            kind: the kind of work for the cost model if the whole tensor is read and written; "" for a view.
        """
        after = [[part] if isinstance(part, Dim) else list(part) for part in parts]
        if kind:
            moved = StatementWork(
                kind, tuple(product(dim.size for part in tensor for dim in part) for tensor in ([self.axes], after))
            )
            self.work += [moved, moved] if kind == "slices" else [moved]  # slices are taken from a padded copy
        self._write(expression, [product(dim.size for dim in part) for part in after])
        self._have(after)

    def call(self, function: str, arguments: str, axes: Iterable[Dim]) -> None:
        """Write a call of a function of `syno.lower.pytorch.source.FUNCTIONS`, and assign its result."""
        self.functions.add(function)
        self.assign(f"{function}({self.read()}, {arguments})", axes, "copy" if function == "windows" else "slices")

    def _write(self, expression: str, sizes: Sequence[Size]) -> None:
        self.lines.append((f"{self.variable} = {expression}", shape_comment(sizes)))
        self._value = self.variable

    def read(self, parts: Sequence[Sequence[Dim]] | None = None) -> str:
        """Write the collected views, and return the expression for the tensor.

        With `parts`, dims are merged to one axis each (an empty part is an axis of size 1); every axis is in one part.
        """
        wanted = [[dim] for dim in self.axes] if parts is None else [list(part) for part in parts]
        merged = [[piece for dim in part for piece in self._pieces[dim]] for part in wanted]
        have = [piece for axis in self._physical for piece in axis]
        want = [piece for axis in merged for piece in axis]
        if have != want:
            if any(len(axis) != 1 for axis in self._physical):
                self._write(f"{self._value}.reshape({_shape(piece.size for piece in have)})", [piece.size for piece in have])
            numbers = ", ".join(str(have.index(piece)) for piece in want)
            self._write(f"{self._value}.permute({numbers})", [piece.size for piece in want])
            self._physical = [[piece] for piece in want]
        if merged != self._physical:
            sizes = [product(dim.size for dim in part) for part in wanted]
            self._write(f"{self._value}.reshape({_shape(sizes)})", sizes)
            if have != want:
                self.work.append(StatementWork("copy", (product(sizes), product(sizes))))
        self._have(wanted)
        return self._value

    def order_in_memory(self, dims: Iterable[Dim]) -> Order | None:
        """Return the order of the variable's axes in memory with which these dims, outermost first, are read without a copy.

        None if there is no such order, because an axis would fall apart, or because a statement has made a new tensor.
        """
        if self.lines:
            return None
        pieces = [piece for dim in dims for piece in self._pieces[dim]]
        order = sorted(range(len(self._physical)), key=lambda axis: pieces.index(self._physical[axis][0]))
        return tuple(order) if [piece for axis in order for piece in self._physical[axis]] == pieces else None

    def is_adjacent_in_memory(self, dims: Iterable[Dim]) -> bool:
        """Return whether these dims follow each other in a variable that is stored in the order of its axes."""
        stored = [piece for axis in self._physical for piece in axis]
        places = [stored.index(piece) for dim in dims for piece in self._pieces[dim]]
        return all(after == before + 1 for before, after in pairwise(places))

    def _view(self) -> None:
        if not self.lazy:
            self.read()

    # ---- views --------------------------------------------------------------------------------------------------

    def position(self, dim: Dim) -> int:
        """Return the position of the axis `dim`."""
        return self.axes.index(dim)

    def order(self, axes: Sequence[Dim]) -> None:
        """Permute the axes to this order."""
        self.axes = list(axes)
        self._view()

    def replace(self, old: Sequence[Dim], new: Sequence[Dim]) -> None:
        """Replace the adjacent axes `old` by the axes `new` with the same number of elements: merge several, or split one."""
        if len(new) == 1:
            self._pieces[new[0]] = [piece for dim in old for piece in self._pieces[dim]]
        else:
            self._cut_axis(old[0], new)
        start = self.position(old[0])
        self.axes[start : start + len(old)] = new
        self._view()

    def _cut_axis(self, old: Dim, new: Sequence[Dim]) -> None:
        pieces = self._pieces[old]
        if len(pieces) > 1 and not self._falls_apart(pieces, new):
            self.read()
            pieces = self._pieces[old]
        if len(pieces) == 1:
            parts = [_Piece(dim.size) for dim in new]
            axis = next(axis for axis in self._physical if pieces[0] in axis)
            place = axis.index(pieces[0])
            axis[place : place + 1] = parts
            self._pieces.update({dim: [part] for dim, part in zip(new, parts, strict=True)})

    def _falls_apart(self, pieces: Sequence[_Piece], new: Sequence[Dim]) -> bool:
        """Return whether splitting an axis into `new` undoes an earlier merge."""
        rest = list(pieces)
        found: dict[Dim, list[_Piece]] = {}
        for dim in new:
            own: list[_Piece] = []
            while rest and (not own or product(piece.size for piece in own) is not dim.size):
                own.append(rest.pop(0))
            if not own or product(piece.size for piece in own) is not dim.size:
                return False
            found[dim] = own
        if rest:
            return False
        self._pieces.update(found)
        return True

    def relabel(self, old: Dim, new: Dim) -> None:
        """Rename the axis `old` to `new`. This writes no code."""
        self._pieces[new] = self._pieces[old]
        self.axes[self.position(old)] = new

    def adjacent(self, dims: Sequence[Dim], rank: Mapping[Dim, int] | None = None) -> None:
        """Permute so that these axes are adjacent, at the position of the axis that leaves the fewest inversions by `rank`."""

        def with_neighbours(anchor: Dim) -> list[Dim]:
            before = [dim for dim in self.axes[: self.position(anchor)] if dim not in dims]
            return [*before, *dims, *(dim for dim in self.axes if dim not in dims and dim not in before)]

        def inversions(order: Sequence[Dim]) -> int:
            ranks = [rank[dim] for dim in order if dim in rank] if rank else []
            return sum(left > right for left, right in combinations(ranks, 2))

        self.order(min((with_neighbours(anchor) for anchor in dims), key=inversions))

    # ---- operations on axes -------------------------------------------------------------------------------------

    def roll(self, old: Dim, new: Dim, amount: int) -> None:
        """Rotate an axis: the new element i is the old element i - amount. Consecutive rolls become one statement."""
        parts = self._standing_parts(old)
        value = self.read(parts)
        axis = next(number for number, part in enumerate(parts) if old in part)
        amounts, axes = [amount], [axis]
        if self.lazy and self._rolled is not None and self._rolled[3] == len(self.lines):
            value, amounts, axes = self._rolled[0], [*self._rolled[1], amount], [*self._rolled[2], axis]
            self.lines.pop()
        arguments = (
            f"{amount}, {axis}" if len(axes) == 1 else f"({', '.join(map(str, amounts))}), ({', '.join(map(str, axes))})"
        )
        self.assign(f"{value}.roll({arguments})", [[new if dim is old else dim for dim in part] for part in parts], "copy")
        self._rolled = value, amounts, axes, len(self.lines)

    def _standing_parts(self, alone: Dim) -> list[list[Dim]]:
        """Return the axes as lists of merged dims if `alone` is not merged with others, else one axis per dim."""
        parts: list[list[Dim]] = []
        rest = list(self.axes)
        for axis in self._physical:
            part: list[Dim] = []
            pieces: list[_Piece] = []
            while rest and len(pieces) < len(axis):
                part.append(rest.pop(0))
                pieces += self._pieces[part[-1]]
            if pieces != axis or (alone in part and len(part) > 1):
                return [[dim] for dim in self.axes]
            parts.append(part)
        return parts

    def insert(self, dim: Dim, position: int) -> None:
        """Insert an axis along which the tensor is repeated, without a copy."""
        axes = [*self.axes[:position], dim, *self.axes[position:]]
        sizes = ", ".join(dim.size.integer_text() if other is dim else "-1" for other in axes)
        self.assign(f"{self.read()}.unsqueeze({position}).expand({sizes})", axes)

    def spread(self, dim: Dim, taps: Dim) -> None:
        """Append the axis `taps`, as long as the axis `dim`; elements are zero unless both indices are equal."""
        self.order([*(other for other in self.axes if other is not dim), dim])
        self.assign(f"torch.diag_embed({self.read()})", [*self.axes, taps], "copy")

    def sum(self, dims: Sequence[Dim]) -> None:
        """Write a sum over these axes."""
        numbers = [str(self.position(dim)) for dim in dims]
        over = numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"
        self.assign(f"{self.read()}.sum({over})", [dim for dim in self.axes if dim not in dims], "copy")


def shape_comment(sizes: Iterable[Size]) -> str:
    """Return a shape as text, such as `[N, C_in/g, H, H]`."""
    return f"[{', '.join(size.fraction_text for size in sizes)}]"


def _shape(sizes: Iterable[Size]) -> str:
    return ", ".join(size.integer_text() for size in sizes)


# Equivalent forms of generated code: decisions that change the time of the code, but not its result.
#
# - "spread": a delayed window becomes part of a convolution whose kernel has zeros, instead of shifted slices.
# - "repeat": a convolution repeats its taps along the part of a window that has no weight, instead of storing the windows.
# - "convolve": a product along channels is a 1x1 convolution, instead of einsum.
# - "channels last": data are converted to channels-last format before the first of several two-dimensional convolutions.

MOST_FORMS = 16  # of one operator: all combinations of the four decisions
MARGIN = 0.8  # another form must take less than this share of the usual form's estimated time, since estimates are rough


class Decisions:
    """Decisions between equivalent forms: the usual ones, except those in `reversed`."""

    def __init__(self, reversed_ones: frozenset[str] = frozenset()) -> None:
        self.reversed = reversed_ones
        self.met: dict[str, None] = {}  # decisions that were asked for, in order

    def take(self, name: str) -> bool:
        """Return whether to take the usual form in the decision `name`: True, unless it is reversed."""
        self.met[name] = None
        return name not in self.reversed


class Writer(Protocol):
    """A function that writes an operator's statements for given decisions."""

    def __call__(self, decisions: Decisions) -> TensorCode:
        """Return the tensor's code with these decisions."""


def cheapest(write: Writer, valuations: Valuations) -> TensorCode:
    """Return the statements of the form with the least estimated time: the usual form unless another is clearly faster."""
    forms: dict[frozenset[str], tuple[float, TensorCode]] = {}
    waiting = [frozenset[str]()]
    for reversed_ones in waiting:  # grows while it is read: some decisions are asked for only after another one is reversed
        if reversed_ones not in forms and len(forms) < MOST_FORMS:
            decisions = Decisions(reversed_ones)
            code = write(decisions)
            share = 1 if reversed_ones else MARGIN
            forms[reversed_ones] = share * estimated_microseconds(code.work, valuations), code
            waiting += [reversed_ones | {name} for name in decisions.met if name not in reversed_ones]
    return min(forms.values(), key=lambda form: form[0])[1]
