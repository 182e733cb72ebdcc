"""Exact rules lose nothing: a space holds the same functions with them and without.

Operators are compared by fingerprint at valuations that all their sizes divide, two of them, whatever the space compares at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import exact_spaces
import pytest

from syno.ir.graph import PGraph
from syno.space import OperatorSpec, Space
from syno.space.identity.fingerprint import fingerprint
from syno.space.identity.valuations import tiny_valuations, windows_of
from syno.space.rules import RULES

Make = Callable[..., OperatorSpec]
EXACT = [name for name, row in RULES.items() if row.exact and row.on]
ORDER = ("C1", "C7", "C8")  # off, they let each operator be built in many orders, which takes long
LEFT_OUT = {"V1p": 14, "V17p": 4}  # functions of C -> D of up to 4 primitives that a policy alone keeps out


def lost(spec: OperatorSpec, off: Collection[str]) -> list[PGraph]:
    """Operators that the space holds without these rules, and none like them with the rules."""
    ruled, free = ({o.id: o for _, o in Space(each).enumerate()} for each in (spec, spec.with_(rules_off=tuple(off))))
    assert ruled and ruled.keys() <= free.keys()
    sizes, windows = {s for o in free.values() for s in o.sizes}, {pair for o in free.values() for pair in windows_of(o)}
    rows = tiny_valuations(sizes, windows)
    axes = {"unordered_output": spec.unordered_output, "unordered_input": spec.unordered_input}
    held = {fingerprint(operator, valuations=rows, **axes) for operator in ruled.values()}
    others = (operator for id_, operator in free.items() if id_ not in ruled)
    found = {fingerprint(operator, valuations=rows, **axes): operator for operator in others}
    return [operator for name, operator in found.items() if name not in held]


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        exact_spaces.channels(),
        exact_spaces.picture(depth=3),
        exact_spaces.unordered(depth=3),
        exact_spaces.windows(),
        exact_spaces.two_weights(depth=3),
        exact_spaces.strided(),
        exact_spaces.heads(depth=3),
    ],
    ids=lambda spec: spec.name,
)
def test_exact_rules_lose_no_function(spec: OperatorSpec) -> None:
    assert lost(spec, [name for name in EXACT if name not in ORDER]) == []


@pytest.mark.slow
@pytest.mark.parametrize("make", exact_spaces.ALL, ids=lambda make: make.__name__)
def test_exact_rules_lose_no_function_of_four_primitives_in_any_order(make: Make) -> None:
    """So none of them loses one by itself: a space with one rule off holds no more than that with all of them off."""
    assert lost(make(), EXACT) == []


@pytest.mark.parametrize(("rule", "number"), LEFT_OUT.items())
def test_what_the_policies_leave_out_is_counted(rule: str, number: int) -> None:
    """Were V1p called exact, as all of V1 was, the tests above would fail on these functions."""
    assert len(lost(exact_spaces.channels(), [rule])) == number
