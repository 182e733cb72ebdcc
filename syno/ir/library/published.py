"""Operators that the paper discovered, and operators with which it compares them.

The notation is that of `standard`; `(q, c)` is channel c of group q. Variables of discovered operators are named as in the
artifact (k_1, s, g, t; k stands for k_1 below), and the axes of their weights are in the order of its `metadata.json`.
"""

from __future__ import annotations

from syno.ir.builder import Builder, known_operator
from syno.ir.graph import PGraph

CONVOLUTION = "N, C_in, C_out, H; g=32, k_1=3, s=2"
GROUP_CHANNELS_AND_RANK = "g, g^-1*C_in, g^-1*s^-1*C_out"


@known_operator(CONVOLUTION)
def operator_1(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over q, c, p, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[...] * w2[...].

    The weights are read as w1[q, i, j, o, p] and w2[(q, c), j, p].

    p runs over C_out/(g*s) features of each of the g groups q. The columns' window j is read by both weights, so this is
    not two convolutions in a row.

    Source: paper, Figure 8 (case study, Operator 1); artifact 07889_15252107013978896537.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    i, j = build.reduce("k_1, k_1")
    q, c, p = build.reduce(GROUP_CHANNELS_AND_RANK)
    q, i, j, p = build.contract([q, i, j, o, p], outer=[o])
    channel, j = build.contract([build.split(q, c), j, p], outer=[p])
    return build.finish([n, channel, build.unfold(y, i), build.unfold(x, j)])


@known_operator(CONVOLUTION)
def operator_2(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over q, c, p, i, j of x[n, (q, c), (h + i - k//2 + 1) % H, v + j - k//2] * w1[...] * w2[...].

    The weights are read as w1[o, q, i, p] and w2[(q, c), j, p]: a grouped 1 x k convolution (w2), then a k x 1
    convolution (w1), of the input with its rows rotated by one. Borders are those of the rotated picture: a summand
    counts where 0 <= h + i - k//2 < H.

    Source: paper, Figure 9 (Operator 2); artifact 07754_18091915762600937904.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    i, j = build.reduce("k_1, k_1")
    q, c, p = build.reduce(GROUP_CHANNELS_AND_RANK)
    q, i, p = build.contract([o, q, i, p], outer=[o])
    channel, j = build.contract([build.split(q, c), j, p], outer=[p])
    return build.finish([n, channel, build.shift(build.unfold(y, i), 1), build.unfold(x, j)])


@known_operator(CONVOLUTION)
def stacked_convolution(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over q, i, j, p of z[n, (q, p), h + i - k//2, v + j - k//2] * w1[q, i, j, o, p], where
    z[n, (q, p), h, v] = sum over c, a of x[n, (q, c), h, v + a - k//2] * w2[(q, c), a, p].

    A grouped 1 x k convolution (w2), then a k x k convolution (w1): Operator 1's weights with a window of columns each
    in place of the shared one. z is zero outside, as padding between two layers is.

    Source: paper, Figure 8 (case study, stacked convolution); artifact manual_kernels/bs1/Conv2d_Conv1d.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    i, j, a = build.reduce("k_1, k_1, k_1")
    q, c, p = build.reduce(GROUP_CHANNELS_AND_RANK)
    q, i, j, p = build.contract([q, i, j, o, p], outer=[o])
    channel, a = build.contract([build.split(q, c), a, p], outer=[p])
    return build.finish([n, channel, build.unfold(y, i), build.unfold(build.unfold(x, j), a)])


@known_operator("N, seq_len, H_in; k_1=2, t=3")
def gpt2_projection(build: Builder) -> PGraph:
    """y[n, l, (e, (b, o))] = sum over c of x[n, l, (b, c)] * w1[e, c, o].

    Every group b of the input's features is multiplied by the same weight; a block e of the output holds o < B values of
    each group. It replaces the projection to queries, keys and values. With H = H_in, k_1 = 2, A = H/(8*t) and
    B = H/(16*t): y[n, l, u] = sum over c < H/2 of x[n, l, (u % A)//B * (H/2) + c] * w1[u//A, c, u % B].

    Source: paper, Figure 10 (GPT-2); artifact 05675_10993262425417760381.
    """
    n, position, feature = build.output("N, seq_len, t*H_in")
    e, rest = build.merge(feature, "k_1^-3*t^-1*H_in")
    b, o = build.merge(rest, "k_1^-4*t^-1*H_in")
    (c,) = build.reduce("k_1^-1*H_in")
    (c,) = build.contract([e, c, o], outer=[e, o])
    return build.finish([n, position, build.split(b, c)])


# The three sequences of program transformations that NAS-PTE applies to a convolution, as far as one pGraph can express them.
# A pGraph has one index map for all of its output. The originals of sequences 1 and 2 concatenate convolutions of different
# grouping, which is no such map; the docstrings say what is left out. `syno.model.replacements` has them whole, as PyTorch
# modules. Numbers are those of the authors' released code and of the artifact's folders `nas-pte/seq_1` to `seq_3`.


@known_operator("N, C_in, C_out, H; g=2, k=3, s=2")
def nas_pte_sequence_1(build: Builder) -> PGraph:
    """y[n, (p, q, o), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[p, q, o, c, i, j].

    Split, group, interchange, group: the output channels in s parts p, each a convolution of the whole input in g groups
    q. In the original every part has a number of groups of its own (2 and 4: 3/8 of a convolution's multiply-adds); here
    all have the same g (1/g of them).

    Source: Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3; artifact nas-pte/seq_1.
    """
    n, channel, y, x = build.output("N, C_out, H, H")
    part, rest = build.merge(channel, "s^-1*C_out")
    group, o = build.merge(rest, "g^-1*s^-1*C_out")
    group, c, i, j = build.contract([part, group, o, *build.reduce("g^-1*C_in, k, k")], outer=[part, o])
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator("N, C_in, C_out, H; g=2, k=3, u=16")
def nas_pte_sequence_2(build: Builder) -> PGraph:
    """y[n, (q, o, e), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[e, q, o, c, i, j].

    Unroll, group, interchange. The original computes u unrolled output channels from all inputs, and the C_out - u
    others in g groups of the C_in - u other inputs; C - u is no size (sizes are products). Here u divides the output
    channels instead, and all are grouped: a convolution in g groups whose weight has the unrolled loop e outermost. It
    takes 1/g of a convolution's multiply-adds; the original, with u = 16 and g = 2, 0.53 of them at 64 channels and
    0.50 at 512.

    Source: Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3; artifact nas-pte/seq_2.
    """
    n, channel, y, x = build.output("N, C_out, H, H")
    rest, unrolled = build.merge(channel, "u")
    group, o = build.merge(rest, "g^-1*u^-1*C_out")
    group, c, i, j = build.contract([unrolled, group, o, *build.reduce("g^-1*C_in, k, k")], outer=[unrolled, o])
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator("N, C_in, C_out, H; k=3, s=2")
def nas_pte_sequence_3(build: Builder) -> PGraph:
    """y[n, o, (p, h), v] = sum over c, i, j of x[n, c, (p, h + i - k//2), v + j - k//2] * w1[p, o, c, i, j].

    Split, interchange, group, interchange, fuse: the rows in s parts p, each convolved with weights of its own, with
    zeros beyond each part's own borders. This is the original, but that s must divide H (the artifact's code gives what
    is left over to the last part).

    Source: Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3; artifact nas-pte/seq_3.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    part, row = build.merge(y, "s^-1*H")
    part, c, i, j = build.contract([part, o, *build.reduce("C_in, k, k")], outer=[o])
    return build.finish([n, c, build.split(part, build.unfold(row, i)), build.unfold(x, j)])
