"""The rules of the language: every way to break them, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_dims import C, H, I, J, K, N, S

from syno.algebra import ONE
from syno.base.errors import GraphError, SizeError
from syno.ir import dim as dims
from syno.ir.dim import Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import MERGE, REDUCE, SHIFT, SPLIT, TABLE


class TestRulesOfPrimitives:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Operation(SPLIT, None, (I,)), "Split takes 2 (major, minor) dims below it; given: 1"),
            (lambda: Operation(REDUCE, (K, 0), (I,)), "Reduce takes none dims below it; given: 1"),
            (lambda: Operation(SHIFT, 1, (I, J)), "Shift takes 1 (from) dims below it; given: 2"),
            (lambda: dims.split(I, I), "Split was given the same dim twice: output axis 0:H"),
            (lambda: dims.unfold(J, J), "Unfold was given the same dim twice: output axis 1:k"),
            (lambda: dims.shift(I, 0), "Shift carries a number of positions, not 0; given: 0"),
            (lambda: dims.merge(I, ONE), "Merge carries a block size; given: 1"),
            (lambda: dims.stride(I, ONE), "Stride carries a factor (a size); given: 1"),
            (lambda: dims.share(I, 0), "Share carries the number of a weight, from 1; given: 0"),
            (lambda: Operation(SPLIT, 1, (I, J)), "Split carries no parameter; given: 1"),
            (lambda: Operation(MERGE, 2, (I,)), "Merge carries a block size; given: 2"),
            (lambda: Operation(SHIFT, K, (I,)), "Shift carries a number of positions, not 0; given: k"),
            (lambda: Operation(REDUCE, K, ()), "Reduce carries a domain (a size) and a number that tells equal domains apart"),
            (lambda: dims.shift(dims.share(I, 1)[1], 1), "Shift above weight of Share:H: a weight's axis is final"),
            (lambda: dims.share(dims.share(I, 1)[1], 2), "Share above weight of Share:H: a weight's axis is final"),
            (lambda: dims.expand(dims.share(I, 1)[1]), "Expand above weight of Share:H: a weight's axis is final"),
        ],
    )
    def test_operators_that_break_a_rule_are_errors(self, make: Callable[[], object], message: str) -> None:
        for _ in range(2):  # a wrong operation is not remembered as if it were right
            with pytest.raises(GraphError) as error:
                make()
            assert message in str(error.value)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: dims.output_axis(0, K / S), "output axis 0 has size k*s^-1: coefficients may be in a denominator only"),
            (
                lambda: dims.output_axis(0, H / C),
                "output axis 0 has size C^-1*H: a primary variable may not be in a denominator",
            ),
            (lambda: dims.reduce(ONE / K), "has size k^-1: coefficients may be in a denominator only beside a primary"),
            (lambda: dims.merge(J, S), "the quotient above Merge(output axis 1:k) has size k*s^-1"),
            (lambda: dims.merge(I, C), "the quotient above Merge(output axis 0:H) has size C^-1*H"),
            (lambda: dims.merge(I, ONE / K), "the parameter of Merge has size k^-1"),
            (lambda: dims.stride(I, ONE / K), "the parameter of Stride has size k^-1"),
        ],
    )
    def test_illegal_sizes_are_errors(self, make: Callable[[], object], message: str) -> None:
        for _ in range(2):
            with pytest.raises(SizeError) as error:
                make()
            assert message in str(error.value)

    def test_the_table_is_complete_and_consistent(self) -> None:
        assert list(TABLE) == ["Split", "Merge", "Shift", "Expand", "Unfold", "Stride", "Reduce", "Share"]
        for name, row in TABLE.items():
            assert row.name == repr(row) == name
            assert row.rule.startswith("[") and "<-" in row.rule and row.meaning


class TestRulesOfGraphs:
    """Every way to break the language, and what is said about it."""

    def error(self, *arguments: object) -> str:
        with pytest.raises(GraphError) as error:
            PGraph(*arguments)  # type: ignore[arg-type]
        return str(error.value)

    def test_output_axes_are_numbered_in_order(self) -> None:
        assert self.error((J, I), (I, J)) == "output axis 0 is output axis 1:k; it must be output_axis(0, size)"
        shifted = dims.shift(I, 1)
        assert self.error((shifted,), (shifted,)) == "output axis 0 is to of Shift:H; it must be output_axis(0, size)"

    def test_an_output_axis_leads_somewhere(self) -> None:
        message = "output axis 1:k is used by nothing: lead it to the input, to a weight, or expand it"
        assert self.error((I, J), (I,)) == message

    def test_an_axis_of_another_output_is_not_used(self) -> None:
        assert self.error((I,), (I, J)) == "output axis 1:k is used, but it is no axis of this operator's output"
        other = dims.output_axis(0, N)
        assert self.error((I,), (I, other)) == "output axis 0:N is used, but it is no axis of this operator's output"

    def test_every_top_of_an_operation_leads_somewhere(self) -> None:
        quotient, remainder = dims.merge(I, K)
        assert self.error((I,), (quotient,)) == (
            "remainder of Merge:k is used by nothing: make it an axis of the input or of a weight, "
            "expand it, or put a primitive above it"
        )
        assert PGraph((I,), (quotient,), (), (remainder,)).expansions == (remainder,)

    def test_a_weight_side_is_an_axis_of_its_weight(self) -> None:
        data, axis = dims.share(I, 1)
        assert self.error((I,), (data,)).startswith("weight of Share:H is used by nothing")
        assert PGraph((I,), (data,), ((axis,),)).weights == ((axis,),)

    def test_a_data_side_leads_somewhere(self) -> None:
        _, axis = dims.share(I, 1)
        assert self.error((I,), (), ((axis,),)).startswith("data of Share:H is used by nothing")

    def test_a_dim_is_used_once(self) -> None:
        message = "output axis 0:H is used 2 times; a dim is used exactly once (Share it to read it twice)"
        assert self.error((I,), (I, I)) == message
        assert self.error((I,), (I,), (), (I,)) == message
        assert self.error((I,), (I, dims.shift(I, 1))) == message
        assert self.error((I,), (dims.shift(I, 2), dims.shift(I, 1))) == message
        data, axis = dims.share(I, 1)
        assert self.error((I,), (data,), ((axis, axis),)) == message.replace("output axis 0", "weight of Share")

    def test_a_weights_axis_does_not_index_the_input(self) -> None:
        data, axis = dims.share(I, 1)
        assert self.error((I,), (data, axis)) == "weight of Share:H is a weight's axis; it cannot index the input"

    def test_weights_have_axes(self) -> None:
        assert self.error((I,), (I,), ((),)) == "weight 1 has no axes; number weights from 1 without a gap"
        data, axis = dims.share(I, 2)
        assert self.error((I,), (data,), ((), (axis,))) == "weight 1 has no axes; number weights from 1 without a gap"

    def test_an_axis_of_a_weight_is_the_weight_side_of_its_own_share(self) -> None:
        message = "{} cannot be an axis of weight 1: its axes are the weight sides of its own Shares"
        data, axis = dims.share(I, 2)
        assert self.error((I,), (data,), ((axis,),)) == message.format("weight of Share:H")
        assert self.error((I, J), (I,), ((J,),)) == message.format("output axis 1:k")
        data, axis = dims.share(I, 1)
        assert self.error((I,), (axis,), ((data,),)) == "weight of Share:H is a weight's axis; it cannot index the input"
        assert self.error((I,), (), ((data,),), (axis,)) == message.format("data of Share:H")

    def test_a_weights_axis_is_not_expanded(self) -> None:
        data, axis = dims.share(I, 1)
        assert "weight" in self.error((I,), (data,), (), (axis,))

    def test_reductions_of_one_size_are_numbered_without_a_gap(self) -> None:
        message = "the reductions of size k are numbered {}; number them from 0 without a gap"
        assert self.error((I,), (I, dims.reduce(K, 1))) == message.format("[1]")
        assert self.error((I,), (I, dims.reduce(K, 0), dims.reduce(K, 2))) == message.format("[0, 2]")
        assert self.error((I,), (I, dims.reduce(K, -1), dims.reduce(K, 0))) == message.format("[-1, 0]")
        assert len(PGraph((I,), (I, dims.reduce(K, 1), dims.reduce(K, 0), dims.reduce(H, 0))).reduces) == 3

    @pytest.mark.parametrize("name", ["two\nlines", "with # comment", " spaces ", "a\u2028b", 'ends """ here', "back\\slash"])
    def test_a_name_is_one_line_of_text(self, name: str) -> None:
        """So that an operator's text gives its name back, and that it stays in the docstring of generated source."""
        message = f'an operator\'s name is {name!r}; it has letters (a to z), digits, "_", "-" and "."'
        assert self.error((I,), (I,), (), (), name).startswith(message)
        assert PGraph((I,), (I,), name="any-other_1.b").name == "any-other_1.b"
        with pytest.raises(GraphError, match="an operator's name is"):
            PGraph((I,), (I,)).renamed(name)

    def test_the_same_graph_always_gives_the_same_error(self) -> None:
        quotient, remainder = dims.merge(I, K)
        first = self.error((I, J), (quotient, J, J))
        assert all(self.error((I, J), (quotient, J, J)) == first for _ in range(3))
        assert repr(remainder) in first


class TestStrideIsPairedWithAWindow:
    def test_a_stride_may_not_index_the_input(self) -> None:
        with pytest.raises(GraphError) as error:
            PGraph((I,), (dims.stride(I, S),))
        assert str(error.value) == (
            "axis of Stride:s*H indexes the input through a Stride, which would skip elements: "
            "a Stride must lead to the window of an Unfold (or be expanded), as in a dilated convolution"
        )

    def test_a_window_takes_up_a_stride(self) -> None:
        axis = dims.unfold(I, dims.stride(J, S))
        assert not axis.discards
        assert PGraph((I, J), (axis,)).input == (axis,)

    def test_a_position_takes_up_no_stride(self) -> None:
        axis = dims.unfold(dims.stride(I, S), J)
        assert axis.discards
        with pytest.raises(GraphError, match="through a Stride"):
            PGraph((I, J), (axis,))

    def test_views_pass_a_stride_on(self) -> None:
        strided = dims.stride(J, S)
        for dim in (dims.shift(strided, 1), *dims.merge(strided, K), dims.split(I, strided), dims.split(strided, I)):
            assert dim.discards
        assert dims.share(strided, 1)[0].discards

    def test_a_view_between_stride_and_window_is_taken_up_too(self) -> None:
        assert not dims.unfold(I, dims.shift(dims.stride(J, S), 1)).discards
        assert not dims.unfold(I, dims.split(dims.stride(J, S), dims.reduce(C))).discards

    def test_a_strided_axis_may_be_expanded(self) -> None:
        assert PGraph((I, J), (I,), (), (dims.stride(J, S),)).expansions[0].discards

    def test_a_weight_is_not_skipped_over(self) -> None:
        data, axis = dims.share(dims.stride(J, S), 1)
        with pytest.raises(GraphError, match="weight of Share:k\\*s: share below the Stride, not above it"):
            PGraph((I, J), (dims.unfold(I, data),), ((axis,),))

    def test_a_share_below_the_stride_is_a_dilated_convolution(self) -> None:
        data, axis = dims.share(J, 1)
        graph = PGraph((I, J), (dims.unfold(I, dims.stride(data, S)),), ((axis,),))
        assert graph.weight_sizes(1) == (K,)
