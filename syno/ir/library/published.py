"""Operators that the paper discovered, and those that it compares them with.

Variables are named as in the artifact (k_1, s, g, t), and the axes of a discovered operator's weights are in the order
of its `metadata.json`. Notation as in `standard`; `(q, c)` is channel c of group q, and k is k_1.
"""

from __future__ import annotations

from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library.table import known_operator

CONVOLUTION = "N, C_in, C_out, H; g=32, k_1=3, s=2"
GROUP_CHANNELS_AND_RANK = "g, g^-1*C_in, g^-1*s^-1*C_out"


@known_operator
def operator_1() -> PGraph:
    """y[n, o, h, v] = sum over q, c, p, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[...] * w2[...].

    The weights are read as w1[q, i, j, o, p] and w2[(q, c), j, p].

    p runs over C_out/(g*s) features of each of the g groups q. The columns' window j is read by both weights, so this is
    not two convolutions in a row.

    Source: paper, Figure 8 (case study, Operator 1); artifact 07889_15252107013978896537.
    """
    build = Builder(CONVOLUTION, name="operator_1")
    n, o, y, x = build.output("N, C_out, H, H")
    i, j = build.reduce("k_1, k_1")
    q, c, p = build.reduce(GROUP_CHANNELS_AND_RANK)
    w1 = build.weight()
    q, i, j = (build.share(dim, w1) for dim in (q, i, j))
    build.expand(build.share(o, w1))
    p = build.share(p, w1)
    w2 = build.weight()
    channel = build.share(build.split(q, c), w2)
    j = build.share(j, w2)
    build.expand(build.share(p, w2))
    return build.finish([n, channel, build.unfold(y, i), build.unfold(x, j)])


@known_operator
def operator_2() -> PGraph:
    """y[n, o, h, v] = sum over q, c, p, i, j of x[n, (q, c), (h + i - k//2 + 1) % H, v + j - k//2] * w1[...] * w2[...].

    The weights are read as w1[o, q, i, p] and w2[(q, c), j, p]: a grouped 1 x k convolution (w2), then a k x 1
    convolution (w1), of the input with its rows rotated by one. Borders are those of the rotated picture: a summand
    counts where 0 <= h + i - k//2 < H.

    Source: paper, Figure 9 (Operator 2); artifact 07754_18091915762600937904.
    """
    build = Builder(CONVOLUTION, name="operator_2")
    n, o, y, x = build.output("N, C_out, H, H")
    i, j = build.reduce("k_1, k_1")
    q, c, p = build.reduce(GROUP_CHANNELS_AND_RANK)
    w1 = build.weight()
    build.expand(build.share(o, w1))
    q, i, p = (build.share(dim, w1) for dim in (q, i, p))
    w2 = build.weight()
    channel = build.share(build.split(q, c), w2)
    j = build.share(j, w2)
    build.expand(build.share(p, w2))
    return build.finish([n, channel, build.shift(build.unfold(y, i), 1), build.unfold(x, j)])


@known_operator
def stacked_convolution() -> PGraph:
    """y[n, o, h, v] = sum over q, i, j, p of z[n, (q, p), h + i - k//2, v + j - k//2] * w1[q, i, j, o, p], where
    z[n, (q, p), h, v] = sum over c, a of x[n, (q, c), h, v + a - k//2] * w2[(q, c), a, p].

    A grouped 1 x k convolution (w2), then a k x k convolution (w1): Operator 1's weights with a window of columns each
    in place of the shared one. z is zero outside, as padding between two layers is.

    Source: paper, Figure 8 (case study, stacked convolution); artifact manual_kernels/bs1/Conv2d_Conv1d.
    """
    build = Builder(CONVOLUTION, name="stacked_convolution")
    n, o, y, x = build.output("N, C_out, H, H")
    i, j, a = build.reduce("k_1, k_1, k_1")
    q, c, p = build.reduce(GROUP_CHANNELS_AND_RANK)
    w1 = build.weight()
    q, i, j = (build.share(dim, w1) for dim in (q, i, j))
    build.expand(build.share(o, w1))
    p = build.share(p, w1)
    w2 = build.weight()
    channel = build.share(build.split(q, c), w2)
    a = build.share(a, w2)
    build.expand(build.share(p, w2))
    return build.finish([n, channel, build.unfold(y, i), build.unfold(build.unfold(x, j), a)])


@known_operator
def gpt2_projection() -> PGraph:
    """y[n, l, (e, (b, o))] = sum over c of x[n, l, (b, c)] * w1[e, c, o].

    Every group b of the input's features is multiplied by the same weight; a block e of the output holds o < B values of
    each group. It replaces the projection to queries, keys and values. With H = H_in, k_1 = 2, A = H/(8*t) and
    B = H/(16*t): y[n, l, u] = sum over c < H/2 of x[n, l, (u % A)//B * (H/2) + c] * w1[u//A, c, u % B].

    Source: paper, Figure 10 (GPT-2); artifact 05675_10993262425417760381.
    """
    build = Builder("N, seq_len, H_in; k_1=2, t=3", name="gpt2_projection")
    n, position, feature = build.output("N, seq_len, t*H_in")
    e, rest = build.merge(feature, "k_1^-3*t^-1*H_in")
    b, o = build.merge(rest, "k_1^-4*t^-1*H_in")
    (c,) = build.reduce("k_1^-1*H_in")
    weight = build.weight()
    build.expand(build.share(e, weight))
    c = build.share(c, weight)
    build.expand(build.share(o, weight))
    return build.finish([n, position, build.split(b, c)])
