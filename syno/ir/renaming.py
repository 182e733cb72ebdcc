"""Other names for an operator's variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from syno.algebra import Size, Variable
from syno.base.errors import GraphError, suggestion
from syno.ir.dim import Dim, Operation, Rebuilt, output_axis
from syno.ir.graph import PGraph


def with_variables(operator: PGraph, names: Mapping[str, str]) -> PGraph:
    """The same operator with other names for its variables, as in `{"k": "k_1"}`: what a spec must find in it.

    Raises GraphError if it has no such variable, or two would have one name.
    """
    table = operator.variables
    for old in names:
        if old not in table:
            raise GraphError(f'{operator.name} has no variable "{old}"; it has: {", ".join(table)}.{suggestion(old, table)}')
    taken = [names.get(name, name) for name in table]
    if twice := sorted({name for name in taken if taken.count(name) > 1}):
        raise GraphError(f'{operator.name}: two variables would be named "{twice[0]}"; rename the other one, too')
    renamed = {variable: Variable(names.get(name, name), variable.kind) for name, variable in table.items()}

    def size_of(size: Size) -> Size:
        return Size({renamed[variable]: exponent for variable, exponent in size.exponents})

    new = {axis: output_axis(axis.position, size_of(axis.size)) for axis in operator.output}

    def rebuild(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
        parameter = operation.parameter
        if isinstance(parameter, Size):
            parameter = size_of(parameter)
        elif isinstance(parameter, tuple):
            parameter = (size_of(parameter[0]), parameter[1])
        return Operation(operation.primitive, parameter, bottoms).tops

    defaults = {names.get(name, name): value for name, value in table.defaults.items()}
    return replace(operator.mapped(Rebuilt(new, rebuild)), defaults=defaults)
