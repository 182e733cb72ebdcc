"""Loop nests: each stage of a plan at given sizes as a nest of loops whose index maps are sums of tables.

A nest computes, for each iteration of its output loops,

    target[output loops] = sum over the summed loops of source[...] * factor[...]

The position that is read along an axis of the source is a sum of terms, each a table over few loops. Nearly every index of an
operator has one loop in each term: windows, splits, and merged axes, whose loops are split in two here. An irregular index,
such as a window of a rotated axis, is one table over all its loops.

Zero padding: an axis of a source has a halo of positions before and after its own, which hold zeros, so that no loop tests a
border. Cyclic reads, as of a Shift by an amount that depends on a loop, are one table over several loops; or a sum of tables,
if the halo holds the elements at the opposite border (`wrapped`).

The tables come from the interpreter's own evaluation of the index map (`syno.ir.coordinates`): they are right by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from syno.algebra import Size, Valuation
from syno.base.errors import LoweringError
from syno.ir.coordinates import Array, coordinates
from syno.ir.dim import Dim
from syno.ir.primitives import EXPAND, UNFOLD, Primitive
from syno.lower.cut import Structure
from syno.lower.plan import Plan
from syno.lower.stages import Stage

MOST_ENTRIES = 1 << 22  # of a table over several loops; a larger table would not fit into a cache


@dataclass(frozen=True)
class Loop:
    """A loop of a nest, over 0 ... extent - 1."""

    name: str
    extent: int
    is_summed: bool


@dataclass(frozen=True, eq=False)
class Term:
    """A term of an index: a table over some loops of a nest, given by their numbers."""

    loops: tuple[int, ...]
    table: Array

    @property
    def step(self) -> int | None:
        """The step s if the table is over one loop and its entries are 0, s, 2*s, ...; else None."""
        if len(self.loops) != 1:
            return None
        steps = np.diff(self.table)
        if self.table[0] != 0 or (steps.size and (steps != steps[0]).any()):
            return None
        return int(steps[0]) if steps.size else 0


@dataclass(frozen=True, eq=False)
class Axis:
    """An axis of the tensor that a nest reads.

    Attributes:
        extent: the number of its positions.
        before, after: the number of halo positions ahead of and behind these.
        index: the terms whose sum is the position that is read; 0 is the first position that is no halo.
        wraps: whether the halo is cyclic (the element at the position modulo the extent); else it holds zeros.
    """

    extent: int
    before: int
    after: int
    index: tuple[Term, ...]
    wraps: bool = False

    @property
    def stored(self) -> int:
        """The number of stored positions along the axis, including the halo."""
        return self.before + self.extent + self.after


@dataclass(frozen=True, eq=False)
class Factor:
    """The factor of a nest: the product of the stage's weights, and 0 for reads beyond a border that no halo covers.

    Attributes:
        loops: the numbers of the loops on which it depends.
        weights: for each weight, its number (from 1) and the flat position that is read in each iteration of `loops`.
        inside: False in iterations whose summand is zero although no halo holds that zero; None if there are none.
    """

    loops: tuple[int, ...]
    weights: tuple[tuple[int, Array], ...]
    inside: Array | None

    def values(self, weights: Sequence[Array]) -> Array:
        """Return the factor in each iteration of `loops`, computed from the operator's weights."""
        product: Any = 1.0 if self.inside is None else self.inside.astype(weights[0].dtype if weights else np.float32)
        for number, positions in self.weights:
            product = product * weights[number - 1].reshape(-1)[positions]
        return np.asarray(product)


@dataclass(frozen=True, eq=False)
class Nest:
    """The loop nest of one stage at given sizes.

    Attributes:
        loops: the output loops, in the order of the target's axes, then the summed loops; a split loop is two loops.
        source: the axes of the tensor that is read, without the pass-through axes of `NestPlan.through`.
        target: the extent of each axis of the tensor that is written.
        written: for each axis of the target, its loops from the outermost.
        factor: the factor of each read element; None if there is none.
    """

    loops: tuple[Loop, ...]
    source: tuple[Axis, ...]
    target: tuple[int, ...]
    written: tuple[tuple[int, ...], ...]
    factor: Factor | None

    @property
    def multiply_adds(self) -> int:
        """The number of multiply-adds of the nest for one sample, which is its number of iterations."""
        return prod(loop.extent for loop in self.loops)


@dataclass(frozen=True, eq=False)
class NestPlan:
    """The nests of an operator at given sizes: one for each stage.

    Attributes:
        plan: the plan.
        through: the pass-through axes, which no primitive changes, such as the batch: their numbers in the input and in the
            output, and their extents. Together they enumerate samples; the nests compute one sample.
        nests: the nests in the order in which they run.
        inputs, outputs: the numbers of the other axes in the input and in the output, in the order of the first nest's source
            and of the last nest's target.
        strides: for each axis of the first nest's source, the distance of its neighbours in positions of the input; () if all
            distances are 1.
        takes_maximum: whether a result is the maximum of its summands, all at least zero, instead of their sum. Zeros in halos
            do not change it.
    """

    plan: Plan
    through: tuple[tuple[int, int, int], ...]
    nests: tuple[Nest, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    strides: tuple[int, ...] = ()
    takes_maximum: bool = False

    @property
    def samples(self) -> int:
        """The number of samples: of positions along all pass-through axes."""
        return prod(extent for _, _, extent in self.through)


def nest_plan(plan: Plan, valuation: Valuation, inside: Sequence[Dim] = ()) -> NestPlan:
    """Return the nests of a plan.

    Args:
        plan: the plan.
        valuation: the sizes.
        inside: pass-through axes that become loops of the nests instead of samples.

    Raises LoweringError if an index is too irregular for tables.
    """
    graph = plan.staged
    structure = Structure(graph)
    through = [dim for dim in graph.output if dim in graph.input and dim not in inside]
    kept = set(through)
    own = [dim for dim in graph.input if dim not in kept]
    source: Sequence[Dim] = own
    nests = []
    stages = _without_moves(plan, valuation)
    for number, stage in enumerate(stages):
        last = number == len(stages) - 1
        target = [dim for dim in (graph.output if last else stage.output) if dim not in kept]
        nests.append(_nest(structure, stage, source, target, kept, valuation))
        source = target
    return NestPlan(
        plan=plan,
        through=tuple((graph.input.index(dim), graph.output.index(dim), valuation.integer(dim.size)) for dim in through),
        nests=tuple(nests),
        inputs=tuple(graph.input.index(dim) for dim in own),
        outputs=tuple(at for at, dim in enumerate(graph.output) if dim not in kept),
    )


def every(plan: NestPlan, steps: Sequence[int]) -> NestPlan:
    """Return nests that compute every `steps[axis]`-th position along each output axis, as a strided convolution does.

    Raises LoweringError if several loops write such an axis.
    """
    last = plan.nests[-1]
    for at, axis in enumerate(plan.outputs):
        if steps[axis] > 1 and last.written[at]:
            last = _every(last, at, steps[axis])
    return replace(plan, nests=(*plan.nests[:-1], _without_unit_loops(last)))


def _every(nest: Nest, axis: int, step: int) -> Nest:
    if len(nest.written[axis]) > 1:
        raise LoweringError("an axis that is computed in part is written by several loops")
    (number,) = nest.written[axis]
    loops = list(nest.loops)
    loops[number] = replace(loops[number], extent=-(-loops[number].extent // step))

    def table_of(former: Sequence[int], table: Array) -> Array:
        return np.array(table[tuple(slice(None, None, step if loop == number else None) for loop in former)], order="C")

    target = (*nest.target[:axis], loops[number].extent, *nest.target[axis + 1 :])
    return replace(_with_loops(nest, loops, lambda loop: (loop,), table_of), target=target)


def _with_loops(
    nest: Nest,
    loops: Sequence[Loop],
    numbers: Callable[[int], Sequence[int]],
    table_of: Callable[[Sequence[int], Array], Array],
) -> Nest:
    """Return a nest with other loops.

    Args:
        nest: the nest.
        loops: the new loops.
        numbers: returns the new loops that a loop becomes, the outermost first; none where it is dropped.
        table_of: converts a table over some loops of `nest` to a table over the new loops that these become.
    """

    def loops_of(former: Sequence[int]) -> tuple[int, ...]:
        return tuple(new for loop in former for new in numbers(loop))

    def with_loops(axis: Axis) -> Axis:
        return replace(axis, index=tuple(Term(loops_of(term.loops), table_of(term.loops, term.table)) for term in axis.index))

    factor = nest.factor
    if factor is not None:
        former = factor.loops
        weights = tuple((weight, table_of(former, positions)) for weight, positions in factor.weights)
        factor = Factor(loops_of(former), weights, None if factor.inside is None else table_of(former, factor.inside))
    written = tuple(map(loops_of, nest.written))
    return Nest(tuple(loops), tuple(map(with_loops, nest.source)), nest.target, written, factor)


def without_strides(plan: NestPlan) -> NestPlan:
    """Return nests in which each input axis that is read with a stride is reshaped to two axes, [rows, stride].

    An index stride * i + offset becomes row i + offset // stride and column offset % stride. The rows are then read like the
    windows of a convolution without a stride, so that strided operators have planes, too.
    """
    first = plan.nests[0]
    source: list[Axis] = []
    inputs: list[int] = []
    strides: list[int] = []
    for axis, number in zip(first.source, plan.inputs, strict=True):
        stride, *rows_and_columns = _rows_and_columns(first, axis) or (1, axis)
        source += rows_and_columns
        inputs += [number] * len(rows_and_columns)
        strides += [stride, 1][: len(rows_and_columns)]
    nests = (replace(first, source=tuple(source)), *plan.nests[1:])
    return replace(plan, nests=nests, inputs=tuple(inputs), strides=tuple(strides))


def _rows_and_columns(nest: Nest, axis: Axis) -> tuple[int, Axis, Axis] | None:
    """Return the stride with which an output loop reads an axis, and the axes of rows and columns; None if none does."""
    axis = wrapped(axis)
    strided = [term for term in axis.index if (term.step or 0) > 1 and not nest.loops[term.loops[0]].is_summed]
    offsets = [term for term in axis.index if term not in strided]
    if len(strided) != 1 or sum(bool(term.loops) for term in offsets) > 1:
        return None
    (loop,), stride = strided[0].loops, strided[0].step or 1
    extent = nest.loops[loop].extent
    if axis.extent != extent * stride or (nest.factor is not None and loop in nest.factor.loops):
        return None
    loops = next((term.loops for term in offsets if term.loops), ())
    offset = np.asarray(sum(term.table for term in offsets))
    rows, columns = offset // stride, offset % stride
    before, after = max(0, -int(rows.min())), max(0, int(rows.max()))
    return (
        stride,
        Axis(
            extent, before, after, (Term((loop,), np.arange(extent)), *([Term(loops, rows)] if rows.any() else [])), axis.wraps
        ),
        Axis(int(columns.max()) + 1, 0, 0, (Term(loops, columns),) if columns.any() else ()),  # unread columns are not copied
    )


def _without_moves(plan: Plan, valuation: Valuation) -> list[Stage]:
    """Return the plan's stages, where a stage that only reorders elements is merged into the stage before it."""
    stages: list[Stage] = []
    for stage in plan.stages:
        before = stages[-1] if stages else None
        if before is not None and not stage.weights and not stage.reduces:
            sizes = [prod(valuation.integer(dim.size) for dim in dims) for dims in (before.output, stage.output)]
            operations = _between(plan, before.output, stage.output)
            if sizes[0] == sizes[1] and not any(primitive in (UNFOLD, EXPAND) for primitive in operations):
                stages[-1] = replace(before, output=stage.output)
                continue
        stages.append(stage)
    return stages


def _between(plan: Plan, above: Sequence[Dim], below: Sequence[Dim]) -> set[Primitive]:
    """Return the primitives between two cuts of the graph."""
    structure, primitives, waiting = Structure(plan.staged), set(), [dim for dim in below if dim not in above]
    while waiting:
        operation = structure.above[waiting.pop()]
        primitives.add(operation.primitive)
        waiting += [dim for dim in operation.tops if dim not in above]
    return primitives


class _Masked:
    """Index arithmetic on masked integer arrays: an entry is masked if it, or an index that it uses, is beyond a border."""

    def __init__(self, valuation: Valuation) -> None:
        self.valuation = valuation
        self.beyond: list[Array] = []  # for each guard that fails somewhere, the iterations in which it fails

    def size(self, size: Size) -> int:
        return self.valuation.integer(size)

    def half(self, size: Size) -> int:
        return self.valuation.integer(size) // 2

    def guard(self, index: Any, extent: Size) -> Any:
        beyond = (np.ma.getdata(index) < 0) | (np.ma.getdata(index) >= self.valuation.integer(extent))
        fails = beyond | np.ma.getmaskarray(index)
        if fails.any():
            self.beyond.append(fails)
        return np.ma.array(np.ma.getdata(index), mask=fails)


def _nest(
    structure: Structure, stage: Stage, source: Sequence[Dim], target: Sequence[Dim], kept: set[Dim], valuation: Valuation
) -> Nest:
    graph = structure.graph
    dims = [*target, *stage.reduces]
    loops = [Loop(graph.labels[dim], valuation.integer(dim.size), dim.is_reduce) for dim in dims]
    given: dict[Dim, Any] = {}
    for number, loop in enumerate(loops):
        given[dims[number]] = np.arange(loop.extent).reshape([-1 if at == number else 1 for at in range(len(loops))])
    zero = np.zeros([1] * len(loops), np.int64)
    given |= dict.fromkeys(kept, zero)
    weights = [graph.weights[number - 1] for number in stage.weights]
    wanted = dict.fromkeys([*source, *(dim for weight in weights for dim in weight)])
    arithmetic = _Masked(valuation)
    at = coordinates([*wanted, *_ends(structure, dims, wanted)], given, arithmetic)
    axes = [_axis(np.ma.array(at[dim]), valuation.integer(dim.size)) for dim in source]
    if any(dim in kept for weight in weights for dim in weight):
        raise LoweringError(f"{graph!r}: a weight is read at an axis that stays as it is")
    masks = [np.ma.getmaskarray(np.ma.array(at[dim])) for dim in source]
    # Zeros that no halo holds, because no axis of the source is beyond its border in all of these iterations.
    lost = [beyond for beyond in arithmetic.beyond if not any((mask | ~beyond).all() for mask in masks if mask.any())]
    factor = _factor(stage, weights, at, valuation, lost, len(loops))
    nest = Nest(
        loops=tuple(loops),
        source=tuple(axes),
        target=tuple(valuation.integer(dim.size) for dim in target),
        written=tuple((number,) for number in range(len(target))),
        factor=factor,
    )
    return _without_unit_loops(_split_loops(nest))


def _ends(structure: Structure, dims: Sequence[Dim], known: dict[Dim, None]) -> list[Dim]:
    """Return the expanded dims above `dims`. They index no tensor, but an Unfold below one has a border all the same."""
    expanded: list[Dim] = []
    for dim in dims:
        operation = structure.above.get(dim)
        if dim not in known and operation is not None:
            expanded += _ends(structure, operation.tops, known) if operation.tops else [dim]
    return list(dict.fromkeys(expanded))


def _factor(
    stage: Stage, weights: Sequence[Sequence[Dim]], at: dict[Dim, Any], valuation: Valuation, lost: Sequence[Array], rank: int
) -> Factor | None:
    """Return the factor of a stage; None if there is none.

    Args:
        stage, weights: the stage, and the axes of its weights.
        at: the coordinate of each dim in each iteration.
        valuation: the sizes.
        lost: masks of iterations whose summand is zero although no halo holds that zero.
        rank: the number of loops.
    """
    positions = []
    for number, weight in zip(stage.weights, weights, strict=True):
        flat: Any = np.zeros([1] * rank, np.int64)
        for dim in weight:
            index = np.ma.getdata(np.ma.array(at[dim])).clip(0, valuation.integer(dim.size) - 1)
            flat = flat * valuation.integer(dim.size) + index
        positions.append((number, _without_repeats(flat)))
    mask: Any = None
    for beyond in lost:
        mask = ~beyond if mask is None else mask & ~beyond
    mask = None if mask is None else _without_repeats(mask)
    shapes = [flat.shape for _, flat in positions] + ([] if mask is None else [mask.shape])
    if not shapes:
        return None
    shape = np.broadcast_shapes(*shapes)
    loops = tuple(number for number, extent in enumerate(shape) if extent > 1)
    if prod(shape) > 64 * MOST_ENTRIES:
        raise LoweringError(f"the factors of a stage have {prod(shape):,} elements, too many to lay out")

    def compact(array: Array) -> Array:
        return np.broadcast_to(array, shape).reshape([shape[number] for number in loops])

    return Factor(loops, tuple((number, compact(flat)) for number, flat in positions), None if mask is None else compact(mask))


def _axis(index: Any, extent: int) -> Axis:
    """Return an axis of a nest's source that is read at `index[iteration]`; masked entries read a zero of the halo."""
    loops = tuple(number for number in range(index.ndim) if index.shape[number] > 1)
    table = np.ma.getdata(index).reshape([index.shape[number] for number in loops])
    return axis_of(loops, table, np.ma.getmaskarray(index).reshape(table.shape), extent)


def axis_of(loops: tuple[int, ...], table: Array, masked: Array, extent: int) -> Axis:
    """Return an axis of length `extent` that is read at `table[iteration of loops]`; reads where `masked` is true give 0.

    Raises LoweringError if the table is too large.
    """
    if table.size > MOST_ENTRIES:
        raise LoweringError(f"an index over {table.size:,} iterations is too large for a table")
    if masked.all():
        return Axis(extent, 0, 1, (Term((), np.asarray(extent)),))
    separate = _separate(table, masked, extent)
    if separate is None:
        table = _without_repeats(np.where(masked, extent, table))
        varies = [loop for loop, count in zip(loops, table.shape, strict=True) if count > 1]
        return Axis(extent, 0, int(masked.any()), (Term(tuple(varies), table.squeeze()),))
    constant, tables = separate
    return Axis(extent, *_sum_of_tables(extent, loops, constant, tables))


def _without_repeats(array: Array) -> Array:
    """Return the array with length 1 along each axis along which it is constant."""
    for axis in range(array.ndim):
        first = array.take([0], axis)
        if (array == first).all():
            array = first
    return array


def wrapped(axis: Axis) -> Axis:
    """Return the axis with a cyclic halo if it is read at a sum of loops modulo its extent; any other axis unchanged."""
    term = axis.index[0] if len(axis.index) == 1 else Term((), np.zeros((), np.int64))
    if len(term.loops) < 2 or axis.after:  # a halo holds zeros
        return axis
    table, extent, most_back = term.table, axis.extent, (axis.extent - 1) // 2
    tables = []
    for number in range(table.ndim):
        line = table[tuple(slice(None) if other == number else 0 for other in range(table.ndim))]
        tables.append(np.cumsum([0, *((np.diff(line) + most_back) % extent - most_back)]))
    constant = int(table.flat[0])
    total = np.asarray(constant + sum(np.ix_(*tables)))
    if (total % extent != table).any():
        return axis
    constant -= extent * round((total.min() + total.max() - (extent - 1)) / (2 * extent))  # such that both halos are small
    return Axis(extent, *_sum_of_tables(extent, term.loops, constant, tables), wraps=True)


def _sum_of_tables(
    extent: int, loops: Sequence[int], constant: int, tables: Sequence[Array]
) -> tuple[int, int, tuple[Term, ...]]:
    """Return `before`, `after` and `index` of an axis that is read at a constant plus one table for each loop."""
    terms = [Term((loop,), entries) for loop, entries in zip(loops, tables, strict=True) if entries.any()]
    if constant:
        terms.insert(0, Term((), np.asarray(constant)))
    least = constant + sum(int(entries.min()) for entries in tables)
    most = constant + sum(int(entries.max()) for entries in tables)
    return max(0, -least), max(0, most - extent + 1), tuple(terms)


def _separate(table: Array, masked: Array, extent: int) -> tuple[int, list[Array]] | None:
    """Separate `table` into a constant and one table for each loop; None if it is no such sum.

    Where `masked` is true, the sum must lie beyond the borders 0 and extent - 1, so that it reads the halo.
    """
    tables = []
    for axis in range(table.ndim):  # the difference of neighbours, wherever neither is masked
        ahead, behind = np.moveaxis(table, axis, 0), np.moveaxis(masked, axis, 0)
        steps = [0]
        for at in range(table.shape[axis] - 1):
            seen = ~(behind[at] | behind[at + 1])
            differences = (ahead[at + 1] - ahead[at])[seen]
            # Without a difference, only one position is read inside: a step of `extent` puts the others beyond the border.
            steps.append(int(differences[0]) if differences.size else steps[-1] if at else extent)
        tables.append(np.cumsum(steps))
    first = np.unravel_index(int(np.argmin(masked)), table.shape)  # an iteration that is not masked
    constant = int(table[first]) - sum(int(entries[at]) for entries, at in zip(tables, first, strict=True))
    total: Any = constant
    for axis, entries in enumerate(tables):
        total = total + entries.reshape([-1 if other == axis else 1 for other in range(table.ndim)])
    total = np.broadcast_to(total, table.shape)
    if (total != table)[~masked].any():
        return None
    if ((total >= 0) & (total < extent))[masked].any():
        return None
    return constant, tables


def _split_loops(nest: Nest) -> Nest:
    """Return the nest in which loops are split in two if that makes the tables over them affine, as for merged axes."""
    number = 0
    while number < len(nest.loops):
        block = _block(nest, number)
        if block is None:
            number += 1
        else:
            nest = split(nest, number, block)
    return nest


def _block(nest: Nest, number: int) -> int | None:
    """Return the largest inner extent that makes all tables affine in the inner loop; None if no split is needed or helps."""
    tables = [term.table for axis in nest.source for term in axis.index if term.loops == (number,)]
    irregular = [table for table in tables if _affine_block(table) < len(table)]
    if not irregular:
        return None
    extent = nest.loops[number].extent
    block = np.gcd.reduce([_affine_block(table) for table in irregular])
    return int(block) if 1 < block < extent else None


def _affine_block(table: Array) -> int:
    """Return the largest divisor B of the table's length such that each block of B entries has the same constant step."""
    length = len(table)
    for block in range(length, 0, -1):
        if length % block == 0:
            rows = table.reshape(-1, block)
            differences = np.diff(rows, axis=1)
            if not differences.size or (differences == differences[0, 0]).all():
                return block
    return 1


def split(nest: Nest, number: int, block: int) -> Nest:
    """Return the nest in which a loop is split into an outer loop and an inner loop of `block` iterations."""
    loop, pair = nest.loops[number], (number, number + 1)
    halves = [
        Loop(f"{loop.name}_outer", loop.extent // block, loop.is_summed),
        Loop(f"{loop.name}_inner", block, loop.is_summed),
    ]

    def table_of(former: Sequence[int], table: Array) -> Array:
        extents = [(-1, block) if other == number else (extent,) for other, extent in zip(former, table.shape, strict=True)]
        return table.reshape(sum(extents, ()))

    def separated(term: Term) -> list[Term]:
        """Return the term as a sum of two terms, one over each loop of the split, if it is such a sum; else as it is."""
        if term.loops != pair:
            return [term]
        rows, columns = term.table[:, 0], term.table[0] - term.table[0, 0]
        if (rows[:, None] + columns != term.table).any():
            return [term]
        return [Term((half,), table) for half, table in zip(pair, (rows, columns), strict=True) if table.any()]

    loops = (*nest.loops[:number], *halves, *nest.loops[number + 1 :])
    result = _with_loops(nest, loops, lambda other: pair if other == number else (other + (other > number),), table_of)
    source = [replace(axis, index=tuple(new for term in axis.index for new in separated(term))) for axis in result.source]
    return replace(result, source=tuple(source))


def _without_unit_loops(nest: Nest) -> Nest:
    """Return the nest without loops of one iteration."""
    kept = [number for number, loop in enumerate(nest.loops) if loop.extent > 1]
    place = {number: (at,) for at, number in enumerate(kept)}

    def table_of(former: Sequence[int], table: Array) -> Array:
        return table.reshape([extent for loop, extent in zip(former, table.shape, strict=True) if loop in place])

    return _with_loops(nest, [nest.loops[number] for number in kept], lambda loop: place.get(loop, ()), table_of)
