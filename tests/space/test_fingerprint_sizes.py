"""Fingerprints of equal operators are equal also where sizes do not divide the values that most operators are compared at."""

from __future__ import annotations

import exact_spaces
import pytest
from rewritten_operators import op

from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.space import Space
from syno.space.identity.fingerprint import same_operator
from syno.space.identity.valuations import fused

MATMUL = """operator matmul
variables C, D; g=2
output i:D
r:C = Reduce()
a:D = Share(i, w1[0])
b:C = Share(r, w1[1])
Expand(a)
input b:C
weight w1[D, C]
"""
CUT = """operator matmul_by_pieces
variables C, D; g=2
output i:D
r:C = Reduce()
q:g^2, m:g^-2*D = Merge(i, g^-2*D)
a:g^2 = Share(q, w1[0])
d:g^-2*D = Share(m, w1[1])
b:C = Share(r, w1[2])
Expand(a)
Expand(d)
input b:C
weight w1[g^2, g^-2*D, C]
"""
SAME = {
    "expanded by one weight": (
        "output i:b*C; r:D = Reduce(); q:C, m:b = Merge(i, b); a:C = Share(q, w1[0]); e:b = Share(m, w1[1]); "
        "d:D = Share(r, w1[2]); Expand(a); Expand(e); input d:D; weight w1[C, b, D]",
        "output i:b*C; r:D = Reduce(); a:b*C = Share(i, w1[0]); d:D = Share(r, w1[1]); Expand(a); input d:D; weight w1[b*C, D]",
    ),
    "joined again above two weights": (
        "output i:b*C; q:C, m:b = Merge(i, b); a:C = Share(q, w1[0]); d:b = Share(m, w1[1]); e:C = Share(a, w2[0]); "
        "f:b = Share(d, w2[1]); l:b*C = Split(e, f); input l:b*C; weight w1[C, b]; weight w2[C, b]",
        "output i:b*C; a:b*C = Share(i, w1[0]); d:b*C = Share(a, w2[0]); input d:b*C; weight w1[b*C]; weight w2[b*C]",
    ),
    "two sums joined beside others of their sizes": (
        "output i:H; q:C = Reduce(); p:C = Reduce(); m:b = Reduce(); l:b*C = Reduce(); r:b*C = Split(q, m); "
        "input i:H, r:b*C, p:C, l:b*C",
        "output i:H; p:C = Reduce(); r:b*C = Reduce(); l:b*C = Reduce(); input i:H, r:b*C, p:C, l:b*C",
    ),
    "two sums joined": (
        "output i:H; q:C = Reduce(); m:b = Reduce(); r:b*C = Split(q, m); input i:H, r:b*C",
        "output i:H; r:b*C = Reduce(); input i:H, r:b*C",
    ),
}
KEPT = {
    "joined in the other order": "output i:b*C; q:C, m:b = Merge(i, b); l:b*C = Split(m, q); input l:b*C",
    "one piece with a weight of its own": (
        "output i:b*C; r:D = Reduce(); q:C, m:b = Merge(i, b); a:C = Share(q, w1[0]); e:b = Share(m, w1[1]); "
        "f:b = Share(e, w2[0]); d:D = Share(r, w1[2]); Expand(a); Expand(f); input d:D; weight w1[C, b, D]; weight w2[b]"
    ),
    "one piece read by the input": (
        "output i:b*C; q:C, m:b = Merge(i, b); a:C = Share(q, w1[0]); d:b = Share(m, w1[1]); Expand(a); "
        "input d:b; weight w1[C, b]"
    ),
}


def test_a_matmul_written_with_pieces_that_do_not_divide() -> None:
    space = Space(exact_spaces.channels(rules_off=("C9",)))
    whole, cut = parse(MATMUL), parse(CUT)
    assert space.fingerprint(cut) == space.fingerprint(whole)
    assert space.fingerprint(whole) == Space(exact_spaces.channels()).fingerprint(whole)


@pytest.mark.parametrize("name", SAME)
def test_pieces_that_stay_together_are_one_axis(name: str) -> None:
    pieces, whole = map(op, SAME[name])
    assert len(fused(pieces).sizes) == len(whole.sizes) <= len(pieces.sizes)
    assert len(fused(pieces).tops) + len(fused(pieces).operations) < len(pieces.tops) + len(pieces.operations)
    assert same_operator(pieces, fused(pieces))
    assert same_operator(fused(pieces), whole)


@pytest.mark.parametrize("name", KEPT)
def test_pieces_that_part_are_kept(name: str) -> None:
    graph = op(KEPT[name])
    assert fused(graph) is graph


def names_of_equal_operators(spec) -> list[set[str]]:
    """The fingerprints of each set of operators that are equal at valuations which the sizes of all of them divide."""
    from syno.space.identity.fingerprint import fingerprint
    from syno.space.identity.valuations import tiny_valuations, windows_of

    space = Space(spec)
    operators: list[PGraph] = [operator for _, operator in space.enumerate()]
    sizes = {size for operator in operators for size in operator.sizes}
    rows = tiny_valuations(sizes, {pair for operator in operators for pair in windows_of(operator)})
    found: dict[str, set[str]] = {}
    for operator in operators:
        name = fingerprint(
            operator, valuations=rows, unordered_output=spec.unordered_output, unordered_input=spec.unordered_input
        )
        found.setdefault(name, set()).add(space.fingerprint(operator))
    return list(found.values())


@pytest.mark.parametrize(
    "spec",
    [
        exact_spaces.channels(rules_off=("V1", "V4", "V16", "V21", "C9")),
        exact_spaces.picture(rules_off=("C9",), depth=3),
        exact_spaces.windows(rules_off=("V1", "V4", "V16", "V17")),
    ],
    ids=lambda spec: spec.name,
)
def test_equal_operators_of_a_space_have_equal_fingerprints(spec) -> None:
    names = names_of_equal_operators(spec)
    assert all(len(each) == 1 for each in names)
    assert len({name for each in names for name in each}) == len(names)
