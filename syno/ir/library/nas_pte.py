"""The three sequences of program transformations that NAS-PTE applies to a convolution, as far as one pGraph can say them.

A pGraph has one index map for all of its output. The originals of sequences 1 and 2 concatenate convolutions of
different grouping, which is no such map; what is left out is said below. Numbers are those of the authors' released
code and of the artifact's folders `nas-pte/seq_1` to `seq_3`. Notation as in `published`.
"""

from __future__ import annotations

from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library.table import known_operator


@known_operator
def nas_pte_sequence_1() -> PGraph:
    """y[n, (p, q, o), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[p, q, o, c, i, j].

    Split, group, interchange, group: the output channels in s parts p, each a convolution of the whole input in g groups
    q. In the original every part has a number of groups of its own (2 and 4: 3/8 of a convolution's multiply-adds); here
    all have the same g (1/g of them).

    Source: Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3; artifact nas-pte/seq_1.
    """
    build = Builder("N, C_in, C_out, H; g=2, k=3, s=2", name="nas_pte_sequence_1")
    n, channel, y, x = build.output("N, C_out, H, H")
    part, rest = build.merge(channel, "s^-1*C_out")
    group, o = build.merge(rest, "g^-1*s^-1*C_out")
    c, i, j = build.reduce("g^-1*C_in, k, k")
    weight = build.weight()
    build.expand(build.share(part, weight))
    group = build.share(group, weight)
    build.expand(build.share(o, weight))
    c, i, j = (build.share(dim, weight) for dim in (c, i, j))
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator
def nas_pte_sequence_2() -> PGraph:
    """y[n, (q, o, e), h, v] = sum over c, i, j of x[n, (q, c), h + i - k//2, v + j - k//2] * w1[e, q, o, c, i, j].

    Unroll, group, interchange. The original computes u unrolled output channels from all inputs, and the C_out - u
    others in g groups of the C_in - u other inputs; C - u is no size (sizes are products). Here u divides the output
    channels instead, and all are grouped: a convolution in g groups whose weight has the unrolled loop e outermost. It
    takes 1/g of a convolution's multiply-adds; the original, with u = 16 and g = 2, 0.53 of them at 64 channels and
    0.50 at 512.

    Source: Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3; artifact nas-pte/seq_2.
    """
    build = Builder("N, C_in, C_out, H; g=2, k=3, u=16", name="nas_pte_sequence_2")
    n, channel, y, x = build.output("N, C_out, H, H")
    rest, unrolled = build.merge(channel, "u")
    group, o = build.merge(rest, "g^-1*u^-1*C_out")
    c, i, j = build.reduce("g^-1*C_in, k, k")
    weight = build.weight()
    build.expand(build.share(unrolled, weight))
    group = build.share(group, weight)
    build.expand(build.share(o, weight))
    c, i, j = (build.share(dim, weight) for dim in (c, i, j))
    return build.finish([n, build.split(group, c), build.unfold(y, i), build.unfold(x, j)])


@known_operator
def nas_pte_sequence_3() -> PGraph:
    """y[n, o, (p, h), v] = sum over c, i, j of x[n, c, (p, h + i - k//2), v + j - k//2] * w1[p, o, c, i, j].

    Split, interchange, group, interchange, fuse: the rows in s parts p, each convolved with weights of its own, with
    zeros beyond each part's own borders. This is the original, but that s must divide H (the artifact's code gives what
    is left over to the last part).

    Source: Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3; artifact nas-pte/seq_3.
    """
    build = Builder("N, C_in, C_out, H; k=3, s=2", name="nas_pte_sequence_3")
    n, o, y, x = build.output("N, C_out, H, H")
    part, row = build.merge(y, "s^-1*H")
    c, i, j = build.reduce("C_in, k, k")
    weight = build.weight()
    part = build.share(part, weight)
    build.expand(build.share(o, weight))
    c, i, j = (build.share(dim, weight) for dim in (c, i, j))
    return build.finish([n, c, build.split(part, build.unfold(row, i)), build.unfold(x, j)])
