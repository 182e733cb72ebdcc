"""A known operator is reached in a space if and only if the space enumerates it, whichever rules are off."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import pytest
import small_specs
from truth import Truth

from syno import Builder, PGraph
from syno.algebra import product
from syno.base.errors import UnreachableError
from syno.space import OperatorSpec, Space
from syno.space.reach import reach
from syno.space.rules import RULES

OFF = [(), ("all",), *((name,) for name, row in RULES.items() if row.on)]


def some_of_each(**changes: object) -> OperatorSpec:
    """One of each view, and a weight."""
    fields = {
        "name": "some_of_each",
        "input": "C, H",
        "output": "C, H",
        "variables": "C:1, H:0; k=3:1",
        "layers": [{"C": 6, "H": 9}],
        "occurrences": {"reductions": 2, "merges": 1, "shifts": 1, "splits": 1, "unfolds": 1},
        "contractions": {"least_elements": 1},
        "repeats": {"largest": 1},
        "depth": 3,
        **changes,
    }
    return OperatorSpec(**fields)


SPECS = {
    "some_of_each": some_of_each(),
    "matmul": small_specs.matmul(depth=3),
    "convolution": small_specs.convolution(depth=3),
    "repeated": small_specs.repeated(depth=3),
}


@cache
def operators(name: str) -> tuple[PGraph, ...]:
    """All that the space holds without rules."""
    return tuple(operator for _, operator in Space(SPECS[name].with_(rules_off=("all",))).enumerate())


def reached(space: Space, operator: PGraph) -> PGraph | None:
    """The operator as the last step gives it, which numbers its weights in the order of their steps."""
    try:
        return reach(space, operator)[-1].step.operator
    except UnreachableError:
        return None


def agrees(name: str, off: tuple[str, ...]) -> None:
    space = Space(SPECS[name].with_(rules_off=off))
    enumerated = {operator for _, operator in space.enumerate()}
    found = {operator: reached(space, operator) for operator in operators(name)}
    assert enumerated <= set(found)
    assert all(found[operator] is not None for operator in enumerated)
    assert {operator for operator in found.values() if operator is not None} == enumerated


@pytest.mark.slow
@pytest.mark.parametrize("off", OFF, ids=lambda off: "+".join(off) or "none")
def test_reachable_operators_are_those_enumerated(off: tuple[str, ...]) -> None:
    agrees("some_of_each", off)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SPECS if name != "some_of_each"])
@pytest.mark.parametrize("off", OFF, ids=lambda off: "+".join(off) or "none")
def test_reachable_operators_are_those_enumerated_in_larger_spaces(name: str, off: tuple[str, ...]) -> None:
    agrees(name, off)


def test_an_operator_without_a_weight_is_neither_reached_nor_enumerated() -> None:
    build = Builder("C, H; k=3", name="shift")
    c, h = build.output("C, H")
    lone = build.finish([c, build.shift(h, 1)])
    space = Space(some_of_each(rules_off=("all",)))
    with pytest.raises(UnreachableError, match="it has no weight, and an operator has at least one"):
        reach(space, lone)
    assert lone not in {operator for _, operator in space.enumerate()}


def test_namings_of_axes_beyond_the_limit_are_not_reached() -> None:
    spec = OperatorSpec(
        input="C, H, H, H",
        output="D, H, H, H",
        variables="C:2, D:1, H:0",
        layers=[{"C": 16, "D": 16, "H": 4}],
        depth=2,
    )
    space = Space(spec)
    build = Builder("C, D, H", name="turned")
    d, *axes = build.output("D, H, H, H")
    (c,) = build.contract(outer=[d], inner=build.reduce("C"))
    kept = [operator for _, operator in space.enumerate()]
    assert len(kept) == spec.finalizations == 2
    graphs = [build.finish([c, *order]) for order in permutations(axes)]
    found = [reached(space, graph) for graph in graphs]
    assert {operator for operator in found if operator is not None} == set(kept)
    with pytest.raises(UnreachableError, match="finalizations is 2"):
        reach(space, graphs[found.index(None)])


def test_without_the_rule_on_matmuls_scalings_and_outer_products_are_found() -> None:
    spec = some_of_each(rules_off=("C5",), depth=2)
    found = list(Space(spec).enumerate())
    assert [(str(o.weights[0][0].size), o.expansions) for size, o in found if size == 1] == [("C", ())]
    assert {operator.id for _, operator in found} == Truth.of(spec).operators


def test_without_the_rule_on_bare_sums_they_are_summed_in_the_weight_alone() -> None:
    spec = some_of_each(rules_off=("C12", "C9", "C9p"), depth=3)
    found = [operator for _, operator in Space(spec).enumerate()]
    assert any(dim.operation.bottoms[0].is_reduce for o in found for dim in o.expansions)
    assert {operator.id for operator in found} == Truth.of(spec).operators


def test_sums_that_come_late_count_towards_the_largest_product_of_all() -> None:
    spec = OperatorSpec(
        input="C",
        output="D",
        variables="C:2, D:2",
        layers=[{"C": 8, "D": 8}],
        reductions={"multiple": 1},
        contractions={"least_elements": 1},
        rules_off=("all",),
        depth=3,
    )
    space = Space(spec)
    found = [operator for _, operator in space.enumerate()]
    assert found
    assert all(space.candidates.within_multiple(product(dim.size for dim in operator.reduces)) for operator in found)
