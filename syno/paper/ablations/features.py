"""The patterns that occur in an operator: primitives, connected pieces of its graph, what it reads, how its weights are used.

>>> import syno
>>> found = patterns(syno.OPERATORS["operator_1"]())
>>> [name for family, name in sorted(found) if family == "structure"]
['low-rank: two weights share a sum that one of them ends', 'one window indexes two weights']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import combinations, permutations
from typing import NamedTuple

from syno.base.errors import LoweringError, SizeError, ValuationError
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, SHARE, UNFOLD
from syno.ir.read_pattern import read_pattern
from syno.ir.reading import Border, readings

FAMILIES = ("primitive", "count", "pair", "triple", "reads", "structure")
LOW_RANK = "low-rank: two weights share a sum that one of them ends"
SHARED_WINDOW = "one window indexes two weights"
UNWEIGHTED = "a sum that no weight multiplies"
Pattern = tuple[str, str]  # family and name


class _Edge(NamedTuple):
    """One operation on another: their places, and where they touch, in words."""

    upper: int
    lower: int
    touch: str


def patterns(operator: PGraph) -> frozenset[Pattern]:
    """Return the patterns of an operator, each with its family.

    primitive   a primitive that occurs; a Share is an axis of a weight, an Expand on a Share is an axis that a weight ends
    count       how often each occurs, and the number of weights
    pair        two operations, one on the other, such as `Unfold(window) on Share`
    triple      three connected operations, up to isomorphism
    reads       at how many positions along the axes of the input it reads, whether it shifts or exchanges axes
    structure   how weights and sums belong together
    """
    operations = [*operator.operations, *(dim.operation for dim in operator.reduces if dim.operation is not None)]
    counts = Counter(operation.primitive.name for operation in operations)
    found: set[Pattern] = {("primitive", name) for name in counts}
    found |= {("count", f"{number} x {name}") for name, number in counts.items() if name not in (SHARE.name, EXPAND.name)}
    found.add(("count", f"{len(operator.weights)} weight{'' if len(operator.weights) == 1 else 's'}"))
    edges = _edges(operations)
    names = [operation.primitive.name for operation in operations]
    found |= {("pair", _shape(names, [edge])) for edge in edges}
    found |= {("triple", _shape(names, piece)) for piece in _triples(edges)}
    found |= {("reads", text) for text in _reads(operator)}
    found |= {("structure", text) for text in _structure(operator)}
    return frozenset(found)


# ---- pieces of the graph ---------------------------------------------------------------------------------------------


def _edges(operations: list[Operation]) -> list[_Edge]:
    place = {operation: number for number, operation in enumerate(operations)}
    found = []
    for operation, upper in place.items():
        bottoms, names = operation.bottoms, operation.primitive.bottoms
        for name, dim in zip(names, bottoms, strict=True):
            if dim.operation is not None:
                tops = dim.operation.primitive.tops
                at = f"({name})" if len(names) > 1 else ""
                end = f".{tops[dim.position]}" if len(tops) > 1 and dim.operation.primitive is not SHARE else ""
                found.append(_Edge(upper, place[dim.operation], f"{at} on {{}}{end}"))
    return found


def _triples(edges: list[_Edge]) -> Iterator[list[_Edge]]:
    """Yield the edges among every three operations that are connected."""
    seen: set[frozenset[int]] = set()
    for one, other in combinations(edges, 2):
        nodes = frozenset((one.upper, one.lower, other.upper, other.lower))
        if len(nodes) == 3 and nodes not in seen:
            seen.add(nodes)
            yield [edge for edge in edges if edge.upper in nodes and edge.lower in nodes]


def _shape(names: Mapping[int, str] | list[str], edges: list[_Edge]) -> str:
    """Return a text that is the same for isomorphic pieces: the least over all numberings of equal primitives."""
    nodes = sorted({node for edge in edges for node in (edge.upper, edge.lower)})
    several = {name for name, number in Counter(names[node] for node in nodes).items() if number > 1}
    texts = []
    for order in permutations(nodes):
        labels: dict[int, str] = {}
        numbers: Counter[str] = Counter()
        for node in order:
            numbers[names[node]] += 1
            labels[node] = f"{names[node]}{numbers[names[node]]}" if names[node] in several else names[node]
        texts.append("; ".join(sorted(f"{labels[edge.upper]}{edge.touch.format(labels[edge.lower])}" for edge in edges)))
    return min(texts)


# ---- what is read, and weights ---------------------------------------------------------------------------------------


def _reads(operator: PGraph) -> Iterator[str]:
    with suppress(ValuationError, SizeError, LoweringError):  # windows without a size
        pattern = read_pattern(operator)
        yield f"reads {pattern.shape}"
        if pattern.is_transposed:
            yield "exchanges axes"
    if any(step.border is Border.AROUND for one in readings(operator) for step in one.steps):
        yield "shifts around the border"


def _structure(operator: PGraph) -> Iterator[str]:
    if any(len(_weights_below(dim)) > 1 and _bottom(dim).is_reduce for dim in operator.expansions):
        yield LOW_RANK
    windows = (operation.bottoms[1] for operation in operator.operations if operation.primitive is UNFOLD)
    if any(len(_weights_below(dim)) > 1 for dim in windows):
        yield SHARED_WINDOW
    shared = {_bottom(dim) for weight in operator.weights for dim in weight}
    if any(dim not in shared and not _is_weighted_above(dim, operator) for dim in operator.reduces):
        yield UNWEIGHTED


def _weights_below(dim: Dim) -> set[object]:
    """Return the weights of the Shares right below a dim."""
    found: set[object] = set()
    while dim.operation is not None and dim.operation.primitive is SHARE:
        found.add(dim.operation.parameter)
        dim = dim.operation.bottoms[0]
    return found


def _bottom(dim: Dim) -> Dim:
    """Return the dim below the Shares right below a dim."""
    while dim.operation is not None and dim.operation.primitive is SHARE:
        dim = dim.operation.bottoms[0]
    return dim


def _is_weighted_above(loop: Dim, operator: PGraph) -> bool:
    """Return whether a weight multiplies an axis that is made of the loop."""
    above = {loop}
    for operation in operator.operations:
        if above.intersection(operation.bottoms):
            if operation.primitive is SHARE:
                return True
            above.update(operation.tops)
    return False
