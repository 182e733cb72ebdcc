"""The structure of a pGraph: traversal and order of its dims, rebuilding them on other dims, and the language's rules."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from syno.algebra import Size
from syno.algebra.limits import MOST_AXES, MOST_PRIMITIVES, MOST_WEIGHTS
from syno.base.errors import GraphError
from syno.ir.dim import Dim, Operation, reduce
from syno.ir.primitives import REDUCE, SHARE

Weight = tuple[Dim, ...]  # the weight sides of its Shares, in the order of the weight tensor's axes


def operations_below(tops: Iterable[Dim]) -> tuple[Operation, ...]:
    """Return every operation below the given dims of tensors, Reduces included, each once."""
    found: dict[Operation, None] = {}
    pending = list(tops)
    while pending:
        operation = pending.pop().operation
        if operation is not None and operation not in found:
            found[operation] = None
            pending += operation.bottoms
    return tuple(found)


def ordered(
    operations: Iterable[Operation], labels: Mapping[Dim, str], weight_axes: Mapping[Dim, str]
) -> tuple[tuple[Operation, ...], dict[Dim, str]]:
    """Return the operations in an order that depends on content only, and a label for every dim.

    The order is topological. Of several operations whose dims below are all ordered, the one with the earliest dims comes
    first.

    Args:
        operations: all operations but the Reduces, Expands included.
        labels: the labels of the output axes and of the reductions, in their order; the other dims are called d0, d1 ...
        weight_axes: the labels of the axes of weights.
    """
    found = dict(labels)
    above = {dim: operation for operation in operations for dim in operation.bottoms}
    rank = {dim: position for position, dim in enumerate(labels)}
    waiting = {operation: len(operation.bottoms) for operation in above.values()}
    ready: list[tuple[tuple[int, ...], str, Operation]] = []

    def arrive(dim: Dim) -> None:
        if (operation := above.get(dim)) is not None:
            waiting[operation] -= 1
            if not waiting[operation]:
                heapq.heappush(ready, (tuple(rank[below] for below in operation.bottoms), operation.primitive.name, operation))

    for dim in labels:
        arrive(dim)
    done: list[Operation] = []
    while ready:
        operation = heapq.heappop(ready)[2]
        done.append(operation)
        for dim in operation.tops:
            if dim in weight_axes:
                found[dim] = weight_axes[dim]
            else:
                found[dim] = f"d{len(rank) - len(labels)}"
                rank[dim] = len(rank)
                arrive(dim)
    return tuple(done), found


def numbered(loops: Iterable[Dim]) -> dict[Dim, Dim]:
    """Return a new reduction for each of `loops`; reductions of one size are numbered from 0, in the order of the loops."""
    counts: Counter[Size] = Counter()
    new: dict[Dim, Dim] = {}
    for loop in loops:
        new[loop] = reduce(loop.size, counts[loop.size])
        counts[loop.size] += 1
    return new


class Rebuilt(dict[Dim, Dim]):
    """A mapping from dims to new dims: some are replaced, and all dims above them are rebuilt on first lookup.

    Args:
        replaced: the replaced dims. Output axes that are not among them are unchanged.
        rebuild: returns the new tops of an operation from the operation and its new bottoms; None: the tops of the same
            primitive with the same parameter.
    """

    def __init__(
        self, replaced: Mapping[Dim, Dim], rebuild: Callable[[Operation, tuple[Dim, ...]], tuple[Dim, ...]] | None = None
    ) -> None:
        self._replaced, self._rebuild = replaced, rebuild

    def __missing__(self, dim: Dim) -> Dim:
        new = self._replaced.get(dim)
        if new is None:
            operation = dim.operation
            new = dim if operation is None else self._tops(operation)[dim.position]
        self[dim] = new
        return new

    def _tops(self, operation: Operation) -> tuple[Dim, ...]:
        bottoms = tuple([self[dim] for dim in operation.bottoms])
        if self._rebuild is not None:
            return self._rebuild(operation, bottoms)
        return (
            operation.tops
            if bottoms == operation.bottoms
            else Operation(operation.primitive, operation.parameter, bottoms).tops
        )


def check(
    operations: Sequence[Operation],
    output: Sequence[Dim],
    input: Sequence[Dim],  # noqa: A002  # the language's own word
    weights: Sequence[Weight],
    expansions: Sequence[Dim],
) -> None:
    """Check the rules of the language: each dim is used exactly once, and tensors are indexed by dims that they may have.

    Args:
        operations: every operation below the tensors' dims, Reduces included.
        output, input, weights, expansions: dims of the tensors, as in a pGraph.

    Raises GraphError for the first broken rule; it is the same rule in every process.
    """
    for position, dim in enumerate(output):
        if not dim.is_output or dim.position != position:
            raise GraphError(f"output axis {position} is {dim!r}; it must be output_axis({position}, size)")
    reductions = [operation for operation in operations if operation.primitive is REDUCE]
    _check_limits(
        [
            ("primitives", len(operations) + len(expansions), MOST_PRIMITIVES),
            ("weights", len(weights), MOST_WEIGHTS),
            ("output axes and reductions", len(output) + len(reductions), MOST_AXES),
            ("input axes", len(input), MOST_AXES),
            *((f"axes of weight {number}", len(weight), MOST_AXES) for number, weight in enumerate(weights, 1)),
        ]
    )
    _check_numbers(reductions)
    _check_uses(operations, output, [*input, *(dim for weight in weights for dim in weight), *expansions])
    _check_input(input)
    _check_weights(weights, operations)


def _check_limits(counts: Iterable[tuple[str, int, int]]) -> None:
    for what, count, most in counts:
        if count > most:
            raise GraphError(f"an operator with {count} {what}; at most {most} are allowed")


def _check_numbers(reductions: Iterable[Operation]) -> None:
    """Check that reductions of one size are numbered 0, 1, 2 ...: the text of an operator does not show the numbers."""
    numbers: dict[Size, list[int]] = {}
    for operation in reductions:
        if isinstance(operation.parameter, tuple):
            numbers.setdefault(operation.parameter[0], []).append(operation.parameter[1])
    for size, given in numbers.items():
        if sorted(given) != list(range(len(given))):
            raise GraphError(f"the reductions of size {size} are numbered {sorted(given)}; number them from 0 without a gap")


def _check_uses(operations: Iterable[Operation], output: Sequence[Dim], tops: Iterable[Dim]) -> None:
    used = Counter(tops)
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
        if dim.is_output and (dim.position >= len(output) or output[dim.position] is not dim):
            raise GraphError(f"{dim!r} is used, but it is no axis of this operator's output")
    for dim in output:
        if not used[dim]:
            raise GraphError(f"{dim!r} is used by nothing: lead it to the input, to a weight, or expand it")


def _check_input(axes: Iterable[Dim]) -> None:
    for dim in axes:
        if dim.is_weight_side:
            raise GraphError(f"{dim!r} is a weight's axis; it cannot index the input")
        if dim.discards:
            raise GraphError(
                f"{dim!r} indexes the input through a Stride, which would skip elements: "
                "a Stride must lead to the window of an Unfold (or be expanded), as in a dilated convolution"
            )


def _check_weights(weights: Sequence[Weight], operations: Iterable[Operation]) -> None:
    for number, weight in enumerate(weights, 1):
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
        if operation.primitive is SHARE and operation.parameter not in range(1, len(weights) + 1):
            raise GraphError(f"{operation} belongs to weight {operation.parameter}; the graph has {len(weights)} weights")
