"""The estimated time of operators in a network's layers."""

from __future__ import annotations

import pytest

import syno
from syno.algebra import Valuations
from syno.base.errors import SynoError
from syno.ir.graph import PGraph
from syno.lower.pytorch.statements import estimated_time, statements
from syno.search.policies.surrogate import Descriptions
from syno.space.presets import preset
from syno.space.space import Space


def layers(operator: PGraph, *sizes: int, **more: int) -> Valuations:
    given = {"N": 1, "C_in": 64, "C_out": 64, "k": 3, "k_1": 3, "g": 4, "s": 2, **more}
    return Valuations([{name: {**given, "H": size}[name] for name in operator.variables} for size in sizes])


def test_the_time_is_the_sum_over_layers_of_the_cheapest_form() -> None:
    operator = syno.OPERATORS["operator_1"]()
    times = [estimated_time(operator, layers(operator, size)) for size in (8, 16)]
    assert times[1] > 2 * times[0] > 0
    assert estimated_time(operator, layers(operator, 16, 16)) == pytest.approx(2 * times[1])
    both = estimated_time(operator, layers(operator, 8, 16))
    assert both >= sum(times) - 1e-9, "one form for all layers costs no less than the cheapest form of each"


def test_fewer_flops_in_calls_that_move_more_may_be_estimated_as_slower() -> None:
    convolution, separable = syno.OPERATORS["conv2d"](), syno.OPERATORS["separable_conv2d"]()
    ratios = [
        estimated_time(convolution, layers(convolution, H)) / estimated_time(separable, layers(separable, H)) for H in (4, 56)
    ]
    assert ratios[0] < ratios[1] < 7, "of 7.9 times as many FLOPs"
    assert statements(separable, layers(separable, 4)[0]).body.lines


def test_descriptions_with_times_end_in_the_logarithm_and_without_have_none() -> None:
    space = Space(preset("resnet18"))
    plain, timed = Descriptions(space), Descriptions(space, timed=True)
    operator = syno.OPERATORS["operator_2"]()
    one, other = plain.of_operator(operator), timed.of_operator(operator)
    assert one is not None and other is not None and other[:-1] == one and not plain.is_timed and timed.is_timed
    with pytest.raises(SynoError):
        estimated_time(operator, Valuations([dict.fromkeys(operator.variables, 7)]))
    assert timed.of_operator(syno.OPERATORS["gpt2_projection"]()) is None
