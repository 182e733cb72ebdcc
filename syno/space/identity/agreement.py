"""Operators as sums: the elements that each summand reads, and the share of summands in which two operators agree.

Approximate canonicalization rules replace an operator by one that reads nearly the same elements. "Nearly" is measured as the
share of summands in which both read the same elements. Fingerprints hash the same summands.

Paper: section 5.3 (approximate equivalences).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syno.algebra import Size, Valuation
from syno.base.errors import GraphError
from syno.ir.coordinates import coordinates
from syno.ir.dim import Dim
from syno.ir.graph import PGraph


class Distinct:
    """A collection of operators with pairwise different fingerprints, in the order of their addition.

    Fingerprints are computed only for operators with equal glances, which are cheaper: few of the operators that walks reach.

    Args:
        glance: returns a text that is equal for operators with equal fingerprints.
        fingerprint: returns a text that is equal for operators that compute the same.
        operators: the initial content.
    """

    def __init__(
        self, glance: Callable[[PGraph], str], fingerprint: Callable[[PGraph], str], operators: Iterable[PGraph] = ()
    ) -> None:
        self._glance, self._fingerprint = glance, fingerprint
        self._operators: list[PGraph] = []
        self._alike: dict[str, PGraph | set[str]] = {}  # by glance: the only operator, or the fingerprints of several
        for operator in operators:
            self.add(operator)

    def add(self, operator: PGraph) -> bool:
        """Add an operator unless an equal one is in the collection. Return whether it was added."""
        name = self._glance(operator)
        known = self._alike.get(name)
        if known is None:
            self._alike[name] = operator
        else:
            if not isinstance(known, set):
                known = self._alike[name] = {self._fingerprint(known)}
            own = self._fingerprint(operator)
            if own in known:
                return False
            known.add(own)
        self._operators.append(operator)
        return True

    def __len__(self) -> int:
        return len(self._operators)

    def __iter__(self) -> Iterator[PGraph]:
        return iter(self._operators)


Array = NDArray[Any]


def agreement(first: PGraph, second: PGraph, values: Mapping[str, int] | None = None) -> float:
    """Return the share of summands, in [0, 1], in which two operators read the same elements.

    A summand is a position of all output axes and reductions, which are the same dims in both. The operators agree in a summand
    if both read the same element of the input and of every weight (the same index along every axis), or if it is zero in both,
    because both read beyond a border. If it is zero in only one of them, they differ.

    Args:
        first: an operator.
        second: an operator with the same output axes, reductions, and shapes of input and weights.
        values: a value for each variable that has no default.

    Raises:
        GraphError: their loops or shapes differ.
        SizeError: a size is no whole number.
        ValuationError: a variable lacks a value.

    Paper: section 5.3 (an Unfold below a Merge is nearly one above it); the count is exact.
    """
    _check_comparable(first, second)
    valuation = Valuation({**second.defaults, **first.defaults, **(values or {})})
    for size in (*first.sizes, *second.sizes):
        valuation.integer(size)
    own, other = Summands.of(first, valuation), Summands.of(second, valuation)
    inside = [*own.inside, *other.inside]
    same = [own.at[a] == other.at[b] for a, b in zip(_tensor_axes(first), _tensor_axes(second), strict=True)]
    both = own.count(inside)
    agreed = own.count([*inside, *same])
    neither = prod(own.extents) - own.count(own.inside) - other.count(other.inside) + both
    return (agreed + neither) / prod(own.extents)


def _tensor_axes(graph: PGraph) -> list[Dim]:
    return [dim for dims in (graph.input, *graph.weights) for dim in dims]


def _check_comparable(first: PGraph, second: PGraph) -> None:
    for loops, dims, others in (
        ("output axes", first.output, second.output),
        ("reductions", first.reduces, second.reduces),
    ):
        if dims != others:
            raise GraphError(f"the {loops} of {first!r} are {dims}, those of {second!r} are {others}; they must be the same")
    shapes = [[[dim.size for dim in dims] for dims in (graph.input, *graph.weights)] for graph in (first, second)]
    if shapes[0] != shapes[1]:
        raise GraphError(f"{first!r} and {second!r} read tensors of different shapes; input and weights must be alike")


@dataclass(frozen=True)
class Summands:
    """The index map at one valuation: one summand for each position of all loops (output axes, then reductions).

    Every array has one axis for each loop, of length 1 if it does not depend on that loop.

    Attributes:
        valuation: the values of the variables.
        extents: the lengths of the loops.
        at: the coordinates of each dim, as an integer array.
        inside: a boolean array for each Unfold whose guard can fail. A summand is non-zero where all guards hold.
    """

    valuation: Valuation
    extents: tuple[int, ...]
    at: Mapping[Dim, Array]
    inside: tuple[Array, ...]

    @classmethod
    def of(cls, graph: PGraph, valuation: Valuation) -> Summands:
        """Return the summands of `graph`.

        Raises:
            SizeError: a size is no whole number.
            ValuationError: a variable lacks a value.
        """
        loops = (*graph.output, *graph.reduces)
        extents = tuple(valuation.integer(dim.size) for dim in loops)
        ranges = {
            dim: np.arange(extents[axis]).reshape([-1 if other == axis else 1 for other in range(len(loops))])
            for axis, dim in enumerate(loops)
        }
        indices = _Indices(valuation)
        at = coordinates(graph.tops, ranges, indices)
        return cls(valuation, extents, at, tuple(indices.inside))

    def count(self, conditions: Iterable[Array]) -> int:
        """Return the number of summands in which all `conditions` hold; these are boolean arrays over the loops."""
        factors = [np.ones([1] * len(self.extents), np.int64), *(condition.astype(np.int64) for condition in conditions)]
        return int(summed(factors, dict(enumerate(self.extents))).item())


class _Indices:
    """Computes coordinates as integer arrays.

    Each guard is stored separately, as an array over the loops that it depends on.
    """

    def __init__(self, valuation: Valuation) -> None:
        self.valuation = valuation
        self.inside: list[Array] = []

    def size(self, size: Size) -> int:
        return self.valuation.integer(size)

    def half(self, size: Size) -> int:
        return self.valuation.integer(size) // 2

    def guard(self, index: Array, extent: Size) -> Array:
        last = self.valuation.integer(extent) - 1
        inside = (index >= 0) & (index <= last)
        if not inside.all():
            self.inside.append(inside)
        return np.minimum(np.maximum(index, 0), last)  # a legal address; the summand does not count


def summed(factors: Iterable[Array], over: Mapping[int, int]) -> Array:
    """Return the product of `factors`, at least one array, summed over some axes, which keep length 1.

    All factors have the same number of axes, each of length 1 or of the axis's extent. `over` maps the axes to sum over to
    their extents; an axis that no factor depends on multiplies the result by its extent.

    Source: variable elimination, as in Dechter 1999, Bucket elimination: a unifying framework for reasoning.
    """
    return reduce(np.multiply, eliminated(factors, over))


def eliminated(factors: Iterable[Array], over: Mapping[int, int]) -> list[Array]:
    """Return factors whose product is the result of `summed`, without computing the product over all axes.

    Contraction paths of numpy.einsum (those of opt_einsum) serve worse here: they multiply factors in pairs and store each
    product, and fingerprints then take a third longer.
    """
    left = list(factors)
    for axis in _order(tuple(factor.shape for factor in left), tuple(sorted(over))):
        bucket = [factor for factor in left if factor.shape[axis] > 1]
        if bucket:
            left = [factor for factor in left if factor.shape[axis] == 1]
            left.append(_sum_product(bucket, axis))
        elif over[axis] > 1:
            left[0] = left[0] * left[0].dtype.type(over[axis])
    return left


def _sum_product(bucket: list[Array], axis: int) -> Array:
    """Return the product of the factors in `bucket`, summed over an axis.

    The largest factor is multiplied while summing, to save memory.
    """
    *others, largest = sorted(bucket, key=np.size)
    axes = list(range(largest.ndim))
    left = [other for other in axes if other != axis]
    read = (reduce(np.multiply, others), axes, largest, axes) if others else (largest, axes)
    summed_product: Array = np.einsum(*read, left)
    return np.expand_dims(summed_product, axis)


@lru_cache(maxsize=4096)
def _order(shapes: tuple[tuple[int, ...], ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order in which axes are eliminated: greedily, the axis whose factors have the smallest product first."""
    left, waiting, order = list(shapes), list(axes), list[int]()

    def joined(axis: int) -> tuple[int, ...]:
        return tuple(map(max, zip(*(shape for shape in left if shape[axis] > 1), strict=True)))

    while waiting:
        axis = min(waiting, key=lambda axis: prod(joined(axis)))
        waiting.remove(axis)
        order.append(axis)
        if joint := joined(axis):
            left = [shape for shape in left if shape[axis] == 1]
            left.append((*joint[:axis], 1, *joint[axis + 1 :]))
    return tuple(order)
