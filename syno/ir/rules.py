"""The rules of the language: each dim is used exactly once, and each tensor is indexed by dims it may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from syno.algebra import Size
from syno.algebra.limits import MOST_AXES, MOST_PRIMITIVES, MOST_WEIGHTS
from syno.base.errors import GraphError
from syno.ir.dim import Operation
from syno.ir.primitives import REDUCE, SHARE

if TYPE_CHECKING:
    from syno.ir.graph import PGraph


def check(graph: PGraph) -> None:
    """GraphError for the first rule that the graph breaks: the same one whenever it is built."""
    for position, dim in enumerate(graph.output):
        if not dim.is_output or dim.position != position:
            raise GraphError(f"output axis {position} is {dim!r}; it must be output_axis({position}, size)")
    operations = _operations(graph)
    _check_limits(graph, operations)
    _check_numbers(operations)
    _check_uses(graph, operations)
    _check_input(graph)
    _check_weights(graph, operations)


def _operations(graph: PGraph) -> list[Operation]:
    """Every operation below the tops, Reduces too."""
    found: dict[Operation, None] = {}
    pending = list(graph.tops)
    while pending:
        operation = pending.pop().operation
        if operation is not None and operation not in found:
            found[operation] = None
            pending += operation.bottoms
    return list(found)


def _check_limits(graph: PGraph, operations: Sequence[Operation]) -> None:
    reductions = sum(operation.primitive is REDUCE for operation in operations)
    counts = [
        ("primitives", len(operations) + len(graph.expansions), MOST_PRIMITIVES),
        ("weights", len(graph.weights), MOST_WEIGHTS),
        ("output axes and reductions", len(graph.output) + reductions, MOST_AXES),
        ("input axes", len(graph.input), MOST_AXES),
        *((f"axes of weight {number}", len(weight), MOST_AXES) for number, weight in enumerate(graph.weights, 1)),
    ]
    for what, count, most in counts:
        if count > most:
            raise GraphError(f"an operator with {count} {what}; at most {most} are allowed")


def _check_uses(graph: PGraph, operations: Iterable[Operation]) -> None:
    used = Counter(graph.tops)
    for operation in operations:
        used.update(operation.bottoms)
    for operation in operations:
        for dim in operation.tops:
            if not used[dim]:
                raise GraphError(
                    f"{dim!r} is used by nothing: make it an axis of the input or of a weight, expand it, "
                    "or put a primitive above it"
                )
    for dim, times in used.items():
        if times > 1:
            raise GraphError(f"{dim!r} is used {times} times; a dim is used exactly once (Share it to read it twice)")
        if dim.is_output and (dim.position >= len(graph.output) or graph.output[dim.position] is not dim):
            raise GraphError(f"{dim!r} is used, but it is no axis of this operator's output")
    for dim in graph.output:
        if not used[dim]:
            raise GraphError(f"{dim!r} is used by nothing: lead it to the input, to a weight, or expand it")


def _check_input(graph: PGraph) -> None:
    for dim in graph.input:
        if dim.is_weight_side:
            raise GraphError(f"{dim!r} is a weight's axis; it cannot index the input")
        if dim.discards:
            raise GraphError(
                f"{dim!r} indexes the input through a Stride, which would skip elements: "
                "a Stride must lead to the window of an Unfold (or be expanded), as in a dilated convolution"
            )


def _check_weights(graph: PGraph, operations: Iterable[Operation]) -> None:
    for number, weight in enumerate(graph.weights, 1):
        if not weight:
            raise GraphError(f"weight {number} has no axes; number weights from 1 without a gap")
        for dim in weight:
            share = dim.operation
            if share is None or not dim.is_weight_side or share.parameter != number:
                raise GraphError(
                    f"{dim!r} cannot be an axis of weight {number}: its axes are the weight sides of its own Shares"
                )
            if dim.discards:
                raise GraphError(f"{dim!r}: share below the Stride, not above it, so that the weight is not skipped over")
    for operation in operations:
        if operation.primitive is SHARE and operation.parameter not in range(1, len(graph.weights) + 1):
            raise GraphError(f"{operation} belongs to weight {operation.parameter}; the graph has {len(graph.weights)} weights")


def _check_numbers(operations: Iterable[Operation]) -> None:
    """Reductions of one size are numbered 0, 1, 2 ...: else the text, which shows no numbers, would not give them back."""
    numbers: dict[Size, list[int]] = {}
    for operation in operations:
        if operation.primitive is REDUCE and isinstance(operation.parameter, tuple):
            numbers.setdefault(operation.parameter[0], []).append(operation.parameter[1])
    for size, given in numbers.items():
        if sorted(given) != list(range(len(given))):
            raise GraphError(f"the reductions of size {size} are numbered {sorted(given)}; number them from 0 without a gap")
