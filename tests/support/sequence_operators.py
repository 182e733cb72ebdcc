"""Operators for projections along a sequence, beside the published one."""

from __future__ import annotations

import syno


def dense() -> syno.PGraph:
    """What a linear layer computes."""
    build = syno.Builder("N, seq_len, H_in; t=3", name="dense")
    n, position, feature = build.output("N, seq_len, t*H_in")
    (c,) = build.contract(outer=[feature], inner=build.reduce("H_in"))
    return build.finish([n, position, c])


def window(size: int) -> syno.PGraph:
    """A projection of each position and its neighbours; those of a window of 2 come before."""
    build = syno.Builder(f"N, seq_len, H_in; k_1={size}, t=3", name=f"window_{size}")
    n, position, feature = build.output("N, seq_len, t*H_in")
    j, c = build.contract(outer=[feature], inner=build.reduce("k_1, H_in"))
    return build.finish([n, build.unfold(position, j), c])


LINEAR = syno.parse("""
operator linear
variables H_in, H_out, N, seq_len
output i0:N, i1:seq_len, i2:H_out
r0:H_in = Reduce()
d0:H_out = Share(i2, w1[0])
d1:H_in = Share(r0, w1[1])
Expand(d0)
input i0:N, i1:seq_len, d1:H_in
weight w1[H_out, H_in]
""")
