"""How many summands each weight answers for: the basis of an initialization that keeps the variance."""

from __future__ import annotations

from syno.algebra import ONE, Size
from syno.ir.graph import PGraph
from syno.lower.cut import Structure
from syno.lower.stages import contraction_schemes


def fan_in(graph: PGraph) -> dict[int, Size]:
    """For each weight, the number of summands of the sums that end with it.

    A reduction counts for the last weight that is multiplied in above it. The product over all weights is the number of
    summands of one output element, so weights drawn with variance `1 / fan_in` keep the variance of the input, as far as
    the summands are independent (borders, where an Unfold reads zeros, have fewer).
    """
    structure = Structure(graph)
    order = [number for group in next(iter(contraction_schemes(structure))) for number in group]
    fan = dict.fromkeys(sorted(order), ONE)
    for dim in graph.reduces:
        above = structure.weights_above(dim)
        owner = next((number for number in reversed(order) if number in above), order[-1] if order else None)
        if owner is not None:  # an expanded reduction adds up equal summands: the variance grows with the square
            fan[owner] = fan[owner] * (dim.size**2 if structure.is_expanded(dim) else dim.size)
    return fan
