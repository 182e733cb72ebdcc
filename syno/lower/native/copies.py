"""Loops that copy a tensor between the caller's memory and scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from syno.lower.native.source import Writer, linear

Body: TypeAlias = Callable[[str, str], list[str]]  # the statements of a copy, from a place outside and one in scratch


@dataclass(frozen=True)
class CopyAxis:
    """An axis along which a tensor is copied between the caller's memory and scratch.

    Attributes:
        extent: its length.
        outside, inside: floats between neighbours in the caller's memory, and in scratch.
        bound: the expression of the length, where it is known only when the code runs; `extent` is then the most.
    """

    extent: int
    outside: int
    inside: int
    bound: str = ""

    @property
    def count(self) -> str:
        """The length, as an expression."""
        return self.bound or str(self.extent)


def merged(axes: Iterable[CopyAxis]) -> list[CopyAxis]:
    """Return axes from the outermost outside, those that are neighbours in both memories made one."""
    found: list[CopyAxis] = []
    for axis in sorted((axis for axis in axes if axis.extent > 1 or axis.bound), key=lambda axis: -axis.outside):
        before = found[-1] if found else None
        steps = (axis.extent * axis.outside, axis.extent * axis.inside)
        if before and not before.bound and not axis.bound and (before.outside, before.inside) == steps:
            found[-1] = CopyAxis(before.extent * axis.extent, axis.outside, axis.inside)
        else:
            found.append(axis)
    return found


def copy_loops(out: Writer, axes: Sequence[CopyAxis], body: Body, inside: int, outside: int = 0) -> None:
    """Write loops over axes around a copy, which begins at these places in both memories. Threads share the outermost."""
    with ExitStack() as blocks:
        for number, axis in enumerate(axes):
            begin, end = ("0", axis.count) if number else (f"{axis.count} * part / parts", f"{axis.count} * (part + 1) / parts")
            blocks.enter_context(out.block(f"for (long e{number} = {begin}; e{number} < {end}; ++e{number})"))
        if not axes:
            blocks.enter_context(out.block("if (!part)"))
        at_outside = linear(((axis.outside, f"e{number}") for number, axis in enumerate(axes)), outside)
        at_inside = linear(((axis.inside, f"e{number}") for number, axis in enumerate(axes)), inside)
        out.line(*body(at_outside, at_inside))
