"""Operators as loops: index expressions in one line, and the whole nest."""

from __future__ import annotations

import golden_files
import pytest
from hypothesis import given, settings
from strategies import pgraphs

from syno.algebra import VariableTable
from syno.ir.builder import Builder
from syno.ir.coordinates import expression, index_map, loop_nest
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.primitives import STRIDE, UNFOLD

deterministic = settings(deadline=None, derandomize=True, max_examples=60)


class TestLoops:
    @pytest.mark.parametrize(
        ("name", "line"),
        [
            (
                "conv2d",
                "y[i0, i1, i2, i3] = sum(r0, r1, r2) x[i0, r0, i2 + r1 - k//2, i3 + r2 - k//2] * w1[i1, r0, r1, r2]"
                "  where 0 <= i2 + r1 - k//2 < H and 0 <= i3 + r2 - k//2 < H",
            ),
            ("pixel_shuffle", "y[i0, i1, i2, i3] = x[i0, {s}*i1 + s*(i2%s) + (i3%s), i2//s, i3//s]"),
            ("matmul", "y[i0, i1] = sum(r0) x[i0, r0] * w1[r0, i1]"),
            ("channel_scale", "y[i0, i1, i2, i3] = x[i0, i1, i2, i3] * w1[i1]"),
        ],
    )
    def test_one_line(self, name: str, line: str) -> None:
        squared = VariableTable.parse("; s").size("s^2").integer_text().replace(" ", "")
        assert expression(OPERATORS[name]()) == line.replace("{s}", f"({squared})")

    @pytest.mark.parametrize("name", ["conv2d", "pixel_shuffle", "operator_2"])
    def test_golden_loop_nest(self, name: str) -> None:
        golden_files.check(f"{name}.loops.txt", loop_nest(OPERATORS[name]()))

    def test_an_operator_without_axes(self) -> None:
        graph = PGraph((), ())
        assert expression(graph) == "y[] = x[]"
        assert loop_nest(graph) == "y[] = 0\ny[] += x[]\n"

    @deterministic
    @given(pgraphs())
    def test_index_maps_have_an_expression_per_axis(self, graph: PGraph) -> None:
        at = index_map(graph)
        assert len(at.input) == len(graph.input)
        assert [len(axes) for axes in at.weights] == [len(weight) for weight in graph.weights]
        unfolds = [operation for operation in graph.operations if operation.primitive is UNFOLD]
        assert len(at.conditions) <= len(unfolds)
        assert all(extent in {operation.bottoms[0].size for operation in unfolds} for _, extent in at.conditions)
        if any(operation.primitive is STRIDE for operation in graph.operations):
            assert all(not dim.discards for dim in graph.input)


def test_a_quotient_of_a_quotient_is_put_together_again() -> None:
    build = Builder("A; k, s")
    (i,) = build.output("k*s*A")
    major, minor = build.merge(i, "k")
    graph = build.finish([build.split(build.split(*build.merge(major, "s")), minor)])
    assert expression(graph) == "y[i0] = x[i0]"
