"""The two published shape distances: known values, and what they change in a space."""

from __future__ import annotations

import pytest
import small_specs

from syno.algebra import VariableTable
from syno.base.errors import SpecError, UnreachableError
from syno.paper.distances.published import Formula, LiveAxis, Remaining, least_cost
from syno.space import Space
from syno.space.distance.problem import UNREACHABLE
from syno.space.options import DistanceKind
from syno.space.state_graph import why_empty

TABLE = VariableTable.parse("N, H, W, C_in; k, s")
FREE = 9  # primitives that may stand above an axis
Axes = dict[str, int]  # sizes, and the primitives that may stand above


def cost(formula: Formula, axes: Axes, wanted: str, most: int = UNREACHABLE, left: tuple[int, int, int] = (9, 9, 9)) -> int:
    live = [LiveAxis(TABLE.size(size), room) for size, room in axes.items()]
    return least_cost(live, TABLE.sizes(wanted), formula, most, Remaining(*left))


@pytest.mark.parametrize("formula", ["paper", "published"])
def test_the_example_of_the_paper(formula: Formula) -> None:
    assert cost(formula, {"C_in": FREE, "s^-1*H": FREE, "s*W": FREE, "k": FREE}, "C_in, H, W") == 3


def test_surplus_sizes_cost_two_in_the_program_and_one_in_the_formula() -> None:
    assert cost("published", {"k*H": FREE}, "H") == 2
    assert cost("paper", {"k*H": FREE}, "H") == 1
    assert cost("published", {"H": FREE, "k": FREE, "s": FREE}, "H") == 2
    assert cost("paper", {"H": FREE, "k": FREE, "s": FREE}, "H") == 1


@pytest.mark.parametrize(
    ("axes", "left", "expected"),
    [
        ({"N": 0, "H": 1, "W": 1}, (0, 0, 0), 0),
        ({"N": 1, "H*W": 1}, (0, 9, 9), UNREACHABLE),
        ({"N": 0, "H*W": 1}, (1, 9, 9), 1),
        ({"N": 0, "H": 1, "W": 1, "k": 1}, (9, 9, 0), UNREACHABLE),
        ({"N": 0, "H": 1, "W": 1, "k": 1}, (9, 9, 1), 1),
        ({"N": 0, "H": 1, "k^-1*W": 1, "k": 1}, (0, 1, 0), 1),
        ({"N": 0, "H": 1, "k^-1*W": 0, "k": 1}, (0, 1, 0), UNREACHABLE),
    ],
)
def test_limits_and_full_chains_in_the_program(axes: Axes, left: tuple[int, int, int], expected: int) -> None:
    assert cost("published", axes, "N, H, W", most=1, left=left) == expected


def test_no_grouping_where_a_size_is_missing() -> None:
    assert cost("paper", {"H": FREE}, "H, W") == cost("published", {"H": FREE}, "H, W") == UNREACHABLE


@pytest.mark.parametrize("kind", ["paper", "published"])
def test_a_space_with_it_holds_only_operators_of_the_space(kind: DistanceKind) -> None:
    spec = small_specs.convolution(depth=3)
    whole = {operator.id for _, operator in Space(spec).enumerate()}
    found = {operator.id for _, operator in Space(spec.with_(distance=kind)).enumerate()}
    assert found and found <= whole


def test_the_program_loses_an_operator_whose_contraction_ends_two_axes() -> None:
    (found,) = [operator for _, operator in Space(small_specs.two_ended()).enumerate()]
    assert [operator.id for _, operator in Space(small_specs.two_ended(distance="paper")).enumerate()] == [found.id]
    assert not list(Space(small_specs.two_ended(distance="published")).enumerate())
    with pytest.raises(UnreachableError, match="its distance is above"):
        Space(small_specs.two_ended(distance="published")).path(found)


def test_ids_of_specs_without_it_stay() -> None:
    spec = small_specs.convolution()
    assert spec.id == "2f92c90c5e532313b60fac09de2dcf86"
    assert spec.with_(distance="exact").id == spec.id and "distance" not in spec.dump()
    assert len({spec.with_(distance=kind).id for kind in ("exact", "paper", "published", "none")}) == 4


def test_a_space_whose_operators_it_all_loses_says_so() -> None:
    assert "give distance: exact" in why_empty(small_specs.two_ended(distance="published"))
    with pytest.raises(SpecError, match="distance"):
        small_specs.convolution(distance="papers")
