"""Operators in common use, written in the language of pGraphs.

In the formulas `x` is the input, `y` the output, `w1`, `w2` the weights; a summand that reads `x` beyond a border is
zero. A window of even size k reaches k//2 positions back and k - 1 - k//2 ahead. Weights have the axes of their torch
counterparts in torch's order, or those axes split: then the torch tensor reshapes to ours without moving data.
"""

from __future__ import annotations

from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library.table import known_operator


@known_operator
def matmul() -> PGraph:
    """y[m, n] = sum over k of x[m, k] * w1[k, n].

    Source: linear algebra; torch `matmul`.
    """
    build = Builder("M, K, N", name="matmul")
    m, n = build.output("M, N")
    (k,) = build.reduce("K")
    weight = build.weight()
    k = build.share(k, weight)
    build.expand(build.share(n, weight))
    return build.finish([m, k])


@known_operator
def conv2d() -> PGraph:
    """y[n, o, h, v] = sum over c, i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[o, c, i, j].

    Source: LeCun 1998, gradient-based learning applied to document recognition; torch `conv2d`.
    """
    build = Builder("N, C_in, C_out, H; k=3", name="conv2d")
    n, o, y, x = build.output("N, C_out, H, H")
    c, i, j = build.contract(outer=[o], inner=build.reduce("C_in, k, k"))
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])


@known_operator
def conv1x1() -> PGraph:
    """y[n, o, h, v] = sum over c of x[n, c, h, v] * w1[o, c]. The torch weight is [C_out, C_in, 1, 1].

    Source: Lin 2014, Network in Network; torch `conv2d`.
    """
    build = Builder("N, C_in, C_out, H", name="conv1x1")
    n, o, y, x = build.output("N, C_out, H, H")
    (c,) = build.contract(outer=[o], inner=build.reduce("C_in"))
    return build.finish([n, c, y, x])


@known_operator
def grouped_conv2d() -> PGraph:
    """y[n, (q, o), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[q, o, c, i, j].

    The g groups q of channels are convolved apart, each with weights of its own. The torch weight is
    [C_out, C_in/g, k, k], C_out being (g, C_out/g).

    Source: Xie 2017, ResNeXt; torch `conv2d(groups=g)`.
    """
    build = Builder("N, C_in, C_out, H; g=2, k=3", name="grouped_conv2d")
    n, channel, y, x = build.output("N, C_out, H, H")
    group, o = build.merge(channel, "g^-1*C_out")
    c, i, j = build.reduce("g^-1*C_in, k, k")
    weight = build.weight()
    group = build.share(group, weight)
    build.expand(build.share(o, weight))
    c, i, j = (build.share(dim, weight) for dim in (c, i, j))
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator
def grouped_conv2d_shared() -> PGraph:
    """y[n, (q, o), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[o, c, i, j].

    As `grouped_conv2d`, but the g groups q share one weight, of shape [C_out/g, C_in/g, k, k].

    Source: operators that the paper's authors published; many group channels this way.
    """
    build = Builder("N, C_in, C_out, H; g=2, k=3", name="grouped_conv2d_shared")
    n, channel, y, x = build.output("N, C_out, H, H")
    group, o = build.merge(channel, "g^-1*C_out")
    c, i, j = build.contract(outer=[o], inner=build.reduce("g^-1*C_in, k, k"))
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator
def dilated_conv2d() -> PGraph:
    """y[n, o, h, v] = sum over c, i, j of x[n, c, h + s*i - (s*k)//2, v + s*j - (s*k)//2] * w1[o, c, i, j].

    A window of s*k positions of which every s-th is read. Its middle is that of the whole window, so for odd k it lies
    s//2 positions before that of a torch convolution with padding s*(k//2): pad (s*k)//2 in front and
    s*(k - 1) - (s*k)//2 behind, and they agree.

    Source: Yu 2016, multi-scale context aggregation by dilated convolutions; torch `conv2d(dilation=s)`.
    """
    build = Builder("N, C_in, C_out, H; k=3, s=2", name="dilated_conv2d")
    n, o, y, x = build.output("N, C_out, H, H")
    c, i, j = build.contract(outer=[o], inner=build.reduce("C_in, k, k"))
    return build.finish([n, c, build.unfold(y, build.stride(i, "s")), build.unfold(x, build.stride(j, "s"))])


@known_operator
def depthwise_conv2d() -> PGraph:
    """y[n, c, h, v] = sum over i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[c, i, j]. The torch weight is [C, 1, k, k].

    Source: Howard 2017, MobileNets; torch `conv2d(groups=C)`.
    """
    build = Builder("N, C, H; k=3", name="depthwise_conv2d")
    n, c, y, x = build.output("N, C, H, H")
    c, i, j = build.contract(inner=[c, *build.reduce("k, k")])
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])


@known_operator
def separable_conv2d() -> PGraph:
    """y[n, o, h, v] = sum over c, i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[o, c] * w2[c, i, j].

    A depth-wise convolution (w2), then a 1x1 convolution (w1).

    Source: Howard 2017, MobileNets.
    """
    build = Builder("N, C_in, C_out, H; k=3", name="separable_conv2d")
    n, o, y, x = build.output("N, C_out, H, H")
    (c,) = build.contract(outer=[o], inner=build.reduce("C_in"))
    c, i, j = build.contract(inner=[c, *build.reduce("k, k")])
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])


@known_operator
def channel_scale() -> PGraph:
    """y[n, c, h, v] = x[n, c, h, v] * w1[c].

    Source: Ioffe 2015, batch normalization (its scale alone).
    """
    build = Builder("N, C, H", name="channel_scale")
    n, c, y, x = build.output("N, C, H, H")
    (c,) = build.contract(inner=[c])
    return build.finish([n, c, y, x])


@known_operator
def low_rank_conv1x1() -> PGraph:
    """y[n, o, h, v] = sum over q, c of x[n, c, h, v] * w1[o, q] * w2[q, c].

    Two 1x1 convolutions in a row, with r channels q in between.

    Source: Denton 2014, exploiting linear structure within convolutional networks.
    """
    build = Builder("N, C_in, C_out, H; r=8", name="low_rank_conv1x1")
    n, o, y, x = build.output("N, C_out, H, H")
    (q,) = build.contract(outer=[o], inner=build.reduce("r"))
    (c,) = build.contract(outer=[q], inner=build.reduce("C_in"))
    return build.finish([n, c, y, x])


@known_operator
def low_rank_conv2d() -> PGraph:
    """y[n, o, h, v] = sum over q, c, i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[o, q] * w2[q, c, i, j].

    A k x k convolution to r channels q (w2), then a 1x1 convolution to the output's (w1).

    Source: Zhang 2015, accelerating very deep convolutional networks.
    """
    build = Builder("N, C_in, C_out, H; k=3, r=8", name="low_rank_conv2d")
    n, o, y, x = build.output("N, C_out, H, H")
    (q,) = build.contract(outer=[o], inner=build.reduce("r"))
    c, i, j = build.contract(outer=[q], inner=build.reduce("C_in, k, k"))
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])
