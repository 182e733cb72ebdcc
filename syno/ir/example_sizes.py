"""Sizes at which an operator is looked at where none are given: small, but large enough to tell its windows from whole axes."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm, prod

from syno.algebra import Kind, Variable
from syno.ir.graph import PGraph

LENGTH, CHANNELS = 32, 16  # the least lengths of axes that the output has, too, and of others


def example_values(graph: PGraph, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return a value for each variable of the operator: those given, defaults, and examples for other primaries.

    Examples make all sizes whole numbers. Axes at the same place in the output and in the input get the same length where they
    are variables. Coefficients without a value get none: they decide what is read.
    """
    known = {**graph.variables.defaults, **(given or {})}
    free = [variable for name, variable in graph.variables.items() if name not in known and variable.kind is Kind.PRIMARY]
    factors = dict.fromkeys(free, 1)
    for size in graph.sizes:
        below = prod(known.get(variable.name, 1) ** -exponent for variable, exponent in size.exponents if exponent < 0)
        for variable, exponent in size.exponents:
            if variable in factors and exponent > 0:
                least = next(factor for factor in range(1, below + 1) if factor**exponent % below == 0)
                factors[variable] = lcm(factors[variable], least)
    kept = {variable for one, other in zip(graph.output, graph.input, strict=False) if one.size is other.size
            for variable in one.size.variables}  # fmt: skip
    found: dict[str, int] = {}
    for variable in free:
        factor = lcm(*(factors[one] for one in _alike(graph, variable) if one in factors))
        least = LENGTH if variable in kept else CHANNELS
        found[variable.name] = factor * -(-least // factor)
    return {**known, **found}


def _alike(graph: PGraph, variable: Variable) -> set[Variable]:
    """Return the variables at the places of this one, in the output and in the input, and itself."""
    found = {variable}
    if len(graph.output) == len(graph.input):
        for one, other in zip(graph.output, graph.input, strict=True):
            pair = {*one.size.variables, *other.size.variables}
            if variable in pair and all(len(dim.size.exponents) == 1 and dim.size.exponents[0][1] == 1 for dim in (one, other)):
                found |= pair
    return found
