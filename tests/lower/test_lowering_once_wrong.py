"""Operators on which planning or lowering was once wrong, each with what it is about."""

from __future__ import annotations

import pytest
from agreement import check_compositions, check_every_form

from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.lower.choose import plan
from syno.lower.plan import candidates
from syno.model import build


def part_of_a_window_is_summed_before_its_weight() -> PGraph:
    build = Builder("A=5; k=3, s=2")
    i, j = build.output("A, A")
    r0, r1, r2, r3 = build.reduce("k, k, k, k")
    r0, r1, r2 = build.contract(outer=[j], inner=[r0, r1, r2])
    build.expand(build.stride(i, "s"))
    return build.finish([build.unfold(build.split(r2, build.shift(r0, 1)), build.split(r3, r1))])


def a_sum_without_a_weight_passes_a_convolution_by() -> PGraph:
    build = Builder("A=5; k=3")
    i, j, h = build.output("A, A, A")
    r0, r1, r2 = build.reduce("k, k, k")
    r0, r1 = build.contract(outer=[j, h], inner=[r0, r1])
    return build.finish([r2, r1, build.unfold(i, r0)])


def position_and_window_are_both_summed() -> PGraph:
    build = Builder("A=5, C=4; k=3")
    (i,) = build.output("A")
    position, window = build.reduce("C, k")
    return build.finish([i, build.unfold(position, window)])


def three_weights_are_read_at_one_coordinate() -> PGraph:
    build = Builder("A=5")
    (i,) = build.output("A")
    for _ in range(3):
        (i,) = build.contract(inner=[i])
    return build.finish([i])


def there_is_a_sum_and_no_weight() -> PGraph:
    build = Builder("A=5; k=3")
    (i,) = build.output("A")
    (r,) = build.reduce("k")
    return build.finish([i, r])


def two_weights_are_read_at_a_reduction_that_the_input_has_too() -> PGraph:
    build = Builder("A=5, C=4")
    (o,) = build.output("A")
    (c,) = build.reduce("C")
    (c,) = build.contract(outer=[o], inner=[c])
    (c,) = build.contract(inner=[c])
    return build.finish([c])


def two_windows_on_one_axis_are_summed_with_a_weight_that_widens() -> PGraph:
    build = Builder("N=2, C_out=8, C=3, H=7; k=3")
    n, o, y = build.output("N, C_out, H")
    c, r0, r1 = build.reduce("C, k, k")
    c, r0, r1 = build.contract(outer=[o], inner=[c, r0, r1])
    return build.finish([n, c, build.unfold(build.unfold(y, r0), r1)])


ONCE_WRONG = [
    part_of_a_window_is_summed_before_its_weight,
    a_sum_without_a_weight_passes_a_convolution_by,
    position_and_window_are_both_summed,
    three_weights_are_read_at_one_coordinate,
    there_is_a_sum_and_no_weight,
    two_weights_are_read_at_a_reduction_that_the_input_has_too,
    two_windows_on_one_axis_are_summed_with_a_weight_that_widens,
]


@pytest.mark.parametrize("make", ONCE_WRONG, ids=lambda make: make.__name__)
def test_operators_that_were_once_lowered_wrongly_agree_with_the_interpreter(make) -> None:
    graph = make()
    check_every_form(graph, graph.valuation())
    check_compositions(graph, graph.valuation())


def test_two_windows_on_one_axis_are_taken_of_the_data() -> None:
    graph = two_windows_on_one_axis_are_summed_with_a_weight_that_widens()
    source = build(graph).source
    assert "functional.conv1d(" in source
    assert "shear" not in source


def test_weights_that_wait_for_each_other_are_multiplied_in_together() -> None:
    make = Builder("A=3, B=4")
    i, j = make.output("A, B")
    first, second = make.weight(), make.weight()
    i = make.share(make.share(i, first), second)  # the first below the second ...
    j = make.share(make.share(j, second), first)  # ... and above it
    graph = make.finish([i, j])
    assert [stage.weights for stage in plan(graph, {}).stages] == [(1, 2)]
    assert len(candidates(graph, {})) == 1
    check_every_form(graph, graph.valuation())
