"""Fingerprints where channels may be in any order, and pictures rolled or mirrored."""

from __future__ import annotations

import itertools

import pytest
from rewritten_operators import CHANNELS, MIRRORED, ROLLED, op

from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.space.identity.fingerprint import same_operator

# ---- unordered axes -------------------------------------------------------------------------------------------------

SHUFFLE = "output n:N, i:b*C, y:H; q:C, r:b = Merge(i, b); a:b*C = Split(r, q); input n:N, a:b*C, y:H"
PLAIN = "output n:N, i:b*C, y:H; input n:N, i:b*C, y:H"
CARRY = (  # the next channel, in the last row only
    "output n:N, i:b*C, y:H; a:b*C*H = Split(i, y); d:b*C*H = Shift(a, 1); q:b*C, r:H = Merge(d, H); input n:N, q:b*C, r:H"
)
ROLL = "output n:N, i:b*C, y:H; r:H = Shift(y, 1); input n:N, i:b*C, r:H"


@pytest.mark.parametrize("free", [{"unordered_output": [1]}, {"unordered_input": [1]}, CHANNELS], ids=str)
def test_channels_in_another_order(free):
    assert not same_operator(op(SHUFFLE), op(PLAIN))
    assert same_operator(op(SHUFFLE), op(PLAIN), **free)


def test_one_order_of_channels_for_all_positions():
    assert not same_operator(op(CARRY), op(ROLL), **CHANNELS)


def test_other_axes_stay_ordered():
    assert not same_operator(op(ROLL), op(PLAIN), **CHANNELS)
    assert not same_operator(op(SHUFFLE), op(PLAIN), unordered_output=[2])


def test_one_ring_of_channels_or_many():
    """Every element of both has the same neighbourhood: only marking tells them apart."""
    ring = op(
        "output i:s*C; r:s = Reduce(); d:s*C = Share(i, w1[0]); e:s = Share(r, w1[1]); a:s^2*C = Split(d, e); "
        "f:s^2*C = Shift(a, 1); q:s*C, m:s = Merge(f, s); Expand(m); input q:s*C; weight w1[s*C, s]"
    )
    groups = op(
        "output i:s*C; r:s = Reduce(); d:s*C = Share(i, w1[0]); e:s = Share(r, w1[1]); q:C, m:s = Merge(d, s); Expand(m); "
        "a:s*C = Split(q, e); input a:s*C; weight w1[s*C, s]"
    )
    assert not same_operator(ring, groups, unordered_output=[0], unordered_input=[0])


def test_every_channel_once_or_one_of_them_often():
    """As many summands for every element, whichever look alike; a weight's elements that do are fewer."""
    rest = "; r:C = Reduce(); p:k = Reduce(); q:s = Reduce(); d:k = Share(p, w1[0]); e:s = Share(q, w1[1]); Expand(e); "
    mixed = op("output i:C" + rest + "Expand(i); input d:k, r:C; weight w1[k, s]")
    kept = op("output i:C" + rest + "Expand(r); input d:k, i:C; weight w1[k, s]")
    assert not same_operator(mixed, kept, unordered_output=[0], unordered_input=[1])


# ---- rolled and mirrored pictures -----------------------------------------------------------------------------------


def moved_operator_1(mirrored: bool, rolled: bool) -> PGraph:
    """Operator 1, its rows and columns exchanged, or the input's rows rotated.

    Source: the published operators 07883 (rolled) and 07835 (both).
    """
    build = Builder("N, C_in, C_out, H; g=32, k_1=3, s=2")
    n, o, y, x = build.output("N, C_out, H, H")
    i, j = build.reduce("k_1, k_1")
    q, c, p = build.reduce("g, g^-1*C_in, g^-1*s^-1*C_out")
    q, i, j, p = build.contract(outer=[o], inner=[q, i, j, p])
    channel, j = build.contract(outer=[p], inner=[build.split(q, c), j])
    rows, columns = (build.unfold(y, j), build.unfold(x, i)) if mirrored else (build.unfold(y, i), build.unfold(x, j))
    return build.finish([n, channel, build.shift(rows, 1) if rolled else rows, columns])


@pytest.mark.parametrize(("mirrored", "rolled"), [(True, False), (False, True), (True, True)])
def test_moved_pictures(mirrored, rolled):
    plain, moved = OPERATORS["operator_1"](), moved_operator_1(mirrored, rolled)
    assert same_operator(plain, moved_operator_1(False, False), **CHANNELS)
    for with_mirrors, with_rolls in itertools.product([False, True], repeat=2):
        free = {**CHANNELS, **(MIRRORED if with_mirrors else {}), **(ROLLED if with_rolls else {})}
        assert same_operator(plain, moved, **free) == (mirrored <= with_mirrors and rolled <= with_rolls)


def test_a_shift_of_some_channels_stays():
    for name in ("shift_conv1x1", "shift_rows_conv1x1"):
        assert not same_operator(OPERATORS[name](), OPERATORS["conv1x1"](), **CHANNELS, **ROLLED)
