"""Lowering of a plan to PyTorch statements.

`Lowering` is the literal mode: every primitive becomes a torch view, every Share an einsum. The fused mode (`fused.py`) is a
subclass that handles windows in other ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from string import ascii_letters

from syno.algebra import ONE, Size, product
from syno.base.errors import LoweringError
from syno.ir.dim import Dim, Operation
from syno.ir.primitives import EXPAND, MERGE, SHARE, SHIFT, SPLIT, STRIDE, UNFOLD
from syno.lower.cut import Cut, Structure
from syno.lower.plan import Plan
from syno.lower.pytorch.costs import StatementWork
from syno.lower.pytorch.tensor_code import Decisions, TensorCode


@dataclass(frozen=True)
class Window:
    """The window of an Unfold, with the dims into which views below it split it.

    Attributes:
        unfold: the Unfold.
        kernel: the dim whose positions are the taps: the window itself, or the dim below a Stride of it.
        dilation: the distance of neighbouring taps.
        leaves: the dims into which views split `kernel`, each shared with a weight or summed.
    """

    unfold: Operation
    kernel: Dim
    dilation: Size
    leaves: tuple[Dim, ...]

    @property
    def axis(self) -> Dim:
        """The axis along which the window slides, above the Unfold."""
        return self.unfold.tops[0]

    @property
    def position(self) -> Dim:
        """The axis along which the window slides, below the Unfold."""
        return self.unfold.bottoms[0]

    @property
    def dilation_argument(self) -> str:
        """The dilation as the last argument of a generated call; empty if it is 1."""
        return "" if self.dilation is ONE else f", {self.dilation.integer_text()}"


def window_of(unfold: Operation) -> Window:
    """Return the window of `unfold`; its leaves are the dims below which there is no further Split or Shift."""
    window = unfold.bottoms[1]
    operation = window.operation
    if operation is not None and operation.primitive is STRIDE:
        assert isinstance(operation.parameter, Size)
        return Window(unfold, operation.bottoms[0], operation.parameter, tuple(_leaves(operation.bottoms[0])))
    return Window(unfold, window, ONE, tuple(_leaves(window)))


def _leaves(dim: Dim) -> Iterator[Dim]:
    operation = dim.operation
    if operation is not None and operation.primitive in (SPLIT, SHIFT):
        for below in operation.bottoms:
            yield from _leaves(below)
    else:
        yield dim


def split_leaves(dim: Dim) -> list[Dim]:
    """Return the dims into which the Splits below `dim` split it; [dim] if there are none."""
    operation = dim.operation
    if operation is None or operation.primitive is not SPLIT:
        return [dim]
    return [leaf for below in operation.bottoms for leaf in split_leaves(below)]


def unfold_above(structure: Structure, dim: Dim) -> Operation | None:
    """Return the Unfold of whose window `dim` is a leaf, or None."""
    operation = structure.above.get(dim)
    while operation is not None and operation.primitive in (SPLIT, SHIFT, STRIDE):
        dim = operation.tops[0]
        operation = structure.above.get(dim)
    if operation is None or operation.primitive is not UNFOLD or operation.bottoms[1] is not dim:
        return None
    return operation


def share_at(leaf: Dim, weight: int) -> Operation | None:
    """Return the Share of `weight` that has `leaf` as its data side, or None."""
    operation = leaf.operation
    if operation is None or operation.primitive is not SHARE or leaf.position != 0 or operation.parameter != weight:
        return None
    return operation


def carried_out_for(structure: Structure, available: Set[Dim], dim: Dim) -> set[Operation]:
    """Return the operations that compute the dim from the axes `available`."""
    if dim in available:
        return set()
    operation = structure.above.get(dim)
    if operation is None:
        return set()
    return {operation}.union(*(carried_out_for(structure, available, top) for top in operation.tops))


@dataclass(frozen=True)
class Meeting:
    """An axis of a weight, the axis of the data at the same coordinate (if any), and the resulting axis of their product."""

    data: Dim | None
    weight: Dim
    result: Dim


class Lowering:
    """Writes the statements of one plan, and collects them in its attribute `data`.

    Args:
        plan: the plan.
        weights: the expression of each weight.
        data: the name of the generated variable that holds the data tensor.
        source: the expression of the input; None: the variable `data`.
        decisions: the decisions between equivalent forms; None: the usual ones.
    """

    lazy = False  # each view is a statement of its own

    def __init__(
        self, plan: Plan, weights: Sequence[str], data: str = "x", source: str | None = None, decisions: Decisions | None = None
    ) -> None:
        self.plan = plan
        self.decisions = decisions or Decisions()
        self.graph = graph = plan.staged
        self.weights = weights
        self.structure = Structure(graph)
        self.data = TensorCode(data, graph.input, source, lazy=self.lazy)
        self.rank = _ranks(self.structure)
        self.done: set[int] = set()  # numbers of the weights that have been multiplied
        self.summed: set[Dim] = set()
        self.finished: set[Operation] = (
            set()
        )  # Unfolds that are carried out, and Strides and Shares that a shear has carried out with them

    def run(self) -> TensorCode:
        """Write the statements of all stages, then the views after which the axes are the output's."""
        for stage in self.plan.stages:
            for weight in stage.weights:
                self.contract(weight)
                self.done.add(weight)
            for dim in stage.reduces:
                self.sum_over(dim)
        for dim in self.graph.reduces:
            Lowering.sum_over(self, dim)  # sums that a subclass left to a later statement which did not take them
        for dim in self.graph.output:
            self.need(dim)
        self.data.order(self.graph.output)
        self.data.read()
        return self.data

    # ---- views --------------------------------------------------------------------------------------------------

    def need(self, dim: Dim) -> None:
        """Carry out the operations above `dim` until it is an axis of the data."""
        Cut(self.structure, self.data.axes).include(dim, self.carry_out)

    def carry_out(self, operation: Operation) -> None:
        """Carry out one operation: the axes above it become the axes below it."""
        data, tops, bottoms = self.data, operation.tops, operation.bottoms
        match operation.primitive.name:
            case SPLIT.name:
                data.replace(tops, bottoms)
            case MERGE.name:
                data.adjacent(tops, self.rank)
                data.replace(tops, bottoms)
            case SHIFT.name:
                assert isinstance(operation.parameter, int)
                data.roll(tops[0], bottoms[0], -operation.parameter)
            case STRIDE.name:
                self.stride(operation)
            case EXPAND.name:
                data.insert(bottoms[0], self.place_of(bottoms[0]))
            case UNFOLD.name:
                self.unfold(operation)
            case SHARE.name:  # of a weight that was multiplied before the data had this axis
                first, second = (data.position(top) for top in tops)
                rest = [dim for dim in data.axes if dim not in tops]
                data.assign(f"{data.read()}.diagonal(0, {first}, {second})", [*rest, bottoms[0]])
            case other:
                raise LoweringError(f"{self.graph!r} has the primitive {other}, which the PyTorch generator cannot write")

    def place_of(self, repeated: Dim) -> int:
        """Return the best position for a repeated axis: beside the axis with which it will be merged, else last."""
        below = repeated.operation
        if below is None or below.primitive is not MERGE:
            return len(self.data.axes)
        other = below.tops[1 - repeated.position]
        return self.data.position(other) + repeated.position if other in self.data.axes else len(self.data.axes)

    def stride(self, operation: Operation) -> None:
        """Write a Stride: take every S-th element of an axis."""
        axis = self.data.position(operation.tops[0])
        assert isinstance(operation.parameter, Size)
        slices = ", ".join([":"] * axis + [f"::{operation.parameter.integer_text()}"])
        axes = [operation.bottoms[0] if dim is operation.tops[0] else dim for dim in self.data.axes]
        self.data.assign(f"{self.data.read()}[{slices}]", axes)

    def unfold(self, operation: Operation) -> None:
        """Write an Unfold: make the window an axis of its own, in a copy of the data."""
        position, window = operation.bottoms
        axis = self.data.position(operation.tops[0])
        axes = [*self.data.axes[:axis], window, position, *self.data.axes[axis + 1 :]]
        self.data.call("stored_windows", f"{axis}, {window.size.integer_text()}", axes)

    def sum_over(self, dim: Dim) -> None:
        """Write the sum over a reduction, unless an earlier statement has summed over it."""
        if dim not in self.summed:
            self.need(dim)
            self.data.sum([dim])
            self.summed.add(dim)

    # ---- contractions -------------------------------------------------------------------------------------------

    def contract(self, number: int) -> None:
        """Write the product with weight `number` and the sum over the reductions in the weight's indices."""
        shares = self.ready_shares(number)
        for share in shares:
            if not self.structure.is_expanded(share.tops[0]):
                self.need(share.tops[0])
        self.einsum(self.weight(number), self.meetings(number, shares))

    def weight(self, number: int) -> TensorCode:
        """Return the code of a weight tensor, with the weight sides of its Shares as axes."""
        source = self.weights[number - 1]
        return TensorCode(source.removeprefix("self."), self.graph.weights[number - 1], source, lazy=self.lazy)

    def meetings(self, number: int, shares: Sequence[Operation]) -> list[Meeting]:
        """Return a `Meeting` for each axis of the weight."""
        by_axis = {share.tops[1]: share for share in shares}
        found = []
        for axis in self.graph.weights[number - 1]:
            share = by_axis.get(axis)
            if share is None:
                found.append(Meeting(None, axis, axis))
            else:
                above = share.tops[0]
                found.append(Meeting(above if above in self.data.axes else None, axis, share.bottoms[0]))
        return found

    def ready_shares(self, weight: int) -> list[Operation]:
        """Return the Shares of `weight` whose data side does not depend on weights of later contractions.

        The weight's other axes remain axes of the data until their Share can be carried out.
        """
        ready = []
        for share in self.structure.shares[weight]:
            data = share.tops[0]
            waits = self.structure.weights_above(data) - self.done
            if not waits and not self.structure.reads_share_of(data, weight):
                ready.append(share)
        return ready

    def einsum(self, weight: TensorCode, meetings: Sequence[Meeting]) -> None:
        """Multiply with the weight, and sum over every reduction that is an axis of the product."""
        data = self.data
        if len(data.axes) + len(weight.axes) > len(ascii_letters):
            raise LoweringError(
                f"{self.graph!r} has tensors of more than {len(ascii_letters)} axes; einsum has no more letters"
            )
        letter = dict(zip(data.axes, ascii_letters, strict=False))
        unused = iter(ascii_letters[len(data.axes) :])
        result = {dim: dim for dim in data.axes}
        alone = []
        for meeting in meetings:
            if meeting.data is None:
                letter[meeting.weight] = next(unused)
                alone.append(meeting)
            else:
                letter[meeting.weight] = letter[meeting.data]
                result[meeting.data] = meeting.result
        after = [(dim, letter[above]) for above, dim in result.items()]
        after += [(meeting.result, letter[meeting.weight]) for meeting in alone]
        self.summed.update(dim for dim, _ in after if dim.is_reduce)
        left, right = ("".join(letter[dim] for dim in tensor.axes) for tensor in (data, weight))
        kept = [(dim, name) for dim, name in after if not dim.is_reduce]
        if all(dim in self.rank for dim, _ in kept):  # nothing is left to contract: the order of the output
            kept.sort(key=lambda entry: self.rank[entry[0]])
        equation = f"{left},{right}->{''.join(name for _, name in kept)}"
        if self.lazy:
            self._lay_out(weight, meetings, [dim for dim, _ in kept])
        operands = f"{data.read()}, {weight.read()}"
        data.prepared += weight.lines
        data.work += weight.work if weight.source not in data.layouts else []
        sizes = tuple(product(dim.size for dim in dims) for dims in (data.axes, [dim for dim, _ in kept], weight.axes))
        multiplications = product(dim.size for dim, _ in after)
        data.work.append(StatementWork("product", sizes, multiplications))
        data.assign(f'torch.einsum("{equation}", {operands})', [dim for dim, _ in kept])

    def _lay_out(self, weight: TensorCode, meetings: Sequence[Meeting], results: Sequence[Dim]) -> None:
        """Record the order of the weight's axes in memory with which einsum needs no copy of it."""
        met = [meeting for meeting in meetings if meeting.data is not None]
        groups = [meeting.weight for meeting in met if not meeting.result.is_reduce]
        summed = [meeting.weight for meeting in met if meeting.result.is_reduce]
        outer = [meeting for meeting in meetings if meeting.data is None]
        if any(meeting.result.is_reduce for meeting in outer):
            return  # einsum sums these first, which makes a new tensor
        outer.sort(key=lambda meeting: results.index(meeting.result))
        parts = [groups, summed, [meeting.weight for meeting in outer]]
        if not all(map(weight.is_adjacent_in_memory, parts)):
            order = weight.order_in_memory(dim for part in parts for dim in part)
            if order is not None:
                self.data.layouts[weight.source] = order


def _ranks(structure: Structure) -> dict[Dim, int]:
    """Return a rank for every dim from which views make the output's axes: their order in the output."""
    ranks: dict[Dim, int] = {}

    def visit(dim: Dim) -> None:
        if dim in ranks:  # met on another way
            return
        ranks[dim] = len(ranks)
        operation = structure.above.get(dim)
        for top in operation.tops if operation is not None else ():
            visit(top)

    for dim in structure.graph.output:
        visit(dim)
    return ranks
