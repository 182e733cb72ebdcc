"""A 1-d convolution, as text and as it is built."""

from __future__ import annotations

from syno.ir.builder import Builder
from syno.ir.graph import PGraph

CONV1D = """\
operator conv1d
variables C_in, C_out, N, W; k=3
output i0:N, i1:C_out, i2:W
r0:C_in = Reduce()
r1:k = Reduce()
d0:C_out = Share(i1, w1[0])
d1:C_in = Share(r0, w1[1])
d2:k = Share(r1, w1[2])
d3:W = Unfold(i2, d2)
Expand(d0)
input i0:N, d1:C_in, d3:W
weight w1[C_out, C_in, k]
"""


def conv1d() -> PGraph:
    build = Builder("N, C_in, C_out, W; k=3", name="conv1d")
    n, o, x = build.output("N, C_out, W")
    c, j = build.contract(outer=[o], inner=build.reduce("C_in, k"))
    return build.finish([n, c, build.unfold(x, j)])
