"""Operators in common use, written in the language of pGraphs.

In the formulas `x` is the input, `y` the output, `w1`, `w2` the weights; a summand that reads `x` beyond a border is
zero. A window of even size k reaches k//2 positions back and k - 1 - k//2 ahead. Weights have the axes of their torch
counterparts in torch's order, or those axes split: then the torch tensor reshapes to ours without moving data.
"""

from __future__ import annotations

from syno.ir.builder import Builder, known_operator
from syno.ir.graph import PGraph


@known_operator("M, K, N")
def matmul(build: Builder) -> PGraph:
    """y[m, n] = sum over k of x[m, k] * w1[k, n].

    Source: linear algebra; torch `matmul`.
    """
    m, n = build.output("M, N")
    (k,) = build.reduce("K")
    (k,) = build.contract([k, n], outer=[n])
    return build.finish([m, k])


@known_operator("N, C_in, C_out, H; k=3")
def conv2d(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over c, i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[o, c, i, j].

    Source: LeCun 1998, gradient-based learning applied to document recognition; torch `conv2d`.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    c, i, j = build.contract(outer=[o], inner=build.reduce("C_in, k, k"))
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])


@known_operator("N, C_in, C_out, H")
def conv1x1(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over c of x[n, c, h, v] * w1[o, c]. The torch weight is [C_out, C_in, 1, 1].

    Source: Lin 2014, Network in Network; torch `conv2d`.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    (c,) = build.contract(outer=[o], inner=build.reduce("C_in"))
    return build.finish([n, c, y, x])


@known_operator("N, C_in, C_out, H; g=2, k=3")
def grouped_conv2d(build: Builder) -> PGraph:
    """y[n, (q, o), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[q, o, c, i, j].

    The g groups q of channels are convolved apart, each with weights of its own. The torch weight is
    [C_out, C_in/g, k, k], C_out being (g, C_out/g).

    Source: Xie 2017, ResNeXt; torch `conv2d(groups=g)`.
    """
    n, channel, y, x = build.output("N, C_out, H, H")
    group, o = build.merge(channel, "g^-1*C_out")
    group, c, i, j = build.contract([group, o, *build.reduce("g^-1*C_in, k, k")], outer=[o])
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator("N, C_in, C_out, H; g=2, k=3")
def grouped_conv2d_shared(build: Builder) -> PGraph:
    """y[n, (q, o), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[o, c, i, j].

    As `grouped_conv2d`, but the g groups q share one weight, of shape [C_out/g, C_in/g, k, k].

    Source: operators that the paper's authors published; many group channels this way.
    """
    n, channel, y, x = build.output("N, C_out, H, H")
    group, o = build.merge(channel, "g^-1*C_out")
    c, i, j = build.contract(outer=[o], inner=build.reduce("g^-1*C_in, k, k"))
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator("N, C_in, C_out, H; k=3, s=2")
def dilated_conv2d(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over c, i, j of x[n, c, h + s*i - (s*k)//2, v + s*j - (s*k)//2] * w1[o, c, i, j].

    A window of s*k positions of which every s-th is read. Its middle is that of the whole window, so for odd k it lies
    s//2 positions before that of a torch convolution with padding s*(k//2): pad (s*k)//2 in front and
    s*(k - 1) - (s*k)//2 behind, and they agree.

    Source: Yu 2016, multi-scale context aggregation by dilated convolutions; torch `conv2d(dilation=s)`.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    c, i, j = build.contract(outer=[o], inner=build.reduce("C_in, k, k"))
    return build.finish([n, c, build.unfold(y, build.stride(i, "s")), build.unfold(x, build.stride(j, "s"))])


@known_operator("N, C, H; k=3")
def depthwise_conv2d(build: Builder) -> PGraph:
    """y[n, c, h, v] = sum over i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[c, i, j]. The torch weight is [C, 1, k, k].

    Source: Howard 2017, MobileNets; torch `conv2d(groups=C)`.
    """
    n, c, y, x = build.output("N, C, H, H")
    c, i, j = build.contract(inner=[c, *build.reduce("k, k")])
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])


@known_operator("N, C_in, C_out, H; k=3")
def separable_conv2d(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over c, i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[o, c] * w2[c, i, j].

    A depth-wise convolution (w2), then a 1x1 convolution (w1).

    Source: Howard 2017, MobileNets.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    (c,) = build.contract(outer=[o], inner=build.reduce("C_in"))
    c, i, j = build.contract(inner=[c, *build.reduce("k, k")])
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])


@known_operator("N, C, H")
def channel_scale(build: Builder) -> PGraph:
    """y[n, c, h, v] = x[n, c, h, v] * w1[c].

    Source: Ioffe 2015, batch normalization (its scale alone).
    """
    n, c, y, x = build.output("N, C, H, H")
    (c,) = build.contract(inner=[c])
    return build.finish([n, c, y, x])


@known_operator("N, C_in, C_out, H; r=8")
def low_rank_conv1x1(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over q, c of x[n, c, h, v] * w1[o, q] * w2[q, c].

    Two 1x1 convolutions in a row, with r channels q in between.

    Source: Denton 2014, exploiting linear structure within convolutional networks.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    (q,) = build.contract(outer=[o], inner=build.reduce("r"))
    (c,) = build.contract(outer=[q], inner=build.reduce("C_in"))
    return build.finish([n, c, y, x])


@known_operator("N, C_in, C_out, H; k=3, r=8")
def low_rank_conv2d(build: Builder) -> PGraph:
    """y[n, o, h, v] = sum over q, c, i, j of x[n, c, h + i - k//2, v + j - k//2] * w1[o, q] * w2[q, c, i, j].

    A k x k convolution to r channels q (w2), then a 1x1 convolution to the output's (w1).

    Source: Zhang 2015, accelerating very deep convolutional networks.
    """
    n, o, y, x = build.output("N, C_out, H, H")
    (q,) = build.contract(outer=[o], inner=build.reduce("r"))
    c, i, j = build.contract(outer=[q], inner=build.reduce("C_in, k, k"))
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])
