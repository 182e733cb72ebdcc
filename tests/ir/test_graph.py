"""pGraphs: values with content ids, and what can be read off them."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from small_dims import C, H, I, J, K, N, S, output
from strategies import pgraphs

from syno.algebra import ONE
from syno.base.errors import SizeError
from syno.ir import dim as dims
from syno.ir.builder import Builder
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.primitives import EXPAND, SHARE, UNFOLD

deterministic = settings(deadline=None, derandomize=True, max_examples=60)

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
    def test_ids_are_those_stored(self, name: str) -> None:
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
    def test_known_operators_are_pickled_and_copied(self, name: str) -> None:
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
    def test_random_operators_are_pickled(self, graph: PGraph) -> None:
        again = pickle.loads(pickle.dumps(graph))
        assert again == graph and again.name == graph.name


class TestRuntimeVariables:
    """Those that are read from the shape of the input."""

    @pytest.mark.parametrize(
        ("name", "variables"),
        [("conv2d", {"N", "H"}), ("matmul", {"M"}), ("sum_pool2d", {"N", "C", "H"}), ("nas_pte_sequence_3", {"N", "H"})],
    )
    def test_of_known_operators(self, name: str, variables: set[str]) -> None:
        assert OPERATORS[name]().runtime_variables == variables

    def test_a_variable_of_a_weight_or_a_reduction_is_not(self) -> None:
        build = Builder("N, C, H")
        n, y = build.output("N, H")
        assert build.finish([n, *build.contract(inner=[y])]).runtime_variables == {"N"}
        build = Builder("N, C, H")
        assert build.finish([*build.output("N"), *build.reduce("H")]).runtime_variables == {"N"}

    def test_a_length_that_has_a_variable_several_times(self) -> None:
        """It is read from an axis of `stride*H`, but from no axis that has two variables which are not known."""
        build = Builder("A, B; stride")
        first, second, third = build.output("stride*A, stride*A, B")
        graph = build.finish([build.split(first, third), second])
        assert str(graph.input[0].size) == "stride*A*B" and dict(graph.runtime_axes) == {
            "A": (1, graph.variables.size("stride"))
        }
        assert graph.runtime_values([60, 12], {"stride": 3, "B": 5}) == {"A": 4}


class TestUnchangedVariables:
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
        assert OPERATORS[name]().unchanged_variables == variables

    def of(self, output_shape: str, make: Callable[..., list[Dim]]) -> frozenset[str]:
        build = Builder("N, C, H, W; k, s")
        return build.finish(make(build, *build.output(output_shape))).unchanged_variables

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


def test_the_factor_of_a_stride_must_be_a_whole_number_too() -> None:
    build = Builder("C, H; g")
    (y,) = build.output("H")
    (tap,) = build.reduce("g")
    graph = build.finish([build.unfold(y, build.stride(tap, "g^-1*C"))])
    assert graph.valuation(C=4, H=5, g=2)["C"] == 4
    with pytest.raises(SizeError, match=r"size g\^-1\*C is 3/2"):
        graph.valuation(C=3, H=5, g=2)
