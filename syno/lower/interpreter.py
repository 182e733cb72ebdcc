"""The interpreter, which defines the meaning of an operator: NumPy evaluates its index map literally.

For every output position and every iteration of the reductions it computes, by Table 1, the positions of the input and of each
weight that are read, multiplies these elements, and adds up the products. A summand is zero if an Unfold reads beyond a border.
Nothing is simplified, reordered or fused here; the code of every generator must agree with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from syno.algebra import Valuation
from syno.base.errors import ShapeError
from syno.ir.coordinates import Array, Indices, coordinates
from syno.ir.dim import Dim
from syno.ir.graph import PGraph

CHUNK_ELEMENTS = 4_000_000  # outer loops run in Python until the arrays over the inner loops are at most this large


def shapes(graph: PGraph, valuation: Valuation) -> tuple[tuple[int, ...], list[tuple[int, ...]], tuple[int, ...]]:
    """Return the shapes of the input, of each weight, and of the output."""

    def shape(dims: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(valuation.integer(dim.size) for dim in dims)

    return shape(graph.input), [shape(weight) for weight in graph.weights], shape(graph.output)


def interpret(graph: PGraph, values: Mapping[str, int], input: Array, *weights: Array) -> Array:  # noqa: A002
    """Return the operator's output.

    >>> import numpy as np, syno
    >>> x, w1 = np.arange(6.0).reshape(2, 3), np.ones((3, 1))
    >>> syno.interpret(syno.OPERATORS["matmul"](), {"M": 2, "K": 3, "N": 1}, x, w1)
    array([[ 3.],
           [12.]])

    Args:
        graph: the operator.
        values: a value for each of its variables that has no default.
        input: the input tensor, of `shapes(...)[0]`.
        weights: the weight tensors, of `shapes(...)[1]`.

    Returns:
        The output, of `shapes(...)[2]`, in the common dtype of input and weights.

    Raises:
        ShapeError: a tensor is missing, left over, or of another shape.
        SizeError: a size that does not divide. ValuationError: a variable without a value.
    """
    valuation = graph.valuation(values)
    input_shape, weight_shapes, output_shape = shapes(graph, valuation)
    _check_shapes(graph, [input, *weights], [input_shape, *weight_shapes])
    loops = (*graph.output, *graph.reduces)
    extents = [valuation.integer(dim.size) for dim in loops]
    single = _loops_taken_singly(extents)
    output = np.zeros(output_shape, dtype=np.result_type(input, *weights))
    for position in itertools.product(*(range(extent) for extent in extents[:single])):
        given: dict[Dim, Array] = {}
        for axis, dim in enumerate(loops):
            values_of_loop = np.array([position[axis]]) if axis < single else np.arange(extents[axis])
            given[dim] = values_of_loop.reshape([-1 if other == axis else 1 for other in range(len(loops))])
        indices = Indices(valuation)
        at = coordinates(graph.tops, given, indices)
        term = input[tuple(at[dim] for dim in graph.input)] * indices.inside
        for weight, dims in zip(weights, graph.weights, strict=True):
            term = term * weight[tuple(at[dim] for dim in dims)]
        rank = len(graph.output)
        full = (*(1 if axis < single else extent for axis, extent in enumerate(extents)),)
        summed = np.broadcast_to(term, full).sum(axis=tuple(range(rank, len(loops))))
        output[tuple(slice(p, p + 1) for p in position[:rank])] += summed
    return output


def interpret_at(
    graph: PGraph,
    values: Mapping[str, int],
    positions: Array,
    input: Array,  # noqa: A002
    *weights: Array,
    takes_maximum: bool = False,
) -> Array:
    """Return some elements of the operator's output, as `interpret` computes them.

    Args:
        graph, values, input, weights: as in `interpret`.
        positions: positions in the output, of shape [elements, axes of the output].
        takes_maximum: whether an element is the maximum of zero and its summands, instead of their sum.

    Returns:
        The elements, of shape [elements].
    """
    valuation = graph.valuation(values)
    loops = [valuation.integer(dim.size) for dim in graph.reduces]
    given: dict[Dim, Array] = {
        dim: positions[:, axis].reshape([-1] + [1] * len(loops)) for axis, dim in enumerate(graph.output)
    }
    for number, dim in enumerate(graph.reduces):
        given[dim] = np.arange(loops[number]).reshape([-1 if at == number + 1 else 1 for at in range(len(loops) + 1)])
    indices = Indices(valuation)
    at = coordinates(graph.tops, given, indices)
    term = input[tuple(at[dim] for dim in graph.input)] * indices.inside
    for weight, dims in zip(weights, graph.weights, strict=True):
        term = term * weight[tuple(at[dim] for dim in dims)]
    summands, axes = np.broadcast_to(term, (len(positions), *loops)), tuple(range(1, len(loops) + 1))
    found: Array = summands.max(axis=axes, initial=0) if takes_maximum else summands.sum(axis=axes)
    return found


def _loops_taken_singly(extents: Sequence[int]) -> int:
    single = 0
    while single < len(extents) and np.prod(extents[single:], dtype=np.int64) > CHUNK_ELEMENTS:
        single += 1
    return single


def _check_shapes(graph: PGraph, tensors: Sequence[Array], expected: Sequence[tuple[int, ...]]) -> None:
    if len(tensors) != len(expected):
        raise ShapeError(f"{graph!r} takes an input and {len(expected) - 1} weights; given: {len(tensors)} tensors")
    names = ["the input", *(f"weight w{number}" for number in range(1, len(expected)))]
    for name, tensor, shape in zip(names, tensors, expected, strict=True):
        if tensor.shape != shape:
            raise ShapeError(f"{name} has shape {list(tensor.shape)}; {graph!r} with these sizes takes {list(shape)}")
