"""Sizes and output axes that tests build operators from."""

from __future__ import annotations

from syno.algebra import Size, VariableTable
from syno.ir import dim as dims
from syno.ir.dim import Dim

SIZES = VariableTable.parse("N, C, H; k, s")
N, C, H, K, S = (SIZES.size(name) for name in ("N", "C", "H", "k", "s"))


def output(*sizes: Size) -> tuple[Dim, ...]:
    return tuple(dims.output_axis(index, size) for index, size in enumerate(sizes))


I, J = output(H, K)
