"""C++ loops that copy a tensor between the caller's memory and the scratch buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from syno.lower.native.source import Writer, linear

Body: TypeAlias = Callable[[str, str], list[str]]  # (offset in the caller's memory, in scratch) -> statements


@dataclass(frozen=True)
class CopyAxis:
    """An axis of a copy between the caller's memory and scratch.

    Attributes:
        extent: the length of the axis.
        outside, inside: the axis' stride in the caller's memory, and in scratch, in floats.
        bound: the C++ expression of the length if it is known only at run time; `extent` is then the maximum.
    """

    extent: int
    outside: int
    inside: int
    bound: str = ""

    @property
    def count(self) -> str:
        """The length of the axis as a C++ expression."""
        return self.bound or str(self.extent)


def merged(axes: Iterable[CopyAxis]) -> list[CopyAxis]:
    """Return the axes sorted by their stride in the caller's memory, merged if they are contiguous in both memories."""
    result: list[CopyAxis] = []
    for axis in sorted((axis for axis in axes if axis.extent > 1 or axis.bound), key=lambda axis: -axis.outside):
        before = result[-1] if result else None
        steps = (axis.extent * axis.outside, axis.extent * axis.inside)
        if before and not before.bound and not axis.bound and (before.outside, before.inside) == steps:
            result[-1] = CopyAxis(before.extent * axis.extent, axis.outside, axis.inside)
        else:
            result.append(axis)
    return result


def copy_loops(out: Writer, axes: Sequence[CopyAxis], body: Body, inside: int, outside: int = 0) -> None:
    """Write a nest of copy loops. Threads share the outermost loop.

    Args:
        out: the writer.
        axes: the loops from the outermost.
        body: returns the innermost statements.
        inside, outside: the first offset in scratch, and in the caller's memory.
    """
    with ExitStack() as blocks:
        for number, axis in enumerate(axes):
            begin, end = ("0", axis.count) if number else (f"{axis.count} * part / parts", f"{axis.count} * (part + 1) / parts")
            blocks.enter_context(out.block(f"for (long e{number} = {begin}; e{number} < {end}; ++e{number})"))
        if not axes:
            blocks.enter_context(out.block("if (!part)"))
        at_outside = linear(((axis.outside, f"e{number}") for number, axis in enumerate(axes)), outside)
        at_inside = linear(((axis.inside, f"e{number}") for number, axis in enumerate(axes)), inside)
        out.line(*body(at_outside, at_inside))
