"""Writing operators by hand, from the output up.

>>> build = Builder("N, C_in, C_out, H; k=3", name="conv2d")
>>> n, o, y, x = build.output("N, C_out, H, H")
>>> c, i, j = build.reduce("C_in, k, k")
>>> c, i, j = build.contract(outer=[o], inner=[c, i, j])
>>> conv2d = build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps

from syno.algebra import Size, VariableTable
from syno.base.errors import GraphError
from syno.base.registry import Registry
from syno.ir import dim as dims
from syno.ir.dim import Dim
from syno.ir.graph import PGraph

KnownOperator = Callable[[], PGraph]
OPERATORS: Registry[KnownOperator] = Registry("operator")  # filled by the modules of `syno.ir.library`


class Builder:
    """Builds an operator from the output up. Sizes are given as text, such as "C_in" or "k".

    >>> import syno
    >>> build = syno.Builder("N, C_in, C_out", name="linear")
    >>> n, o = build.output("N, C_out")
    >>> c, = build.contract(outer=[o], inner=build.reduce("C_in"))  # multiply with a weight [C_out, C_in], and sum over C_in
    >>> print(syno.expression(build.finish([n, c])))
    y[i0, i1] = sum(r0) x[i0, r0] * w1[i1, r0]

    Args:
        variables: the variables, as `"primaries; coefficients"`, each with an optional default value.
        name: the operator's name.
    """

    def __init__(self, variables: str, name: str = "operator") -> None:
        self.table = VariableTable.parse(variables)
        self.name = name
        self._output: tuple[Dim, ...] = ()
        self._weights: list[list[Dim]] = []
        self._expansions: list[Dim] = []
        self._reduces: Counter[Size] = Counter()

    def output(self, shape: str) -> tuple[Dim, ...]:
        """Return the axes of an output of this shape, such as `"N, C_out, H, H"`. Call it once."""
        if self._output:
            raise GraphError("the output's shape is given once")
        self._output = tuple(dims.output_axis(index, size) for index, size in enumerate(self.table.sizes(shape)))
        return self._output

    def reduce(self, domains: str) -> tuple[Dim, ...]:
        """Return a reduction loop for each size in `domains`, such as "C_in, k, k"."""
        loops = []
        for size in self.table.sizes(domains):
            loops.append(dims.reduce(size, self._reduces[size]))
            self._reduces[size] += 1
        return tuple(loops)

    def weight(self) -> int:
        """Add a weight to the operator, and return its number, for `share`."""
        self._weights.append([])
        return len(self._weights)

    def share(self, dim: Dim, weight: int) -> Dim:
        """Multiply with `weight`, whose next axis is read at `dim`. Return the data side of the Share."""
        if not 1 <= weight <= len(self._weights):
            raise GraphError(f"there is no weight {weight}; make one with weight()")
        data, axis = dims.share(dim, weight)
        self._weights[weight - 1].append(axis)
        return data

    def contract(self, axes: Sequence[Dim] = (), *, outer: Sequence[Dim] = (), inner: Sequence[Dim] = ()) -> tuple[Dim, ...]:
        """Multiply with a new weight, and return the data sides of the inner dims, in the order of the weight's axes.

        Args:
            axes: the dims that index the weight, in the order of its axes; by default `[*outer, *inner]`.
            outer: dims that index the weight only, such as the output channels of a convolution; their data sides are expanded.
            inner: dims that index both the weight and the data, such as the channels that a convolution sums over. Not needed
                if `axes` is given.
        """
        weight = self.weight()
        data = {dim: self.share(dim, weight) for dim in axes or (*outer, *inner)}
        for dim in outer:
            self.expand(data.pop(dim))
        return tuple(data.values())

    def expand(self, dim: Dim) -> None:
        """Expand `dim`: no tensor above is indexed by it."""
        self._expansions.append(dim)

    split, shift, unfold = staticmethod(dims.split), staticmethod(dims.shift), staticmethod(dims.unfold)

    def merge(self, whole: Dim, block: str) -> tuple[Dim, Dim]:
        """Return the axes that are read at `whole // block` and `whole % block`."""
        return dims.merge(whole, self.table.size(block))

    def stride(self, dim: Dim, factor: str) -> Dim:
        """Return the axis that is read at `factor * dim`."""
        return dims.stride(dim, self.table.size(factor))

    def finish(self, input: Sequence[Dim]) -> PGraph:  # noqa: A002  # the language's own word
        """Return the operator whose input tensor has these axes.

        Raises GraphError, which says which rule of the language is broken.
        """
        weights = tuple(tuple(weight) for weight in self._weights)
        return PGraph(self._output, tuple(input), weights, tuple(self._expansions), self.name, self.table.defaults)


def known_operator(variables: str) -> Callable[[Callable[[Builder], PGraph]], KnownOperator]:
    """Register the decorated function in `OPERATORS` by its name.

    It gets a builder with these variables, and returns the operator.
    """

    def enter(function: Callable[[Builder], PGraph]) -> KnownOperator:
        @wraps(function)
        def operator() -> PGraph:
            return function(Builder(variables, function.__name__))

        return OPERATORS.register(function.__name__)(operator)

    return enter
