"""Rewriting of a pGraph into another pGraph of the same operator: normal form, renamed variables, other orders of weights.

The numbers of reductions and the order of a weight's axes are arbitrary, but the id of a pGraph depends on them. In the normal
form they are derived from the rest of the operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations, product

from syno.algebra import ONE, Size, Variable
from syno.base.errors import GraphError, SizeError, suggestion
from syno.ir.dim import Dim, Operation, content_id, output_axis
from syno.ir.graph import PGraph
from syno.ir.primitives import SHARE, Parameter
from syno.ir.structure import Rebuilt, numbered


def renumbered(graph: PGraph) -> PGraph:
    """Return the same operator with its reductions numbered in the order in which they are met below the tensors' axes.

    The axes of the input come first, then those of the weights, then expansions.
    """
    order = _Numbering(graph)
    for dims in (graph.input, *graph.weights):
        order.meet(dims)
    order.meet_sorted(graph.expansions)
    return graph.mapped(Rebuilt(numbered(order.position)))


def normal_form(graph: PGraph) -> PGraph:
    """Return the same operator with the axes of its weights in a fixed order and its reductions numbered to match.

    A weight's axes are ordered: first those that depend on output axes, in their order; then those that depend on reductions
    which also index the input, in the order of the input's axes; then others. A convolution's weight becomes [C_out, C_in, k,
    k]. The order of the weights does not change. If two pGraphs differ only in the numbers of reductions and the order of
    weights' axes, their normal forms have equal ids.
    """
    order = _Numbering(graph)
    order.meet(graph.input)
    weights = [order.meet_sorted(weight) for weight in graph.weights]
    order.meet_sorted(graph.expansions)
    return graph.mapped(Rebuilt(numbered(order.position)), weights=weights)


class _Numbering:
    """Numbers the reductions of a graph in the order in which they are met below its tensors' axes."""

    def __init__(self, graph: PGraph) -> None:
        self.graph = graph
        self.position: dict[Dim, int] = {}
        self.standing: dict[Dim, Counter[Dim]] = {}
        self.above = {dim: operation for operation in graph.operations for dim in operation.bottoms}

    def meet(self, dims: Iterable[Dim]) -> None:
        """Number the reductions below `dims` that have no number yet."""
        for bare in (bare for dim in dims for bare in self._standing_on(dim)):
            if bare.is_reduce:
                self.position.setdefault(bare, len(self.position))

    def meet_sorted(self, dims: Iterable[Dim]) -> tuple[Dim, ...]:
        """Sort `dims` by the structure below them, number the reductions below each in turn, and return the sorted dims."""
        waiting, done = list(dims), []
        while waiting:
            first = self._first(waiting)
            waiting.remove(first)
            self.meet([first])
            done.append(first)
        return tuple(done)

    def _first(self, dims: list[Dim]) -> Dim:
        """Return the first of `dims` by the structure below, then by height, then by color, which is the slowest to compute."""
        if len(dims) == 1:
            return dims[0]
        keys = [(self._place(dim), dim.height) for dim in dims]
        least = min(keys)
        tied = [dim for dim, key in zip(dims, keys, strict=True) if key == least]
        return tied[0] if len(tied) == 1 else min(tied, key=self._colors().__getitem__)

    def _place(self, dim: Dim) -> list[tuple[int, int, bool, int]]:
        """Return a sort key: the output axes and then the reductions on which `dim` depends; unnumbered reductions are last.

        The keys compare like sorted lists in which each entry is repeated for each path from `dim` to it. An entry can have
        2**20 paths, so it is listed once, with its count. Of two lists that begin alike, the one with more of the same entry
        comes before one that continues with a larger entry, and after one that ends.
        """
        places: Counter[tuple[int, int]] = Counter()
        for bare, count in self._standing_on(dim).items():
            place = (1, self.position.get(bare, len(self.position))) if bare.is_reduce else (0, bare.position)
            places[place] += count
        last = max(places, default=None)
        return [(*place, place != last, places[place] if place == last else -places[place]) for place in sorted(places)]

    def _standing_on(self, dim: Dim) -> Counter[Dim]:
        """Return the output axes and reductions below `dim` in the order in which they are met, with their counts."""
        if dim not in self.standing:
            bottoms = () if dim.operation is None else dim.operation.bottoms
            below = Counter[Dim]() if bottoms else Counter([dim])
            for bottom in bottoms:
                below.update(self._standing_on(bottom))
            self.standing[dim] = below
        return self.standing[dim]

    def _colors(self) -> dict[Dim, str]:
        """Return a color for each dim by color refinement: equal for dims with equal surroundings in the graph.

        Each dim starts with a description of itself, which is combined with its neighbours' until no more dims are separated.
        """
        color = {dim: self._own(dim) for dim in self.graph.labels}
        color |= {dim: f"{color[dim]} input {axis}" for axis, dim in enumerate(self.graph.input)}
        known = 0
        while len(set(color.values())) > known:
            known = len(set(color.values()))
            color = {dim: content_id(color[dim], *self._around(dim, color)) for dim in color}
        return color

    def _own(self, dim: Dim) -> str:
        if dim.is_reduce:
            return f"reduction {dim.size} {self.position.get(dim, '')}"
        return dim.id if dim.operation is None else f"{dim.position} of {dim.operation.primitive} {dim.operation.parameter}"

    def _around(self, dim: Dim, color: dict[Dim, str]) -> list[str]:
        below = [color[bottom] for bottom in dim.operation.bottoms] if dim.operation is not None else []
        operation = self.above.get(dim)
        if operation is None:
            return below
        neighbours = [color[other] for other in (*operation.bottoms, *operation.tops)]
        return [*below, f"{operation.bottoms.index(dim)} into {operation.primitive}", *neighbours]


def with_variables(operator: PGraph, names: Mapping[str, str]) -> PGraph:
    """Return the same operator with other names for its variables, as in `{"k": "k_1"}`, so that it fits a spec.

    Raises GraphError if the operator has no such variable, or if two variables would have one name.
    """
    table = operator.variables
    for old in names:
        if old not in table:
            raise GraphError(f'{operator.name} has no variable "{old}"; it has: {", ".join(table)}.{suggestion(old, table)}')
    taken = [names.get(name, name) for name in table]
    if twice := sorted({name for name in taken if taken.count(name) > 1}):
        raise GraphError(f'{operator.name}: two variables would be named "{twice[0]}"; rename the other one, too')
    renamed = {variable: Variable(names.get(name, name), variable.kind) for name, variable in table.items()}

    new = {axis: output_axis(axis.position, renamed_size(axis.size, renamed)) for axis in operator.output}

    def rebuild(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return Operation(operation.primitive, renamed_parameter(operation.parameter, renamed), bottoms).tops

    defaults = {names.get(name, name): value for name, value in table.defaults.items()}
    return replace(operator.mapped(Rebuilt(new, rebuild)), defaults=defaults)


def weight_orders(operator: PGraph) -> Iterator[PGraph]:
    """Yield the operator with its weights numbered in every order, its own order first."""
    for order in permutations(range(len(operator.weights))):
        yield (
            operator
            if list(order) == sorted(order)
            else _renumbered(operator, {old + 1: new + 1 for new, old in enumerate(order)})
        )


def _renumbered(operator: PGraph, number: dict[int, int]) -> PGraph:
    def rebuild(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
        parameter = operation.parameter
        if operation.primitive is SHARE and isinstance(parameter, int):
            parameter = number[parameter]
        return Operation(operation.primitive, parameter, bottoms).tops

    weights = [operator.weights[old - 1] for old in sorted(number, key=number.__getitem__)]
    return operator.mapped(Rebuilt({}, rebuild), weights=weights)


def renamed_size(size: Size, names: Mapping[Variable, Variable]) -> Size:
    """Return a size with its variables renamed."""
    return Size({names.get(variable, variable): exponent for variable, exponent in size.exponents})


def renamed_parameter(parameter: Parameter, names: Mapping[Variable, Variable]) -> Parameter:
    """Return the parameter of an operation with its variables renamed."""
    if isinstance(parameter, Size):
        return renamed_size(parameter, names)
    return (renamed_size(parameter[0], names), parameter[1]) if isinstance(parameter, tuple) else parameter


# Variables of the positions of a convolution, by the number of their axes. Square pictures have a height along both.
NAMES_OF_AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
HEIGHT, WIDTH = NAMES_OF_AXES[2]
WIDTH_AXIS = 3
MOST_PLACES = 8  # occurrences of a size that is split into two: all 2**8 assignments are tried


def with_own_size(operator: PGraph, axis: int, name: str) -> PGraph:
    """Return the operator in which axis `axis` of input and output has a size of its own: the variable `name`.

    An operator of [N, C_in, H, H] then takes [N, C_in, H, W]. Weights keep their sizes, unless they have an element for each
    position: in reductions and blocks with the old variable, it is replaced if the operator is valid only with the new one.

    Raises GraphError if there is no such operator, such as for one that exchanges the axes or mixes positions along both.
    """
    if axis >= min(len(operator.output), len(operator.input)):
        raise GraphError(f"{operator.name} has no axis {axis} in both its input and its output")
    old = operator.output[axis].size
    variable = next(iter(old.variables), None)
    if variable is None or old != operator.input[axis].size or len(old.exponents) > 1:
        raise GraphError(f"{operator.name} has no axis {axis} of one variable in both its input and its output")
    renamed = {variable: Variable(name, variable.kind)}
    places = [one for one in (*operator.operations, *_loops(operator)) if variable in _parameter_size(one).variables]
    if len(places) > MOST_PLACES or name in operator.variables:
        raise GraphError(
            f"{operator.name} depends on {variable.name} in {len(places)} places, or has a variable {name} already"
        )
    output = {one: output_axis(one.position, renamed_size(one.size, renamed) if n == axis else one.size)
              for n, one in enumerate(operator.output)}  # fmt: skip
    wanted = [renamed_size(one.size, renamed) if n == axis else one.size for n, one in enumerate(operator.input)]
    for chosen in product((False, True), repeat=len(places)):
        changed = {one for one, is_changed in zip(places, chosen, strict=True) if is_changed}

        def rebuild(operation: Operation, bottoms: tuple[Dim, ...], changed: set[Operation] = changed) -> tuple[Dim, ...]:
            parameter = operation.parameter
            if operation in changed:
                parameter = renamed_parameter(parameter, renamed)
            return Operation(operation.primitive, parameter, bottoms).tops

        try:
            found = operator.mapped(Rebuilt(output, rebuild))
        except (GraphError, SizeError):
            continue
        if [one.size for one in found.input] == wanted:
            return found
    raise GraphError(f"{operator.name} needs axes of equal size: it exchanges them, or mixes positions along both")


def for_wide_pictures(operator: PGraph) -> PGraph:
    """Return an operator for square pictures [N, C, H, H] as an operator for pictures [N, C, H, W]; see `with_own_size`."""
    return operator if WIDTH in operator.variables else with_own_size(operator, WIDTH_AXIS, WIDTH)


def for_sizes(operator: PGraph, values: Mapping[str, int] | None) -> PGraph:
    """Return the operator for these sizes: for pictures [N, C, H, W] if a width is among them, else unchanged.

    Raises GraphError if there is a width, and the operator needs square pictures.
    """
    return for_wide_pictures(operator) if WIDTH in (values or {}) else operator


def _loops(operator: PGraph) -> Iterator[Operation]:
    for loop in operator.reduces:
        assert loop.operation is not None
        yield loop.operation


def _parameter_size(operation: Operation) -> Size:
    """Return the size that is the parameter of an operation; 1 if its parameter is no size."""
    parameter = operation.parameter
    size = parameter[0] if isinstance(parameter, tuple) else parameter
    return size if isinstance(size, Size) else ONE
