"""Source text of tensor expressions: a plan as Python functions that build TVM's tensors, one function for each stage.

Sizes are arguments, so the text serves for all sizes. Only running the text needs TVM.

Paper: section 6.1 (lowering to TVM's tensor expressions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from syno.algebra import Expression, Size, Valuation, Valuations, half, iterator
from syno.algebra.code_names import code_name, renaming_note
from syno.base.quoting import docstring
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import SHIFT, UNFOLD
from syno.lower.cut import Structure
from syno.lower.plan import Plan, plan_for
from syno.lower.stages import Accesses, Intermediate, Stage, accesses
from syno.lower.tvm.installed import tvm

INDENT = "    "
LINE_LENGTH = 118
LONGEST_PRODUCT = 80  # characters; longer ones have a line of their own


class StageWriter:
    """Writer of the Python function of one stage."""

    def __init__(
        self, structure: Structure, stage: Stage, source: tuple[str, tuple[Dim, ...]], target: tuple[str, tuple[Dim, ...]]
    ) -> None:
        self.graph, self.work = structure.graph, stage
        self.data, (self.result, self.axes) = source[0], target
        self.reads: Accesses = accesses(structure, stage, source[1], target[1], self._is_named)
        self.operands = (self.data, *(f"w{number}" for number in stage.weights))
        self.windows = self._windows()

    @property
    def functions(self) -> frozenset[str]:
        """The names of the functions in `FUNCTIONS` that the stage's text calls."""
        return frozenset({"rotated"} if any(step.operation.primitive is SHIFT for step in self.reads.intermediates) else ())

    def text(self, name: str) -> str:
        """Return the stage as the source of a function of this name."""
        labels = [self.graph.labels[dim] for dim in self.axes]
        sums = [self.graph.labels[dim] for dim in self.work.reduces]
        lines = [
            *folded(f"def {name}({', '.join([*self.operands, *map(code_name, self.graph.variables)])}):"),
            f'    """{self._does()}"""',
        ]
        for label, dim in zip(sums, self.work.reduces, strict=True):
            lines.append(f'    {label} = te.reduce_axis((0, {dim.size.integer_text()}), "{label}")')
        lines += [f"    {line}" for line in self._padding()]
        lines += ["", f"    def element({', '.join(labels)}):", *(f"        {line}" for line in self._element(sums)), ""]
        lines.append(f'    return te.compute({row_of_sizes(self.axes)}, element, "{self.result}")')
        return "\n".join(lines) + "\n"

    @staticmethod
    def _is_named(operation: Operation) -> bool:
        """Return whether generated code has a variable for this index: an Unfold's is in conditions, a Shift's is a call."""
        return operation.primitive in (SHIFT, UNFOLD)

    def _windows(self) -> dict[int, Intermediate]:
        """Return the data's axes to pad with zeros, by number, each with the Unfold whose window reads beyond its borders.

        TVM does not vectorize the loops of a sum with a condition, so contractions read a zero-padded copy of the data instead.
        This is possible if the Unfold's index is the index of one axis of the data, and occurs nowhere else.
        """
        padded: dict[int, Intermediate] = {}
        if not (self.work.weights and self.work.reduces):
            return padded
        for step in self.reads.intermediates:
            label = self.graph.labels[step.dim]
            others = [*self.reads.weights, *(other.below for other in self.reads.intermediates)]
            axes = [axis for axis, index in enumerate(self.reads.data) if label in index.iterators]
            elsewhere = any(label in index.iterators for indices in others for index in indices)
            alone = len(axes) == 1 and not elsewhere and self.reads.data[axes[0]] == iterator(label, step.dim.size)
            if step.operation.primitive is UNFOLD and alone:
                padded[axes[0]] = step
        return padded

    def _padding(self) -> list[str]:
        if not self.windows:
            return []
        widths = [margins(self.windows[axis]) if axis in self.windows else ("0", "0") for axis in range(len(self.reads.data))]
        before, after = (f"({', '.join(side)}{',' * (len(side) == 1)})" for side in zip(*widths, strict=True))
        return folded(f'padded = topi.nn.pad({self.data}, {before}, {after}, name="padded")')

    def _does(self) -> str:
        weights = " and ".join(self.operands[1:])
        sums = ", ".join(self.graph.labels[dim] for dim in self.work.reduces)
        does = [f"multiplied with {weights}"] if weights else []
        does += [f"summed over {sums}"] if sums else []
        shape = ", ".join(dim.size.fraction_text for dim in self.axes)
        return f"{self.result}[{shape}]: {self.data} {' and '.join(does) or 'seen through views'}."

    def _element(self, sums: Sequence[str]) -> list[str]:
        padded = {step.dim for step in self.windows.values()}
        named = [step for step in self.reads.intermediates if step.dim not in padded]
        lines = [f"{self.graph.labels[step.dim]} = {_intermediate(step)}" for step in named]
        factors = [_access(name, indices) for name, indices in self._tensors()]
        conditions = [inside(index, extent) for index, extent in self._conditions()]
        if conditions:
            lines += bracketed("inside = te.all(", conditions, ", ", ")")
        if conditions or len(" * ".join(factors)) > LONGEST_PRODUCT:
            lines += bracketed("product = ", factors, " * ")
            factors = ["product"]
        value = " * ".join(factors)
        if conditions:
            value = f"te.if_then_else(inside, {value}, tirx.const(0, {self.data}.dtype))"
        return [*lines, f"return te.sum({value}, [{', '.join(sums)}])" if sums else f"return {value}"]

    def _tensors(self) -> list[tuple[str, Sequence[Expression]]]:
        """Return the multiplied tensors, each with the index expressions at which it is read."""
        data = list(self.reads.data)
        for axis, step in self.windows.items():
            position, window = step.below
            data[axis] = position + window
        return [("padded" if self.windows else self.data, data), *zip(self.operands[1:], self.reads.weights, strict=True)]

    def _conditions(self) -> list[tuple[Expression, Size]]:
        """Return the conditions (index, extent) for zeros at borders that padding does not replace."""
        padded = [iterator(self.graph.labels[step.dim], step.dim.size) for step in self.windows.values()]
        return [(index, extent) for index, extent in self.reads.conditions if index not in padded]


def margins(step: Intermediate) -> tuple[str, str]:
    """Return the expressions of the numbers of positions that an Unfold's window reads before and after its axis."""
    window = step.operation.bottoms[1].size
    whole = window.integer_text()
    return _text(half(window)), f"({whole} - 1)//2"


def inside(index: Expression, extent: Size) -> str:
    """Return the condition 0 <= index < extent, where `extent` is the length of the axis that an Unfold reads."""
    return f"0 <= {_text(index)}, {_text(index)} < {extent.integer_text()}"


def _intermediate(step: Intermediate) -> str:
    if step.operation.primitive is SHIFT:
        return f"rotated({_text(step.below[0])}, {step.operation.parameter}, {step.dim.size.integer_text()})"
    position, window = step.below
    return _text(position + window - half(step.operation.bottoms[1].size))


def _text(index: Expression) -> str:
    return index.text(Size.integer_text)


def _access(tensor: str, indices: Sequence[Expression]) -> str:
    return f"{tensor}[{', '.join(map(_text, indices))}]" if indices else f"{tensor}[()]"


def row_of_sizes(dims: Sequence[Dim]) -> str:
    """Return the sizes of axes as a Python tuple."""
    sizes = [dim.size.integer_text() for dim in dims]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def folded(line: str) -> list[str]:
    """Wrap a line of code at spaces, to lines of at most LINE_LENGTH characters."""
    return fill(line, LINE_LENGTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False).splitlines()


def bracketed(head: str, parts: Sequence[str], between: str, tail: str = "") -> list[str]:
    """Return `head part, part tail` in one line if it fits, else with one part per line, in brackets."""
    whole = head + between.join(parts) + tail
    if len(whole) <= LINE_LENGTH - 2 * len(INDENT):
        return [whole]
    if tail:
        return [head, *(INDENT + part + between.rstrip() for part in parts), tail]
    return [f"{head}(", INDENT + parts[0], *(INDENT + between.lstrip() + part for part in parts[1:]), ")"]


# Functions that generated tensor expressions contain if they call them. They work around an error of TVM 0.27, which rewrites
# the indices of one access together (`FlattenBuffer`): if a loop variable occurs in several `//` and `%` with different
# offsets, it merges them wrongly. `A[(i//2 + 1) % 7, (i%2 + 1) % 2]` is read at the flat index `(i + 2) % 14`. Indices with
# other operations than sums, `//` and `%` are not rewritten. Only rotations need this: an Unfold below a Merge also has `//`
# and `%` of sums with an offset, but the thorough tests found no wrong kernel, with loops as written or fused and split.
FUNCTIONS = {
    "rotated": '''
def rotated(index, amount, extent):
    """(index + amount) % extent, for an index in [0, extent)."""
    moved = index + amount % extent
    return tirx.Select(moved < extent, moved, moved - extent)
''',
}


@dataclass(frozen=True)
class TeStage:
    """The text of one stage: a function `name(operands..., sizes...)` that returns the stage's result, a `te.Tensor`.

    Attributes:
        name: the name of the function.
        operands: the names of its tensor arguments: the data, then weights.
        result: the name of its result: `t1`, `t2` ..., and `y` for the last stage.
        axes: the axes of the result.
        source: the text.
        functions: names of the functions of `FUNCTIONS` that it calls.
    """

    name: str
    operands: tuple[str, ...]
    result: str
    axes: tuple[Dim, ...]
    source: str
    functions: frozenset[str]


def to_te_source(graph: PGraph, values: Mapping[str, int] | Valuations | None = None, *, plan: Plan | None = None) -> str:
    """Return the operator as Python source of TVM tensor expressions.

    It defines `stage_1`, `stage_2` ..., which take tensors and sizes; `placeholders(sizes..., dtype)`, which returns
    placeholders of the input and the weights; and `build(sizes..., dtype)`, which returns these and the results of all stages.

    >>> import syno
    >>> source = syno.to_te_source(syno.OPERATORS["channel_scale"]())
    >>> print("\\n".join(line for line in source.splitlines() if line.startswith(("def", "    return te"))))
    def stage_1(x, w1, C, H, N):
        return te.compute((N, C, H, H), element, "y")
    def placeholders(C, H, N, dtype="float32"):
    def build(C, H, N, dtype="float32"):

    Args:
        graph: the operator.
        values: the sizes for which the plan is chosen; the text serves for all others, too. None: nominal sizes.
        plan: the order of contractions; None: the one with the fewest FLOPs. If it composes two weights, the composed weight
            takes their place, after all other weights.

    Raises:
        LoweringError: the operator cannot be planned.
    """
    chosen = plan_for(graph, values, plan)
    stages = te_stages(chosen)
    functions = _definitions({name for stage in stages for name in stage.functions})
    parts = [*(stage.source for stage in stages), _placeholders(chosen.staged), _build(chosen.staged, stages)]
    body = functions + "".join(parts)
    imports = [name for name in ("te", "tirx", "topi") if f"{name}." in body]
    title = f"{graph.name}: a linear operator, generated by Syno (TVM tensor expressions).\n\n"
    return (
        f"{docstring(f'{title}{chosen.staged}{renaming_note(chosen.staged.variables)}')}\n\n"
        f"from tvm import {', '.join(imports)}\n{functions}\n\n" + "\n\n".join(parts)
    )


def _definitions(used: set[str]) -> str:
    """Return the source of the used functions of `FUNCTIONS`, with two blank lines around each."""
    return "".join(f"\n{text}" for name, text in FUNCTIONS.items() if name in used)


def te_stages(plan: Plan) -> tuple[TeStage, ...]:
    """Return the text of each stage of a plan. Raises LoweringError as `to_te_source`."""
    graph = plan.staged
    structure = Structure(graph)
    source: tuple[str, tuple[Dim, ...]] = ("x", graph.input)
    stages = []
    for number, stage in enumerate(plan.stages, 1):
        last = number == len(plan.stages)
        target = ("y", graph.output) if last else (f"t{number}", arranged(stage.output, graph))
        writer = StageWriter(structure, stage, source, target)
        text = writer.text(f"stage_{number}")
        stages.append(TeStage(f"stage_{number}", writer.operands, *target, text, writer.functions))
        source = target
    return tuple(stages)


def arranged(axes: Sequence[Dim], graph: PGraph) -> tuple[Dim, ...]:
    """Return the axes of an intermediate result in the order in which later stages read it contiguously.

    Axes have the order of the output axes that depend on them. Axes that are only summed over come last, as in a matrix
    product; but if the output's last axis depends on an axis of the data, as in a convolution, they come second, after the
    batch.
    """
    output_axes = {axis: _last_output_axis(axis, graph) for axis in axes}
    last = len(graph.output) - 1
    summed = 0.5 if last in output_axes.values() else last + 1
    places = {axis: summed if place is None else place for axis, place in output_axes.items()}
    return tuple(sorted(axes, key=places.__getitem__))


def _last_output_axis(dim: Dim, graph: PGraph) -> int | None:
    """Return the number of the last output axis on which the coordinate of `dim` depends, or None."""
    if dim in graph.output:
        return graph.output.index(dim)
    below = dim.operation.bottoms if dim.operation is not None else ()
    return max((found for bottom in below if (found := _last_output_axis(bottom, graph)) is not None), default=None)


def _placeholders(graph: PGraph) -> str:
    names = _tensor_names(graph)
    lines = [f"def placeholders({_sizes_and_dtype(graph)}):", '    """The input and the weights."""']
    lines += [
        f'    {name} = te.placeholder({row_of_sizes(dims)}, dtype, "{name}")'
        for name, dims in zip(names, (graph.input, *graph.weights), strict=True)
    ]
    return "\n".join([*lines, f"    return {_row(names)}"]) + "\n"


def _build(graph: PGraph, stages: Sequence[TeStage]) -> str:
    sizes, names = list(map(code_name, graph.variables)), _tensor_names(graph)
    lines = [f"def build({_sizes_and_dtype(graph)}):", '    """The input, the weights, and the results of all stages."""']
    lines.append(f"    {_row(names, target=True)} = placeholders({', '.join([*sizes, 'dtype'])})")
    lines += [f"    {stage.result} = {stage.name}({', '.join([*stage.operands, *sizes])})" for stage in stages]
    return "\n".join([*lines, f"    return {_row([*names, *(stage.result for stage in stages)])}"]) + "\n"


def _sizes_and_dtype(graph: PGraph) -> str:
    return ", ".join([*map(code_name, graph.variables), 'dtype="float32"'])


def _tensor_names(graph: PGraph) -> list[str]:
    return ["x", *(f"w{number}" for number in range(1, len(graph.weights) + 1))]


def _row(names: Sequence[str], target: bool = False) -> str:
    row = f"{names[0]}," if len(names) == 1 else ", ".join(names)
    return row if target else f"({row})" if len(names) == 1 else row


@dataclass(frozen=True)
class StageFunction:
    """A stage as a callable: it takes `te.Tensor`s in the order of its operands, and sizes, and returns a `te.Tensor`.

    Attributes:
        stage: the text of the stage.
        graph: the operator that the plan's stages compute.
    """

    stage: TeStage
    graph: PGraph
    _function: Callable[..., Any]

    def __call__(self, *tensors: Any, **sizes: int) -> Any:
        """Return the stage's result for `te.Tensor`s of the operands' shapes.

        Sizes with a default may be left out; sizes that the operator does not have are ignored.
        """
        return self._function(*tensors, **named_sizes(sizes_of(self.graph, sizes)))


def sizes_of(graph: PGraph, values: Mapping[str, int]) -> Valuation:
    """Return the values of the operator's variables, with its defaults. ValuationError if one is missing."""
    return graph.valuation({name: value for name, value in values.items() if name in graph.variables})


def named_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes as keyword arguments of generated functions, where a variable may have another name."""
    return {code_name(name): value for name, value in sizes.items()}


def stage_functions(plan: Plan) -> tuple[StageFunction, ...]:
    """Return the stages of a plan as callables, for `te.create_prim_func` or `relax.BlockBuilder.emit_te`.

    Raises:
        MissingPackageError: TVM is not installed.
        LoweringError: as `to_te_source`.
    """
    scope = _run_source(plan)
    return tuple(StageFunction(stage, plan.staged, scope[stage.name]) for stage in te_stages(plan))


def prim_functions(plan: Plan, valuation: Mapping[str, int], dtype: str = "float32") -> list[Any]:
    """Return one `tvm.tirx.PrimFunc` per stage, for these sizes; its parameters are the stage's operands, then its result.

    The `global_symbol` of each is the name of its stage. Raises the exceptions of `stage_functions`, and ValuationError.
    """
    module, scope = tvm(), _run_source(plan)
    sizes = sizes_of(plan.staged, valuation)
    named = named_sizes(sizes)
    inputs = scope["placeholders"](**named, dtype=dtype)
    shapes = {tensor.op.name: tensor.shape for tensor in inputs}
    made = []
    for stage in te_stages(plan):
        operands = [module.te.placeholder(shapes[name], dtype, name) for name in stage.operands]
        result = scope[stage.name](*operands, **named)
        shapes[stage.result] = result.shape
        made.append(module.te.create_prim_func([*operands, result]).with_attr("global_symbol", stage.name))
    return made


def _run_source(plan: Plan) -> dict[str, Any]:
    """Execute the source text of a plan, and return the functions that it defines, by name."""
    tvm()
    scope: dict[str, Any] = {"__name__": f"syno_te_{plan.graph.id}"}
    exec(compile(to_te_source(plan.graph, plan=plan), f"<tensor expressions of {plan.graph.name}>", "exec"), scope)
    return scope
