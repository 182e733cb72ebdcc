"""The quick looks of a space: they refuse no Split that the shape distance allows, and codes of sizes stand for products."""

from __future__ import annotations

import pytest
import small_specs

from syno.algebra import Size, Variable, VariableKind, product
from syno.ir.primitives import SPLIT
from syno.space.space import Space
from syno.space.spec import OperatorSpec

READS = {"H": 3, "applied": 2}


@pytest.mark.parametrize(
    ("spec", "is_guide"),
    [
        (small_specs.convolution(), False),
        (small_specs.convolution(depth=6, reads=READS), True),
    ],
    ids=["all", "guide"],
)
def test_no_split_is_refused_that_the_distance_allows(spec: OperatorSpec, is_guide: bool) -> None:
    space, refused, states = Space(spec, is_guide=is_guide), 0, [Space(spec).root]
    assert space.feasibility.joins is not None
    for _ in range(spec.depth):
        for state in states:
            for step in space.candidates.of_kind(state, SPLIT):
                if not space.feasibility.joins.allow(step):
                    refused += 1
                    assert not space.is_feasible(step.taken()), (state, step.dims)
        states = [child for state in states for _, child in space.children(state)]
    assert refused > 10


def test_the_sum_of_codes_is_the_code_of_the_product() -> None:
    a, b = (
        Variable(name, kind)
        for name, kind in (("only_here_A", VariableKind.PRIMARY), ("only_here_b", VariableKind.COEFFICIENT))
    )
    sizes = [Size({a: 2, b: -1}), Size({b: -3}), Size({a: -5})]
    code = sum(size.code for size in sizes)  # of a size that nobody has made yet
    assert Size.of_code(code).exponents == ((a, -3), (b, -4))
    assert Size.of_code(code) is product(sizes)
