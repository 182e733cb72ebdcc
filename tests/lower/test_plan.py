"""Plans: their FLOPs, against published figures and against trying every order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import golden_files
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from strategies import pgraphs
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from syno.algebra import Valuation, Valuations
from syno.base.errors import LoweringError, SizeError, ValuationError
from syno.ir.builder import Builder
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.choose import plan
from syno.lower.cut import Cut, Structure
from syno.lower.plan import candidates, fewest_flops
from syno.lower.stages import contraction_schemes
from syno.paper.artifact.published_operator import read_artifact

FIRST_LAYER = {"N": 128, "C_in": 64, "C_out": 64, "H": 56}


def test_operator_1_takes_the_published_number_of_flops() -> None:
    chosen = plan(OPERATORS["operator_1"](), FIRST_LAYER)
    valuation = chosen.valuations[0]
    assert [stage.flops(valuation) for stage in chosen.stages] == [77_070_336, 7_398_752_256]
    assert chosen.published_flops(valuation) == 7_501_531_328
    assert chosen.parameters(valuation) == 18_432 + 192


@pytest.mark.slow
def test_every_published_operator_takes_the_published_number_of_flops(artifact: Path) -> None:
    for operator in read_artifact(artifact):
        layers = Valuations([operator.valuations[index] for index in operator.placeholders])
        chosen = fewest_flops(candidates(operator.graph, layers))
        computed = [chosen.published_flops(valuation) for valuation in operator.valuations]
        assert computed == list(operator.layer_flops), operator


def test_a_convolution_takes_one_multiply_add_per_summand() -> None:
    chosen = plan(OPERATORS["conv2d"](), FIRST_LAYER)
    assert chosen.flops() == 128 * 64 * 64 * 56 * 56 * 9


def test_a_sum_over_the_input_alone_comes_first_where_that_is_cheaper() -> None:
    build = Builder("N, C_in, C_out, H; s=2")
    n, o, y = build.output("N, C_out, H")
    c, r = build.reduce("C_in, s")
    (c,) = build.contract(outer=[o], inner=[c])
    graph = build.finish([n, c, build.split(y, r)])
    chosen = plan(graph, {"N": 2, "C_in": 5, "C_out": 7, "H": 3})
    assert [stage.weights for stage in chosen.stages] == [(), (1,)]
    assert chosen.flops() == 2 * 5 * 3 * 2 + 2 * 7 * 3 * 5


def test_the_table_shows_every_stage() -> None:
    chosen = plan(OPERATORS["operator_1"](), FIRST_LAYER)
    golden_files.check("operator_1.plan.txt", repr(chosen) + "\n")
    rows = ElementTree.fromstring(chosen._repr_html_()).findall("tbody/tr")
    first = chosen.costs(chosen.valuations[0])[0]
    assert [row[0].text for row in rows] == ["1", "2"] and rows[0][3].text == f"{first.flops:,}"


def test_peak_memory_is_that_of_the_largest_stage() -> None:
    chosen = plan(OPERATORS["conv1x1"](), {"N": 2, "C_in": 3, "C_out": 5, "H": 4})
    assert chosen.peak_memory_bytes(chosen.valuations[0]) == 4 * (2 * 3 * 16 + 2 * 5 * 16 + 15)


def test_composing_weights_saves_stages_but_not_always_flops() -> None:
    graph = OPERATORS["operator_1"]()
    composed = [one for one in candidates(graph, FIRST_LAYER, inference=True) if one.composition is not None]
    assert [len(one.stages) for one in composed] == [1]
    assert composed[0].flops() == 128 * 64 * 64 * 56 * 56 * 9
    assert plan(graph, FIRST_LAYER, inference=True).composition is None


def test_composing_a_bottleneck_that_is_no_bottleneck_saves_flops() -> None:
    wide = plan(OPERATORS["low_rank_conv1x1"](), {"N": 1, "C_in": 4, "C_out": 4, "H": 8, "r": 64}, inference=True)
    assert wide.composition is not None
    assert wide.flops() == 4 * 4 * 64


def test_a_plan_for_several_layers_adds_their_flops() -> None:
    rows = Valuations([{**FIRST_LAYER, "k": 3}, {"N": 128, "C_in": 128, "C_out": 128, "H": 28, "k": 3}])
    chosen = fewest_flops(candidates(OPERATORS["conv2d"](), rows))
    assert chosen.flops() == sum(chosen.flops(row) for row in rows)


def test_errors_name_what_is_missing_or_does_not_divide() -> None:
    with pytest.raises(ValuationError, match="no value for H; given: .*C_in=64"):
        plan(OPERATORS["conv2d"](), {"N": 1, "C_in": 64, "C_out": 64})
    with pytest.raises(SizeError, match=r"g\^-1\*C_in is 65/32"):
        plan(OPERATORS["operator_1"](), {**FIRST_LAYER, "C_in": 65})
    with pytest.raises(ValuationError, match='no variable "k_2"'):
        plan(OPERATORS["conv2d"](), {**FIRST_LAYER, "k_2": 7})


def test_a_stage_that_only_moves_elements_has_no_multiply_adds() -> None:
    """A group convolution has those of PyTorch's, which counts two FLOPs each; rearranged elements have none."""
    layer, x = nn.Conv2d(16, 24, 3, padding=1, groups=2, bias=False), torch.zeros(2, 16, 10, 10)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    sizes = {"N": 2, "C_in": 16, "C_out": 24, "H": 10}
    assert 2 * plan(OPERATORS["grouped_conv2d"](), sizes).flops() == counter.get_total_flops()
    for name in ("pixel_shuffle", "upsample_nearest", "tile2d"):
        operator = OPERATORS[name]()
        assert plan(operator, dict.fromkeys(operator.variables, 4)).flops() == 0
    assert plan(OPERATORS["sum_pool2d"](), {"N": 1, "C": 2, "H": 8, "s": 2}).flops() > 0  # sums are counted


def test_more_reductions_than_the_search_takes_are_refused() -> None:
    build = Builder("A; k=2")
    (i,) = build.output("A")
    dim = i
    for loop in build.reduce("k, k, k, k, k, k, k"):
        dim = build.split(dim, loop)
    with pytest.raises(LoweringError, match="sums 7 reductions in one stage; up to 6"):
        plan(build.finish([dim]), {"A": 2})


# ---- the search is exact ------------------------------------------------------------------------------------------------


def ordered_partitions(dims: tuple[Dim, ...]) -> Iterator[list[frozenset[Dim]]]:
    if not dims:
        yield []
        return
    first, rest = dims[0], dims[1:]
    for partition in ordered_partitions(rest):
        for place in range(len(partition) + 1):
            yield [*partition[:place], frozenset([first]), *partition[place:]]
            if place < len(partition):
                yield [*partition[:place], partition[place] | {first}, *partition[place + 1 :]]


def cost_of(structure: Structure, groups: list[frozenset[Dim]], valuation: Valuation) -> int | None:
    """Work of summing the input in this order, without any contraction; None if a sum surfaces before its turn."""
    cut = Cut(structure, structure.graph.input)
    work = 0
    for group in groups:
        for dim in group:
            cut.include(dim)
        if any(dim.is_reduce and dim not in group for dim in cut.dims):
            return None
        work += valuation.numel(dim.size for dim in cut.dims)
        cut.dims -= group
    return work


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(pgraphs(max_weights=0))
def test_no_order_of_sums_is_cheaper_than_the_plan(graph: PGraph) -> None:
    valuation = graph.variables.valuation()
    structure = Structure(graph)
    costs = [cost_of(structure, groups, valuation) for groups in ordered_partitions(graph.reduces)]
    possible = [cost for cost in costs if cost is not None]
    if graph.reduces:
        assert plan(graph, valuation).flops() == min(possible)


def test_schemes_respect_which_shares_lie_above_which() -> None:
    structure = Structure(OPERATORS["operator_1"]())
    assert set(contraction_schemes(structure)) == {((2,), (1,)), ((1, 2),)}
