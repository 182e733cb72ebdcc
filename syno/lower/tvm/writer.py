"""The text of one stage as tensor expressions.

Paper: section 6.1 (lowering to TVM's tensor expressions).
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from syno.algebra import Expression, Size, half, iterator
from syno.algebra.code_names import code_name
from syno.ir.dim import Dim, Operation
from syno.ir.primitives import SHIFT, UNFOLD
from syno.lower.accesses import Accesses, Intermediate, accesses
from syno.lower.cut import Structure
from syno.lower.stages import Stage

INDENT = "    "
LINE_LENGTH = 118
LONGEST_PRODUCT = 80  # characters; longer ones have a line of their own


class StageWriter:
    """Writes one stage."""

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
        """The names of the functions of `FUNCTIONS` in source.py that the text uses."""
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
        """Return whether the index has a name: of Unfolds, which conditions read, and of Shifts, which become calls."""
        return operation.primitive in (SHIFT, UNFOLD)

    def _windows(self) -> dict[int, Intermediate]:
        """Return the data's axes that are padded, by number, with the Unfold whose window reaches beyond them.

        A condition in a sum keeps its loops from being vectorized, so contractions read a copy with zeros around it. That can
        stand for a condition where the index is that of one axis of the data, and of nothing else.
        """
        found: dict[int, Intermediate] = {}
        if not (self.work.weights and self.work.reduces):
            return found
        for step in self.reads.intermediates:
            label = self.graph.labels[step.dim]
            others = [*self.reads.weights, *(other.below for other in self.reads.intermediates)]
            axes = [axis for axis, index in enumerate(self.reads.data) if label in index.iterators]
            elsewhere = any(label in index.iterators for indices in others for index in indices)
            alone = len(axes) == 1 and not elsewhere and self.reads.data[axes[0]] == iterator(label, step.dim.size)
            if step.operation.primitive is UNFOLD and alone:
                found[axes[0]] = step
        return found

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
        """Return the tensors that are multiplied, with the indices at which they are read."""
        data = list(self.reads.data)
        for axis, step in self.windows.items():
            position, window = step.below
            data[axis] = position + window
        return [("padded" if self.windows else self.data, data), *zip(self.operands[1:], self.reads.weights, strict=True)]

    def _conditions(self) -> list[tuple[Expression, Size]]:
        """Return the conditions that padding does not replace."""
        padded = [iterator(self.graph.labels[step.dim], step.dim.size) for step in self.windows.values()]
        return [(index, extent) for index, extent in self.reads.conditions if index not in padded]


def margins(step: Intermediate) -> tuple[str, str]:
    """Return how far the window of an Unfold reaches beyond its axis, before and after, as two expressions."""
    window = step.operation.bottoms[1].size
    whole = window.integer_text()
    return _text(half(window)), f"({whole} - 1)//2"


def inside(index: Expression, extent: Size) -> str:
    """Return the condition 0 <= index < extent. The extent is that of the axis that an Unfold reads, not of its window."""
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
    """Break a line between the names of a row in brackets."""
    return fill(line, LINE_LENGTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False).splitlines()


def bracketed(head: str, parts: Sequence[str], between: str, tail: str = "") -> list[str]:
    """Return `head part, part tail` in one line if it fits, else with one part per line, in brackets."""
    whole = head + between.join(parts) + tail
    if len(whole) <= LINE_LENGTH - 2 * len(INDENT):
        return [whole]
    if tail:
        return [head, *(INDENT + part + between.rstrip() for part in parts), tail]
    return [f"{head}(", INDENT + parts[0], *(INDENT + between.lstrip() + part for part in parts[1:]), ")"]
