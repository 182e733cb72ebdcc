"""pGraphs: values with content ids, made by the rules of the language."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable

import golden_files
import pytest
from hypothesis import given, settings
from strategies import pgraphs

from syno.algebra import ONE, Size, VariableTable
from syno.errors import GraphError, SizeError
from syno.ir import dim as dims
from syno.ir.builder import Builder
from syno.ir.coordinates import index_map
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.loops import expression, loop_nest
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SHARE, SHIFT, SPLIT, STRIDE, TABLE, UNFOLD

SIZES = VariableTable.parse("N, C, H; k, s")
N, C, H, K, S = (SIZES.size(name) for name in ("N", "C", "H", "k", "s"))
deterministic = settings(deadline=None, derandomize=True, max_examples=60)


def output(*sizes: Size) -> tuple[Dim, ...]:
    return tuple(dims.output_axis(index, size) for index, size in enumerate(sizes))


class TestDims:
    def test_the_same_dim_is_one_object(self) -> None:
        i, j = output(H, K)
        assert output(H, K) == (i, j) and output(H, K)[1] is j
        assert dims.reduce(K) is dims.reduce(K, 0)
        assert dims.split(i, j) is dims.split(i, j)
        assert dims.merge(i, K)[1] is dims.merge(i, K)[1]
        assert dims.unfold(i, dims.reduce(K)) is dims.unfold(i, dims.reduce(K))
        assert dims.share(i, 1)[0] is dims.share(i, 1)[0]
        assert dims.expand(i) is dims.expand(i)

    def test_everything_that_tells_dims_apart_is_in_their_ids(self) -> None:
        i, j = output(H, H)
        k = dims.output_axis(2, K)
        all_different = [
            i,
            j,
            dims.output_axis(0, N),
            dims.reduce(H),
            dims.reduce(H, 1),
            dims.reduce(N),
            dims.split(i, j),
            dims.split(j, i),
            dims.unfold(i, j),
            dims.shift(i, 1),
            dims.shift(i, -1),
            dims.shift(j, 1),
            *dims.merge(i, K),
            *dims.merge(i, S),
            dims.stride(i, K),
            dims.stride(i, S),
            *dims.share(i, 1),
            *dims.share(i, 2),
            *dims.share(k, 1),
        ]
        assert len({dim.id for dim in all_different}) == len(set(all_different)) == len(all_different)

    def test_kinds_of_variables_are_in_ids(self) -> None:
        primary, coefficient = VariableTable.parse("a").size("a"), VariableTable.parse("; a").size("a")
        assert dims.output_axis(0, primary).id != dims.output_axis(0, coefficient).id

    def test_ids_are_32_hexadecimal_digits(self) -> None:
        assert len(dims.reduce(K).id) == 32 and int(dims.reduce(K).id, 16) >= 0

    def test_pickling_and_copying_gives_the_same_object(self) -> None:
        i, j = output(H, K)
        for dim in (i, dims.reduce(K, 1), dims.unfold(i, j), *dims.merge(i, K), *dims.share(dims.shift(i, 1), 1)):
            assert pickle.loads(pickle.dumps(dim)) is dim
            assert copy.deepcopy(dim) is dim
        operation = dims.expand(i)
        assert pickle.loads(pickle.dumps(operation)) is operation
        assert copy.deepcopy(operation) is operation

    def test_what_a_dim_is(self) -> None:
        i, j = output(H, K)
        data, weight = dims.share(i, 1)
        assert i.is_output and not i.is_reduce and i.primitive is None
        assert dims.reduce(K).is_reduce and not dims.reduce(K).is_output
        assert weight.is_weight_side and not data.is_weight_side
        assert dims.split(i, j).primitive is SPLIT

    def test_heights_count_the_longest_way_down(self) -> None:
        """As in the reference, but that a Reduce has height 0 here."""
        conv2d = OPERATORS["conv2d"]()
        assert [dim.height for dim in conv2d.input] == [0, 1, 2, 2]
        assert [dim.height for dim in conv2d.weights[0]] == [1, 1, 1, 1]

    def test_repr_names_the_dim_as_messages_do(self) -> None:
        i, j = output(H, K)
        assert [repr(dim) for dim in (i, dims.reduce(K), dims.merge(i, K)[0], dims.share(j, 1)[1])] == [
            "output axis 0:H",
            "Reduce:k",
            "quotient of Merge:k^-1*H",
            "weight of Share:k",
        ]
        assert repr(dims.expand(i)) == "Expand(output axis 0:H)"

    @pytest.mark.parametrize(
        ("make", "sizes"),
        [
            (lambda i, j: [dims.split(i, j)], "k*H"),
            (lambda i, j: dims.merge(i, S), "s^-1*H, s"),
            (lambda i, j: [dims.shift(i, 1)], "H"),
            (lambda i, j: [dims.unfold(i, j)], "H"),
            (lambda i, j: [dims.stride(j, S)], "k*s"),
            (lambda i, j: dims.share(j, 1), "k, k"),
            (lambda i, j: dims.expand(i).tops, ""),
        ],
    )
    def test_sizes_above(self, make: Callable[[Dim, Dim], list[Dim]], sizes: str) -> None:
        assert ", ".join(str(dim.size) for dim in make(*output(H, K))) == sizes


I, J = output(H, K)


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
    def test_broken_ones_are_errors(self, make: Callable[[], object], message: str) -> None:
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

    @pytest.mark.parametrize("name", ["two\nlines", "with # comment", " spaces ", "a\u2028b"])
    def test_a_name_is_one_line_of_text(self, name: str) -> None:
        """So that an operator's text gives its name back."""
        message = f'{name!r} cannot name an operator: a name is one line of text, without "#"'
        assert self.error((I,), (I,), (), (), name) == message
        assert PGraph((I,), (I,), name='any "other" 1').name == 'any "other" 1'

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

    def test_a_window_takes_it_up(self) -> None:
        axis = dims.unfold(I, dims.stride(J, S))
        assert not axis.discards
        assert PGraph((I, J), (axis,)).input == (axis,)

    def test_a_position_does_not(self) -> None:
        axis = dims.unfold(dims.stride(I, S), J)
        assert axis.discards
        with pytest.raises(GraphError, match="through a Stride"):
            PGraph((I, J), (axis,))

    def test_views_pass_it_on(self) -> None:
        strided = dims.stride(J, S)
        for dim in (dims.shift(strided, 1), *dims.merge(strided, K), dims.split(I, strided), dims.split(strided, I)):
            assert dim.discards
        assert dims.share(strided, 1)[0].discards

    def test_a_view_between_stride_and_window_is_taken_up_too(self) -> None:
        assert not dims.unfold(I, dims.shift(dims.stride(J, S), 1)).discards
        assert not dims.unfold(I, dims.split(dims.stride(J, S), dims.reduce(C))).discards

    def test_it_may_be_expanded(self) -> None:
        assert PGraph((I, J), (I,), (), (dims.stride(J, S),)).expansions[0].discards

    def test_a_weight_is_not_skipped_over(self) -> None:
        data, axis = dims.share(dims.stride(J, S), 1)
        with pytest.raises(GraphError, match="weight of Share:k\\*s: share below the Stride, not above it"):
            PGraph((I, J), (dims.unfold(I, data),), ((axis,),))

    def test_a_share_below_the_stride_is_a_dilated_convolution(self) -> None:
        data, axis = dims.share(J, 1)
        graph = PGraph((I, J), (dims.unfold(I, dims.stride(data, S)),), ((axis,),))
        assert graph.weight_sizes(1) == (K,)


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


GOLDEN_IDS = {  # the same on every machine and in every version: stored operators are found by them
    "conv2d": "962045187d9fdba14d3f4bcc9885d5df",
    "operator_1": "c8af236e4ad60cd5f1dc4dfbe547c349",
    "pixel_shuffle": "0c747ee6cfb0f50f6b78b904b0fc09a9",
}

PRINT_IDS = """
import random
from syno.algebra import VariableTable
VariableTable.parse("{first}").sizes("{first}")  # now sizes have other numbers inside
from syno.ir.library import OPERATORS
names = list(OPERATORS)
random.Random({seed}).shuffle(names)
graphs = {{name: OPERATORS[name]() for name in names}}
for name in sorted(graphs):
    graph = graphs[name]
    print(name, graph.id, *(operation.id for operation in graph.operations), *(dim.id for dim in graph.tops))
    print(graph)
    print([(label, dim.id) for dim, label in graph.labels.items()])
"""


class TestIds:
    @pytest.mark.parametrize("name", GOLDEN_IDS)
    def test_golden(self, name: str) -> None:
        assert OPERATORS[name]().id == GOLDEN_IDS[name]

    def test_two_processes_give_the_same_ids_labels_and_texts(self) -> None:
        """Whatever the seed of hashes, the order in which operators are built, and the numbers of variables inside."""
        texts = []
        for seed, first in (("1", "N"), ("2", "zebra, k, g, s, k_1, H, C_out, N"), ("3", "s, H, k, C_in")):
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            command = [sys.executable, "-c", PRINT_IDS.format(first=first, seed=seed)]
            texts.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        assert texts[0] == texts[1] == texts[2]
        own = {name: make().id for name, make in OPERATORS.items()}
        assert {line.split()[0]: line.split()[1] for line in texts[0].splitlines() if line.split(" ")[0] in own} == own

    def test_the_order_of_building_plays_no_part(self) -> None:
        def build(order: list[int]) -> PGraph:
            i, j = output(H, N)
            k = dims.reduce(K)
            parts: dict[int, Dim] = {}
            for step in order:
                parts[step] = [lambda: dims.unfold(i, k), lambda: dims.shift(j, 1), lambda: dims.reduce(C)][step]()
            return PGraph((i, j), (parts[0], parts[1], parts[2]))

        assert len({build(list(order)).id for order in itertools.permutations(range(3))}) == 1

    def test_everything_about_the_operator_is_in_its_id(self) -> None:
        quotient, remainder = dims.merge(I, K)
        one, two = dims.share(I, 1), dims.share(J, 1)
        graphs = [
            PGraph((I, J), (I, J)),
            PGraph((I, J), (J, I)),
            PGraph((I, J), (I,), (), (J,)),
            PGraph((I, J), (J,), (), (I,)),
            PGraph((I, J), (), (), (I, J)),
            PGraph((I,), (I,)),
            PGraph((I,), (quotient, remainder)),
            PGraph((I,), (remainder, quotient)),
            PGraph((I,), (quotient,), (), (remainder,)),
            PGraph((I, J), (one[0], two[0]), ((one[1], two[1]),)),
            PGraph((I, J), (one[0], two[0]), ((two[1], one[1]),)),
            PGraph((I, J), (one[0], dims.share(J, 2)[0]), ((one[1],), (dims.share(J, 2)[1],))),
            PGraph((), ()),
        ]
        assert len({graph.id for graph in graphs}) == len(set(graphs)) == len(graphs)

    def test_expansions_have_no_order(self) -> None:
        one, other = PGraph((I, J), (), (), (I, J)), PGraph((I, J), (), (), (J, I))
        assert one == other and one.id == other.id and one.expansions == other.expansions

    def test_name_and_defaults_play_no_part(self) -> None:
        graph = OPERATORS["conv2d"]()
        other = graph.renamed("another", N=4)
        assert other == graph and hash(other) == hash(graph) and other.id == graph.id
        assert (other.name, graph.name) == ("another", "conv2d")
        assert other.variables.defaults == {"k": 3, "N": 4} and graph.variables.defaults == {"k": 3}

    @deterministic
    @given(pgraphs(), pgraphs())
    def test_graphs_are_equal_where_their_ids_are(self, one: PGraph, other: PGraph) -> None:
        assert (one == other) == (one.id == other.id)


class TestStructure:
    @deterministic
    @given(pgraphs())
    def test_every_dim_has_a_label_of_its_own(self, graph: PGraph) -> None:
        reached = {dim for operation in graph.operations for dim in (*operation.bottoms, *operation.tops)}
        assert set(graph.labels) == reached | set(graph.tops) | set(graph.output) | set(graph.reduces)
        assert len(set(graph.labels.values())) == len(graph.labels)
        assert [graph.labels[dim] for dim in graph.output] == [f"i{axis}" for axis in range(len(graph.output))]
        assert [graph.labels[dim] for dim in graph.reduces] == [f"r{number}" for number in range(len(graph.reduces))]

    @deterministic
    @given(pgraphs())
    def test_operations_come_after_those_below_them(self, graph: PGraph) -> None:
        known = {*graph.output, *graph.reduces}
        for operation in graph.operations:
            assert known.issuperset(operation.bottoms)
            known.update(operation.tops)
        assert known == set(graph.labels)
        assert set(graph.expand_operations) <= set(graph.operations)

    @deterministic
    @given(pgraphs())
    def test_labels_follow_from_the_content(self, graph: PGraph) -> None:
        """Also where sets and dicts were filled in another order."""
        expansions = list(graph.expansions)
        random.Random(graph.id).shuffle(expansions)
        again = PGraph(graph.output, graph.input, graph.weights, tuple(expansions))
        assert list(again.labels.items()) == list(graph.labels.items())
        assert again.operations == graph.operations

    def test_reductions_are_ordered_by_size_then_number(self) -> None:
        loops = [dims.reduce(K, 1), dims.reduce(H), dims.reduce(K), dims.reduce(C)]
        assert PGraph((), tuple(loops)).reduces == (loops[3], loops[1], loops[2], loops[0])

    def test_iteration_space_counts_outputs_and_reductions(self) -> None:
        assert str(OPERATORS["conv2d"]().iteration_space) == "k^2*C_in*C_out*H^2*N"
        assert PGraph((), ()).iteration_space is ONE

    def test_labels_of_a_small_operator(self) -> None:
        graph = OPERATORS["conv2d"]()
        labels = "i0 i1 i2 i3 r0 r1 r2 d0 w1[0] d1 w1[1] d2 w1[2] d3 d4 w1[3] d5"
        assert list(graph.labels.values()) == labels.split()
        names = [operation.primitive.name for operation in graph.operations]
        assert names == ["Share", "Share", "Share", "Unfold", "Share", "Unfold", "Expand"]
        assert {operation.primitive for operation in graph.operations} == {SHARE, UNFOLD, EXPAND}

    def test_repr_shows_shapes_and_the_id(self) -> None:
        assert repr(OPERATORS["conv2d"]()) == (
            "<pGraph conv2d 96204518: [N, C_in, H, H], [C_out, C_in, k, k] -> [N, C_out, H, H]>"
        )

    def test_only_variables_that_occur_are_listed(self) -> None:
        graph = OPERATORS["conv2d"]().renamed("conv2d", unheard_of=3)
        assert list(graph.variables) == ["C_in", "C_out", "H", "N", "k"]
        strided = PGraph((I, J), (dims.unfold(I, dims.stride(J, S)),))
        assert list(strided.variables) == ["H", "k", "s"]


class TestPickling:
    @pytest.mark.parametrize("name", OPERATORS)
    def test_library(self, name: str) -> None:
        graph = OPERATORS[name]()
        for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
            assert again == graph and again.id == graph.id
            assert (again.name, again.defaults) == (graph.name, graph.variables.defaults)
            assert again.input == graph.input and all(one is other for one, other in zip(again.tops, graph.tops, strict=True))

    def test_an_operator_without_output_axes(self) -> None:
        graph = PGraph((), (dims.reduce(K), dims.reduce(H)), name="total")
        assert pickle.loads(pickle.dumps(graph)) == graph

    @deterministic
    @given(pgraphs())
    def test_random_operators(self, graph: PGraph) -> None:
        again = pickle.loads(pickle.dumps(graph))
        assert again == graph and again.name == graph.name


class TestRuntimeVariables:
    """Those whose value no computation needs, as a batch size."""

    @pytest.mark.parametrize(
        ("name", "variables"),
        [
            ("conv2d", {"N"}),
            ("conv1x1", {"N", "H"}),
            ("channel_scale", {"N", "H"}),
            ("matmul", {"M"}),
            ("pixel_shuffle", {"N"}),
            ("mqa_projection", {"N", "seq_len"}),
            ("sum_pool2d", {"N", "C"}),
            ("nas_pte_sequence_3", {"N"}),
        ],
    )
    def test_of_known_operators(self, name: str, variables: set[str]) -> None:
        assert OPERATORS[name]().runtime_variables == variables

    def of(self, output_shape: str, make: Callable[..., list[Dim]]) -> frozenset[str]:
        build = Builder("N, C, H, W; k, s")
        return build.finish(make(build, *build.output(output_shape))).runtime_variables

    def test_a_variable_that_is_used_elsewhere_is_needed(self) -> None:
        assert self.of("N, H, H", lambda build, n, y, x: [n, y, build.shift(x, 1)]) == {"N"}
        assert self.of("N, H", lambda build, n, y: [n, y, *build.reduce("H")]) == {"N"}
        assert self.of("N, H, k*H", lambda build, n, y, x: [n, y, *build.merge(x, "k")]) == {"N"}

    def test_a_variable_of_a_weight_is_needed(self) -> None:
        assert self.of("N, H", lambda build, n, y: [n, *build.contract(inner=[y])]) == {"N"}

    def test_a_variable_that_only_passes_is_not(self) -> None:
        assert self.of("N, H, H", lambda build, n, y, x: [x, n, y]) == {"N", "H"}

    def test_a_composite_size_does_not_tell_its_variables(self) -> None:
        """From a length of k*H alone, neither k nor H is known."""
        assert self.of("N, k*H", lambda build, n, y: [n, y]) == {"N"}
        assert self.of("N, H^2", lambda build, n, y: [n, y]) == {"N"}
        assert self.of("N, H, k*H", lambda build, n, y, x: [n, y, x]) == {"N"}
        assert self.of("N, k^-1*H", lambda build, n, y: [n, y]) == {"N"}

    def test_a_coefficient_may_pass_too(self) -> None:
        assert self.of("N, k", lambda build, n, y: [n, y]) == {"N", "k"}

    def test_an_expanded_axis_is_needed(self) -> None:
        def make(build: Builder, n: Dim, y: Dim) -> list[Dim]:
            build.expand(y)
            return [n]

        assert self.of("N, H", make) == {"N"}


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


def test_the_factor_of_a_stride_must_be_a_whole_number_too() -> None:
    build = Builder("C, H; g")
    (y,) = build.output("H")
    (tap,) = build.reduce("g")
    graph = build.finish([build.unfold(y, build.stride(tap, "g^-1*C"))])
    assert graph.valuation(C=4, H=5, g=2)["C"] == 4
    with pytest.raises(SizeError, match=r"size g\^-1\*C is 3/2"):
        graph.valuation(C=3, H=5, g=2)


def test_a_quotient_of_a_quotient_is_put_together_again() -> None:
    build = Builder("A; k, s")
    (i,) = build.output("k*s*A")
    major, minor = build.merge(i, "k")
    graph = build.finish([build.split(build.split(*build.merge(major, "s")), minor)])
    assert expression(graph) == "y[i0] = x[i0]"
