"""Fingerprints of different operators differ."""

from __future__ import annotations

import pytest
from rewritten_operators import CHANNELS, MIRRORED, ROLLED, op

from syno.base.errors import UnreachableError
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.space.identity.fingerprint import fingerprint, same_operator
from syno.space.identity.valuations import tiny_valuations
from syno.space.space import Space
from syno.space.spec import OperatorSpec

DIFFERENT = {
    "V6, a Shift above or below a Merge": (
        "output i:b*H; a:b*H = Shift(i, 1); q:H, r:b = Merge(a, b); input q:H, r:b",
        "output i:b*H; q:H, m:b = Merge(i, b); r:b = Shift(m, 1); input q:H, r:b",
    ),
    "V11, zeros beyond the border, or beyond that of a block": (
        "output i:H, j:c; r:k = Reduce(); a:c*H = Split(i, j); d:c*H = Unfold(a, r); input d:c*H",
        "output i:H, j:c; r:k = Reduce(); a:c = Unfold(j, r); d:c*H = Split(i, a); input d:c*H",
    ),
    "V12, an Unfold below a Merge, or above it": (
        "output i:c*H; r:k = Reduce(); a:c*H = Unfold(i, r); q:H, m:c = Merge(a, c); input q:H, m:c",
        "output i:c*H; r:k = Reduce(); q:H, a:c = Merge(i, c); m:c = Unfold(a, r); input q:H, m:c",
    ),
    "V14, a Shift above or below an Unfold": (
        "output i:H; r:k = Reduce(); a:H = Shift(i, 1); d:H = Unfold(a, r); input d:H",
        "output i:H; r:k = Reduce(); a:H = Unfold(i, r); d:H = Shift(a, 1); input d:H",
    ),
    "one more Shift": ("output i:H, j:H; a:H = Shift(j, 1); input i:H, a:H", "output i:H, j:H; input i:H, j:H"),
    "Shifts either way": ("output i:H; a:H = Shift(i, 1); input a:H", "output i:H; a:H = Shift(i, -1); input a:H"),
    "transposed": ("output i:H, j:H; input i:H, j:H", "output i:H, j:H; input j:H, i:H"),
    "shuffled": (
        "output i:b*c*H; q:H, r:b*c = Merge(i, b*c); m:b, p:c = Merge(r, c); a:b*c = Split(p, m); d:b*c*H = Split(q, a); "
        "input d:b*c*H",
        "output i:b*c*H; input i:b*c*H",
    ),
    "windows of k and of c": (
        "output i:H; r:k = Reduce(); a:H = Unfold(i, r); input a:H",
        "output i:H; r:c = Reduce(); a:H = Unfold(i, r); input a:H",
    ),
    "a weight instead of a sum": (
        "output i:H; r:C = Reduce(); a:C = Share(r, w1[0]); input i:H, a:C; weight w1[C]",
        "output i:H; r:C = Reduce(); input i:H, r:C",
    ),
    "a factor": ("output i:H; r:C = Reduce(); Expand(r); input i:H", "output i:H; input i:H"),
    "a weight for each row or each column": (
        "output i:H, j:H; a:H = Share(i, w1[0]); input a:H, j:H; weight w1[H]",
        "output i:H, j:H; a:H = Share(j, w1[0]); input i:H, a:H; weight w1[H]",
    ),
    "two weights in place of one, with as many elements": (
        "output i:H; r:H = Reduce(); a:H = Share(i, w1[0]); d:H = Share(r, w1[1]); Expand(a); input d:H; weight w1[H, H]",
        "output i:H; r:H = Reduce(); a:H = Share(i, w1[0]); d:H = Share(r, w2[0]); Expand(a); input d:H; "
        "weight w1[H]; weight w2[H]",
    ),
    "one window read by two weights, or two windows": (
        "output i:H; r:k = Reduce(); p:k = Reduce(); a:k = Share(r, w1[0]); d:k = Share(a, w2[0]); Expand(p); "
        "e:H = Unfold(i, d); input e:H; weight w1[k]; weight w2[k]",
        "output i:H; r:k = Reduce(); p:k = Reduce(); a:k = Share(r, w1[0]); d:k = Share(p, w2[0]); Expand(a); "
        "e:H = Unfold(i, d); input e:H; weight w1[k]; weight w2[k]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_operators(name):
    first, second = map(op, DIFFERENT[name])
    assert not same_operator(first, second)


def known_pictures() -> list[PGraph]:
    """The known operators on pictures, with the same variable for the size of any window."""
    graphs = [make() for make in OPERATORS.values()]
    texts = [str(graph).split("\nid ")[0] for graph in graphs if len(graph.input) == len(graph.output) == 4]
    return [parse(text.replace("k_1", "k")) for text in texts]


@pytest.mark.parametrize(
    ("free", "alike"),
    [
        ({}, {"nas_pte_sequence_2 grouped_conv2d"}),  # the unrolled loop is an axis of the weight
        (CHANNELS, {"nas_pte_sequence_1 nas_pte_sequence_2 grouped_conv2d"}),  # the parts are interleaved channels
    ],
    ids=["ordered", "unordered"],
)
def test_known_operators_differ(free, alike):
    graphs = known_pictures()
    rows = tiny_valuations([size for graph in graphs for size in graph.sizes])
    names: dict[str, list[str]] = {}
    for graph in graphs:
        names.setdefault(fingerprint(graph, valuations=rows, **free), []).append(graph.name)
    assert {" ".join(same) for same in names.values() if len(same) > 1} == alike


@pytest.mark.slow
def test_known_operators_differ_when_moved():
    graphs = known_pictures()
    assert len({fingerprint(graph, **CHANNELS, **MIRRORED) for graph in graphs}) == len(graphs)
    assert len({fingerprint(graph, **CHANNELS, **ROLLED) for graph in graphs}) == len(graphs)


def test_other_windows_and_transposed_pictures():
    conv2d = str(OPERATORS["conv2d"]()).split("\nid ")[0]
    transposed = parse(conv2d.replace("input i0:N, d1:C_in, d3:H, d5:H", "input i0:N, d1:C_in, d5:H, d3:H"))
    wider = parse(conv2d.replace("k=3", "k=5, l=3").replace("r2:k", "r2:l").replace("d4:k", "d4:l").replace("k, k]", "k, l]"))
    for other in (transposed, wider):
        assert not same_operator(parse(conv2d), other)
        assert not same_operator(parse(conv2d), other, **CHANNELS, **MIRRORED, **ROLLED)


def test_windows_along_sums_in_a_space():
    """Which its rules leave out (V19, V20) unless they are switched off."""
    first, second = (
        parse(f"""
        operator digits
        variables H=4, C=45; k=9, t=3
        output i:H
        r:k^-1*C = Reduce()
        p:k = Reduce()
        w:t = Reduce()
        a:k = Unfold(p, w)
        d:C = Split({digits})
        e:C = Share(d, w1[0])
        input i:H, e:C
        """)
        for digits in ("r, a", "a, r")
    )
    spec = OperatorSpec(
        input="H, C",
        output="H",
        bound_axes=[(0, 0)],
        variables="H:0, C:2; k=9:4, s=5:4, t=3:4",
        layers=[{"H": 4, "C": 45}],
        depth=7,
    )
    with pytest.raises(UnreachableError):
        Space(spec).path(first)
    for off in ("V19", "V20"):
        with pytest.raises(UnreachableError):
            Space(spec.with_(rules_off=("C1", "C5", "C6", "C14", off))).path(first)
    space = Space(spec.with_(rules_off=("C1", "C5", "C6", "C14", "V19", "V20")))
    assert len(space.path(first)) == len(space.path(second)) == 7
    assert space.fingerprint(first) != space.fingerprint(second)
