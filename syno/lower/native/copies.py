"""Loops that copy a tensor between the caller's memory and scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from syno.lower.native.source import Writer


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


def copy_loops(
    out: Writer, axes: Sequence[CopyAxis], body: Callable[[str, str], list[str]], origin: int, outside_origin: int = 0
) -> None:
    """Write loops over axes around the statements for a place outside and one in scratch. Threads share the outermost."""
    for number, axis in enumerate(axes):
        begin, end = ("0", axis.count) if number else (f"{axis.count} * part / parts", f"{axis.count} * (part + 1) / parts")
        out.open(f"for (long e{number} = {begin}; e{number} < {end}; ++e{number})")
    if not axes:
        out.open("if (!part)")
    outside = " + ".join([f"{axis.outside} * e{number}" for number, axis in enumerate(axes)] + [str(outside_origin)])
    inside = " + ".join([str(origin), *(f"{axis.inside} * e{number}" for number, axis in enumerate(axes))])
    for line in body(outside, inside):
        out.line(line)
    for _ in range(max(len(axes), 1)):
        out.close()
