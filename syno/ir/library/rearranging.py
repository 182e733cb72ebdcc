"""Operators that pool, repeat, shift or rearrange positions; most have no weight. Notation as in `standard`."""

from __future__ import annotations

from syno.ir.builder import Builder, known_operator
from syno.ir.graph import PGraph


@known_operator("N, C, H; s=2")
def sum_pool2d(build: Builder) -> PGraph:
    """y[n, c, h, v] = sum over i < s, j < s of x[n, c, s*h + i, s*v + j].

    Average pooling but for the scale: reductions are plain sums, so this is s*s times torch's `avg_pool2d`.

    Source: LeCun 1998, gradient-based learning applied to document recognition; torch `avg_pool2d(s)`.
    """
    n, c, y, x = build.output("N, C, s^-1*H, s^-1*H")
    i, j = build.reduce("s, s")
    return build.finish([n, c, build.split(y, i), build.split(x, j)])


@known_operator("N, C, H; s=2")
def pixel_shuffle(build: Builder) -> PGraph:
    """y[n, c, s*h + i, s*v + j] = x[n, s*s*c + s*i + j, h, v]: channels become positions, to s times the resolution.

    Source: Shi 2016, sub-pixel convolution; an example in the paper; torch `pixel_shuffle(s)`.
    """
    n, c, y, x = build.output("N, C, s*H, s*H")
    h, i = build.merge(y, "s")
    v, j = build.merge(x, "s")
    return build.finish([n, build.split(build.split(c, i), j), h, v])


@known_operator("N, C, H; s=2")
def upsample_nearest(build: Builder) -> PGraph:
    """y[n, c, s*h + i, s*v + j] = x[n, c, h, v]: each position s x s times.

    Source: paper, Table 1 (Expand above a Merge's remainder); torch `interpolate(mode="nearest")`.
    """
    n, c, y, x = build.output("N, C, s*H, s*H")
    h, i = build.merge(y, "s")
    v, j = build.merge(x, "s")
    build.expand(i)
    build.expand(j)
    return build.finish([n, c, h, v])


@known_operator("N, C, H; s=2")
def tile2d(build: Builder) -> PGraph:
    """y[n, c, H*i + h, H*j + v] = x[n, c, h, v]: the whole picture s x s times.

    Source: paper, Table 1 (Expand above a Merge's quotient); torch `tile`.
    """
    n, c, y, x = build.output("N, C, s*H, s*H")
    i, h = build.merge(y, "H")
    j, v = build.merge(x, "H")
    build.expand(i)
    build.expand(j)
    return build.finish([n, c, h, v])


@known_operator("N, C_in, C_out, H; s=2")
def shift_conv1x1(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over q < s, c of x[n, (q, c), (h + [q = 1]) % H, (v + [q = 0]) % H] * w1[o, q, c].

    A 1x1 convolution after a shift of channels in s groups q: group 0 is shifted by a column, group 1 by a row, the others not
    at all. It is written as a coordinate h*s + r that is shifted by one and split again, so that only r = s - 1 carries over
    into h. The original shifts in all nine directions and pads with zeros; this shift is cyclic. s >= 2.

    Source: Wu 2018, Shift: a zero FLOP, zero parameter alternative to spatial convolutions.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    q, c = build.reduce("s, s^-1*C_in")
    h, q = build.merge(build.shift(build.split(y, q), 1), "s")
    v, q = build.merge(build.shift(build.split(x, q), 1), "s")
    q, c = build.contract(outer=[o], inner=[q, c])
    return build.finish([n, build.split(q, c), h, v])


@known_operator("N, C_in, C_out, H; s=2")
def shift_rows_conv1x1(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over q < s, c of x[n, c, (h + [q = 0]) % H, v] * w1[o, q, c].

    As `shift_conv1x1`, but the group q indexes the weight: s 1x1 convolutions are added, the first of the picture shifted by a
    row.

    Source: operators that the paper's authors published; resnet18/06906_7346917085106034487 has it beside a window.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    q, c = build.reduce("s, C_in")
    h, q = build.merge(build.shift(build.split(y, q), 1), "s")
    (c,) = build.contract(outer=[o, q], inner=[c])
    return build.finish([n, c, h, x])


@known_operator("N, seq_len, H_in; t=3")
def mqa_projection(build: Builder) -> PGraph:
    """y[n, l, H_in*i + o] = sum over c of x[n, l, c] * w1[o, c], the same for every i < t.

    One projection is computed and repeated t times, as multi-query attention repeats its keys and values over the heads.

    Source: Shazeer 2019, fast transformer decoding: one write-head is all you need.
    """
    n, position, feature = build.output("N, seq_len, t*H_in")
    repeated, o = build.merge(feature, "H_in")
    build.expand(repeated)
    (c,) = build.contract(outer=[o], inner=build.reduce("H_in"))
    return build.finish([n, position, c])
