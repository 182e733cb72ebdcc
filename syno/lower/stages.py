"""The orders of contractions in which an operator can be computed, each with the cheapest order of its sums.

Paper: section 6.2 (materialized reduction).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, islice

from syno.algebra import ONE, Expression, Size, Valuation, Valuations, iterator, product
from syno.base.errors import LoweringError
from syno.ir.coordinates import Symbolic, coordinates
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.lower.cut import Cut, Structure

MANY_WEIGHTS, MOST_ORDERS = 6, 200  # 6 weights have 720 orders, 16 weights have 2e13
REDUCTION_LIMIT = 6  # the exact search is exponential in the reductions of one stage; the paper's operators have up to 5

Scheme = tuple[tuple[int, ...], ...]  # groups of numbers of weights, in the order of their contractions


@dataclass(frozen=True)
class Stage:
    """A stage of a plan: multiply the data with `weights`, then sum over `reduces`.

    Attributes:
        weights: numbers of the weights; () for a stage of views and sums only.
        data: the axes of the data tensor before the stage, unordered.
        reduces: the reductions that the stage sums over.
        output: the axes of the stage's result.
    """

    weights: tuple[int, ...]
    data: tuple[Dim, ...]
    reduces: tuple[Dim, ...]
    output: tuple[Dim, ...]

    def flops(self, valuation: Valuation) -> int:
        """Return the multiply-adds; for a stage without weights the additions; 0 if it only moves elements."""
        return 0 if self._only_moves else valuation.integer(self._space) * max(len(self.weights), 1)

    def moved(self, valuation: Valuation) -> int:
        """Return the number of elements that a stage without weights and sums moves; 0 for other stages."""
        return valuation.integer(self._space) if self._only_moves else 0

    @property
    def _only_moves(self) -> bool:
        return not self.weights and not self.reduces

    @property
    def _space(self) -> Size:
        return product(dim.size for dim in (*self.output, *self.reduces))


def orders_of_work(graph: PGraph, valuations: Valuations) -> Iterator[tuple[Stage, ...]]:
    """Yield the stages for each order of contractions. Weights that depend on each other cyclically are contracted together.

    If there are more than `MANY_WEIGHTS` weights, only the first `MOST_ORDERS` orders are tried.
    """
    structure = Structure(graph)
    most = None if len(graph.weights) <= MANY_WEIGHTS else MOST_ORDERS
    single = list(islice(contraction_schemes(structure, largest_group=1), most))
    for scheme in single or islice(contraction_schemes(structure), most):
        yield _stages(structure, scheme, valuations)


def contraction_schemes(structure: Structure, largest_group: int | None = None) -> Iterator[Scheme]:
    """Yield every order of contracting with weights, alone or in groups, in which Shares are computed from top to bottom.

    Args:
        structure: the operator.
        largest_group: yield only orders whose groups have at most so many weights; there are none if more depend on each other
            cyclically. None: any size.

    If a sum needs no weight, orders with an empty first group (a sum before all contractions) are yielded, too.
    """
    graph = structure.graph
    numbers = frozenset(range(1, len(graph.weights) + 1))
    waits = {
        number: frozenset[int]().union(*(structure.weights_above(share.tops[0]) for share in shares)) - {number}
        for number, shares in structure.shares.items()
    }
    early = any(not structure.weights_above(dim) for dim in graph.reduces)
    if largest_group == 1 and not _can_come_one_by_one(waits):
        return  # this test is linear; to enumerate in vain would take exponential time
    for order in _ordered_groups(numbers, frozenset(), waits, largest_group or len(numbers)):
        if order or not early:
            yield order
        if early:
            yield ((), *order)


def fan_in(graph: PGraph) -> dict[int, Size]:
    """Return the fan-in of each weight, for an initialization that keeps the variance: its number of summands.

    A reduction counts for the last weight that is multiplied in above it. The product over all weights is the number of
    summands of one output element, so weights drawn with variance `1 / fan_in` keep the variance of the input, as far as
    the summands are independent. (At borders, where an Unfold reads zeros, there are fewer summands.)
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


def _can_come_one_by_one(waits: Mapping[int, frozenset[int]]) -> bool:
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return False
    return True


def _ordered_groups(
    left: frozenset[int], done: frozenset[int], waits: Mapping[int, frozenset[int]], largest: int
) -> Iterator[Scheme]:
    if not left:
        yield ()
    for count in range(1, min(len(left), largest) + 1):
        for group in combinations(sorted(left), count):
            if all(waits[number] <= done | set(group) for number in group):
                for rest in _ordered_groups(left - set(group), done | set(group), waits, largest):
                    yield (group, *rest)


def _stages(structure: Structure, scheme: Scheme, valuations: Valuations) -> tuple[Stage, ...]:
    graph = structure.graph
    cut = Cut(structure, graph.input)
    done: set[int] = set()
    summed: set[Dim] = set()
    stages: list[Stage] = []
    for group in scheme:
        before = _text_order(graph, cut.dims)
        cut.dims.update(dim for number in group for dim in graph.weights[number - 1])
        done.update(group)
        for number in group:
            for share in structure.shares[number]:
                met_before = share.tops[1] not in cut.dims  # on the way to another of the weight's Shares, below it
                if not met_before and structure.weights_above(share.bottoms[0]) <= done:
                    cut.include(share.bottoms[0])
        ready = [dim for dim in graph.reduces if dim not in summed and structure.weights_above(dim) <= done]
        summed.update(ready)
        stages += _materialize_sums(graph, group, before, cut, ready, valuations)
    if cut.dims != set(graph.output):
        before = _text_order(graph, cut.dims)
        for dim in graph.output:
            cut.include(dim)
        stages.append(Stage((), before, (), graph.output))
    elif not stages:
        stages.append(Stage((), graph.input, (), graph.output))
    return tuple(stages)


@dataclass(frozen=True)
class _Order:
    """An order of the sums of one contraction: its multiply-adds, and each group of sums with the cut after it."""

    work: int
    steps: tuple[tuple[frozenset[Dim], Cut], ...]


def _materialize_sums(
    graph: PGraph, group: tuple[int, ...], before: tuple[Dim, ...], cut: Cut, ready: Sequence[Dim], valuations: Valuations
) -> list[Stage]:
    """Split one contraction and its sums into the stages with the least total work; `cut` is moved below the sums in place.

    Sums over axes of the contraction's result are part of its stage. For the others, a dynamic program over the set of sums
    taken so far is exact, since the cut depends only on that set and not on their order.
    """
    contracted = frozenset(dim for dim in ready if dim in cut.dims)
    others = sorted(frozenset(ready) - contracted, key=lambda dim: graph.labels[dim])
    if len(others) > REDUCTION_LIMIT:
        raise LoweringError(f"{graph!r} sums {len(others)} reductions in one stage; up to {REDUCTION_LIMIT} can be planned")
    if not group and not ready:
        return []
    start = _Order(0, ((frozenset(), cut),))
    best: dict[frozenset[Dim], _Order] = {}
    for count in range(len(others) + 1):
        for chosen in combinations(others, count):
            taken = contracted | frozenset(chosen)
            orders = [_extend_order(start, taken, max(len(group), 1), valuations)] if group or taken else []
            orders += [_extend_order(order, taken - done, 1, valuations) for done, order in best.items() if done < taken]
            possible = [order for order in orders if order is not None]
            if possible:
                best[taken] = min(possible, key=lambda order: order.work)
    data = before
    stages: list[Stage] = []
    for take, after in best[frozenset(ready)].steps[1:]:  # taking all at once is always possible
        output = _text_order(graph, after.dims)
        stages.append(Stage(() if stages else group, data, tuple(dim for dim in graph.reduces if dim in take), output))
        data = output
    cut.dims = set(data)
    return stages


def _extend_order(order: _Order, take: frozenset[Dim], multiplications: int, valuations: Valuations) -> _Order | None:
    """Return the order extended by the sums `take`; None if their cut contains a reduction that is not among them."""
    cut = order.steps[-1][1].copy()
    for dim in sorted(take, key=lambda dim: dim.id):
        cut.include(dim)
    if any(dim.is_reduce and dim not in take for dim in cut.dims):
        return None
    work = valuations.values(product(dim.size for dim in cut.dims)).total * multiplications
    cut.dims -= take
    return _Order(order.work + work, (*order.steps, (take, cut)))


def _text_order(graph: PGraph, dims: set[Dim]) -> tuple[Dim, ...]:
    """Return the dims in the order of the operator's text."""
    rank = {dim: position for position, dim in enumerate(graph.labels)}
    return tuple(sorted(dims, key=rank.__getitem__))


@dataclass(frozen=True)
class Intermediate:
    """An index with a variable of its own in generated code: the coordinate of `dim`, from those of the dims below it."""

    dim: Dim
    operation: Operation
    below: tuple[Expression, ...]


@dataclass(frozen=True)
class Accesses:
    """`result[axes] = sum over reductions of data[...] * weight[...] * ...`, over the labels of axes and reductions.

    A summand is zero if one of the conditions `0 <= index < extent` fails. Expressions may refer to intermediates by name; each
    intermediate refers to earlier ones only.
    """

    data: tuple[Expression, ...]
    weights: tuple[tuple[Expression, ...], ...]
    conditions: tuple[tuple[Expression, Size], ...]
    intermediates: tuple[Intermediate, ...]


def accesses(
    structure: Structure,
    stage: Stage,
    source: Sequence[Dim],
    target: Sequence[Dim],
    is_named: Callable[[Operation], bool] = lambda operation: False,
) -> Accesses:
    """Return the accesses of a stage.

    Args:
        structure: the structure of the stage's operator.
        stage: the stage.
        source: the axes of the data tensor, in its order.
        target: the axes of the result, in its order.
        is_named: returns whether the index of an operation with one dim above it becomes a named intermediate.
    """
    graph = structure.graph
    given = {dim: iterator(graph.labels[dim], dim.size) for dim in (*target, *stage.reduces)}
    weights = [graph.weights[number - 1] for number in stage.weights]
    known = dict.fromkeys([*source, *(dim for weight in weights for dim in weight)])  # a set in a stable order
    wanted = [*known, *_expanded_above(structure, list(given), known)]
    arithmetic = Symbolic()
    intermediates = []
    between = _operations_between(wanted, given)
    for operation in graph.operations:  # from below upwards
        if operation in between and is_named(operation):
            at = coordinates(operation.bottoms, given, arithmetic)
            below = tuple(at[dim] for dim in operation.bottoms)
            (top,) = operation.tops
            given[top] = iterator(graph.labels[top], top.size)
            intermediates.append(Intermediate(top, operation, below))
            own = Symbolic()
            operation.index(own, list(below))
            arithmetic.conditions += [(given[top], extent) for _, extent in own.conditions]
    at = coordinates(wanted, given, arithmetic)
    return Accesses(
        data=tuple(at[dim] for dim in source),
        weights=tuple(tuple(at[dim] for dim in weight) for weight in weights),
        conditions=tuple(dict.fromkeys(arithmetic.conditions)),
        intermediates=tuple(intermediates),
    )


def _expanded_above(structure: Structure, dims: Sequence[Dim], known: Mapping[Dim, None]) -> list[Dim]:
    """Return the expanded dims above `dims`. They index no tensor, but an Unfold below one has a condition all the same."""
    expanded: list[Dim] = []
    for dim in dims:
        if dim not in known:
            tops = structure.above[dim].tops
            expanded += _expanded_above(structure, tops, known) if tops else [dim]
    return list(dict.fromkeys(expanded))


def _operations_between(wanted: Iterable[Dim], known: Mapping[Dim, Expression]) -> set[Operation]:
    found: set[Operation] = set()
    waiting = [dim for dim in wanted if dim not in known]
    while waiting:
        operation = waiting.pop().operation
        if operation is not None and operation not in found:
            found.add(operation)
            waiting += [dim for dim in operation.bottoms if dim not in known]
    return found
