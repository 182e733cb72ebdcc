"""Operators of square pictures as operators of pictures with a height and a width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from syno.algebra import ONE, Size, Variable
from syno.base.errors import GraphError, SizeError
from syno.ir.dim import Dim, Operation, output_axis
from syno.ir.graph import PGraph
from syno.ir.rewriting import renamed_parameter, renamed_size
from syno.ir.structure import Rebuilt

WIDTH_AXIS, WIDTH = 3, "W"  # of pictures that are not square
MOST_PLACES = 8  # where an operator may depend on a size that becomes two


def with_own_size(operator: PGraph, axis: int, name: str) -> PGraph:
    """Return the operator for tensors whose axis `axis`, of input and output, has a size of its own: the variable `name`.

    An operator of [N, C_in, H, H] then takes [N, C_in, H, W]. Its weights keep their sizes, unless they have an element for
    each position: reductions and blocks whose sizes contain the old variable get the one with which the operator fits.

    Raises GraphError if there is no such operator: it exchanges axes, say, or mixes positions along both.
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
    """Return the operator for pictures [N, C, H, W], where it is of squares; see `with_own_size`."""
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
    """Return the size in the parameter of an operation; 1 if there is none."""
    parameter = operation.parameter
    size = parameter[0] if isinstance(parameter, tuple) else parameter
    return size if isinstance(size, Size) else ONE
