"""The builder: what it numbers, orders and refuses."""

from __future__ import annotations

import pytest

from syno.base.errors import GraphError
from syno.ir.builder import Builder


class TestBuilder:
    def test_the_output_is_given_once(self) -> None:
        build = Builder("N, C")
        build.output("N")
        with pytest.raises(GraphError, match="the output's shape is given once"):
            build.output("C")

    def test_a_weight_is_made_before_it_is_shared(self) -> None:
        build = Builder("N")
        (i,) = build.output("N")
        for number in (1, 0, -1):
            with pytest.raises(GraphError, match=rf"there is no weight {number}; make one with weight\(\)"):
                build.share(i, number)

    def test_equal_reductions_are_numbered(self) -> None:
        build = Builder("N; k")
        loops = (*build.reduce("k, N, k"), *build.reduce("k"))
        assert [dim.operation and dim.operation.parameter for dim in loops] == [
            (build.table.size(size), number) for size, number in (("k", 0), ("N", 0), ("k", 1), ("k", 2))
        ]

    def test_a_contraction_has_outer_axes_before_inner_ones(self) -> None:
        build = Builder("C_in, C_out; k")
        (o,) = build.output("C_out")
        graph = build.finish(build.contract(outer=[o], inner=build.reduce("C_in, k")))
        assert [str(size) for size in graph.weight_sizes(1)] == ["C_out", "C_in", "k"]
        assert [str(dim.size) for dim in graph.expansions] == ["C_out"]

    def test_name_and_defaults_go_into_the_operator(self) -> None:
        build = Builder("N; k=3, g=2", name="some")
        graph = build.finish([*build.output("N"), *build.reduce("k")])
        assert graph.name == "some"
        assert graph.variables.defaults == {"k": 3}  # g does not occur
        assert str(graph.variables) == "N; k=3"
