"""Operators written in several ways, and axes that may be renamed, rolled or mirrored."""

from __future__ import annotations

from syno.ir.graph import PGraph
from syno.ir.text import parse

CHANNELS = {"unordered_output": [1], "unordered_input": [1]}
ROLLED = {"rolled_output": [2, 3], "rolled_input": [2, 3]}
MIRRORED = {"mirrors": [((2, 3), (2, 3))]}


def op(body: str) -> PGraph:
    """An operator from its text, with lines separated by "; "."""
    return parse("operator test\nvariables N, C, D, H; b, c, k, s, t\n" + body.replace("; ", "\n"))


SAME = {
    "V1, a Split below a Merge": (
        "output i:b*H, j:c; a:b*c*H = Split(i, j); q:H, r:b*c = Merge(a, b*c); input q:H, r:b*c",
        "output i:b*H, j:c; q:H, m:b = Merge(i, b); r:b*c = Split(m, j); input q:H, r:b*c",
    ),
    "V2, Merges chained on the quotient": (
        "output i:b*c*H; q:c*H, r:b = Merge(i, b); p:H, m:c = Merge(q, c); input p:H, m:c, r:b",
        "output i:b*c*H; p:H, q:b*c = Merge(i, b*c); m:c, r:b = Merge(q, b); input p:H, m:c, r:b",
    ),
    "V3, Splits chained on the major": (
        "output i:H, j:b, l:c; a:b*H = Split(i, j); d:b*c*H = Split(a, l); input d:b*c*H",
        "output i:H, j:b, l:c; a:b*c = Split(j, l); d:b*c*H = Split(i, a); input d:b*c*H",
    ),
    "V4, a Split that undoes a Merge": (
        "output i:b*H; q:H, r:b = Merge(i, b); a:b*H = Split(q, r); input a:b*H",
        "output i:b*H; input i:b*H",
    ),
    "V5, Shifts add": (
        "output i:H; a:H = Shift(i, 1); d:H = Shift(a, 2); input d:H",
        "output i:H; d:H = Shift(i, 3); input d:H",
    ),
    "V5, Shifts that cancel": (
        "output i:H; a:H = Shift(i, 1); d:H = Shift(a, -1); input d:H",
        "output i:H; input i:H",
    ),
    "V7, Strides multiply": (
        "output i:H; r:k = Reduce(); a:k*s = Stride(r, s); d:k*s*t = Stride(a, t); e:H = Unfold(i, d); input e:H",
        "output i:H; r:k = Reduce(); d:k*s*t = Stride(r, s*t); e:H = Unfold(i, d); input e:H",
    ),
    "V8, a Stride above a Split": (
        "output i:H; r:k = Reduce(); p:c = Reduce(); a:c*k = Split(r, p); d:c*k*s = Stride(a, s); "
        "e:H = Unfold(i, d); input e:H",
        "output i:H; r:k = Reduce(); p:c = Reduce(); a:c*s = Stride(p, s); d:c*k*s = Split(r, a); "
        "e:H = Unfold(i, d); input e:H",
    ),
    "V9, a Merge above a Stride that divides its block": (
        "output i:H, j:H; r:b*k = Reduce(); a:b*k*s = Stride(r, s); q:k, m:b*s = Merge(a, b*s); "
        "d:H = Unfold(i, q); e:H = Unfold(j, m); input d:H, e:H",
        "output i:H, j:H; r:b*k = Reduce(); q:k, p:b = Merge(r, b); m:b*s = Stride(p, s); "
        "d:H = Unfold(i, q); e:H = Unfold(j, m); input d:H, e:H",
    ),
    "V16, a Merge above a Share": (
        "output i:b*H; a:b*H = Share(i, w1[0]); q:H, r:b = Merge(a, b); input q:H, r:b; weight w1[b*H]",
        "output i:b*H; p:H, m:b = Merge(i, b); r:b = Share(m, w1[0]); q:H = Share(p, w1[1]); input q:H, r:b; weight w1[b, H]",
    ),
    "V16, a Shift above a Share": (
        "output i:H; a:H = Share(i, w1[0]); d:H = Shift(a, 1); input d:H; weight w1[H]",
        "output i:H; a:H = Shift(i, 1); d:H = Share(a, w1[0]); input d:H; weight w1[H]",
    ),
    "V17, a Merge of a Reduce": (
        "output i:H; r:b*C = Reduce(); q:C, m:b = Merge(r, b); input i:H, q:C, m:b",
        "output i:H; q:C = Reduce(); m:b = Reduce(); input i:H, q:C, m:b",
    ),
    "V17, a Split of Reduces": (
        "output i:H; q:C = Reduce(); m:b = Reduce(); r:b*C = Split(q, m); input i:H, r:b*C",
        "output i:H; r:b*C = Reduce(); input i:H, r:b*C",
    ),
    "V18, a Shift of a Reduce": (
        "output i:H; r:C = Reduce(); a:C = Shift(r, 1); input i:H, a:C",
        "output i:H; r:C = Reduce(); input i:H, r:C",
    ),
    "V21, a Split of two shared with one weight": (
        "output i:H; q:C = Reduce(); m:b = Reduce(); d:C = Share(q, w1[0]); e:b = Share(m, w1[1]); a:b*C = Split(d, e); "
        "input i:H, a:b*C; weight w1[C, b]",
        "output i:H; q:C = Reduce(); m:b = Reduce(); d:b*C = Split(q, m); a:b*C = Share(d, w1[0]); "
        "input i:H, a:b*C; weight w1[b*C]",
    ),
    "the order of weights": (
        "output i:H; r:C = Reduce(); a:H = Share(i, w1[0]); d:C = Share(r, w2[0]); e:H = Share(a, w2[1]); "
        "input e:H, d:C; weight w1[H]; weight w2[C, H]",
        "output i:H; r:C = Reduce(); d:C = Share(r, w1[0]); e:H = Share(i, w1[1]); a:H = Share(e, w2[0]); "
        "input a:H, d:C; weight w1[C, H]; weight w2[H]",
    ),
    "a weight's axes": (
        "output i:H; r:C = Reduce(); d:C = Share(r, w1[0]); e:H = Share(i, w1[1]); input e:H, d:C; weight w1[C, H]",
        "output i:H; r:C = Reduce(); e:H = Share(i, w1[0]); d:C = Share(r, w1[1]); input e:H, d:C; weight w1[H, C]",
    ),
}
