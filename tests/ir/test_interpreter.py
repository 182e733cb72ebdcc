"""The interpreter: each row of Table 1 by hand, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import pgraphs

from syno.base.errors import GraphError, ShapeError, SizeError, ValuationError
from syno.ir.builder import Builder
from syno.ir.coordinates import coordinates
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.primitives import REDUCE, TABLE
from syno.lower import interpreter
from syno.lower.interpreter import interpret, shapes


def of(variables: str, output: str, make: Callable[..., list]) -> PGraph:
    """The operator whose input axes `make(build, *output axes)` returns."""
    build = Builder(variables)
    return build.finish(make(build, *build.output(output)))


def counted(*shape: int) -> np.ndarray:
    """1, 2, 3 ... in that shape: no element is zero, and each can be told from the others."""
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape)


class TestPrimitives:
    """Outputs written down by hand from the paper's Table 1."""

    def test_split_reads_a_group_and_a_position_in_it(self) -> None:
        graph = of("G=2, B=3", "G, B", lambda build, i, j: [build.split(i, j)])
        assert interpret(graph, {}, np.array([1, 2, 3, 4, 5, 6])).tolist() == [[1, 2, 3], [4, 5, 6]]

    def test_split_in_the_other_order_transposes(self) -> None:
        graph = of("G=2, B=3", "G, B", lambda build, i, j: [build.split(j, i)])
        assert interpret(graph, {}, np.array([1, 2, 3, 4, 5, 6])).tolist() == [[1, 3, 5], [2, 4, 6]]

    def test_merge_reads_two_axes_as_one(self) -> None:
        graph = of("N=2; b=3", "b*N", lambda build, i: list(build.merge(i, "b")))
        assert interpret(graph, {}, np.array([[1, 2, 3], [4, 5, 6]])).tolist() == [1, 2, 3, 4, 5, 6]

    def test_merge_with_its_axes_swapped_interleaves(self) -> None:
        graph = of("N=2; b=3", "b*N", lambda build, i: list(reversed(build.merge(i, "b"))))
        assert interpret(graph, {}, np.array([[1, 2], [3, 4], [5, 6]])).tolist() == [1, 3, 5, 2, 4, 6]

    @pytest.mark.parametrize(
        ("amount", "expected"),
        [(1, [2, 3, 4, 1]), (-1, [4, 1, 2, 3]), (3, [4, 1, 2, 3]), (-6, [3, 4, 1, 2]), (4, [1, 2, 3, 4])],
    )
    def test_shift_rotates(self, amount: int, expected: list[int]) -> None:
        graph = of("N=4", "N", lambda build, i: [build.shift(i, amount)])
        assert interpret(graph, {}, np.array([1, 2, 3, 4])).tolist() == expected

    def test_expand_repeats(self) -> None:
        def make(build, i, j):
            build.expand(j)
            return [i]

        graph = of("N=2, C=3", "N, C", make)
        assert interpret(graph, {}, np.array([5, 7])).tolist() == [[5, 5, 5], [7, 7, 7]]

    def test_expand_above_a_reduction_multiplies_by_its_size(self) -> None:
        def make(build, i):
            build.expand(*build.reduce("C"))
            return [i]

        graph = of("N=2, C=3", "N", make)
        assert interpret(graph, {}, np.array([5, 7])).tolist() == [15, 21]

    @pytest.mark.parametrize(
        ("window", "expected"),
        [  # rows are positions, columns the window
            (1, [[1], [2], [3], [4]]),
            (2, [[0, 1], [1, 2], [2, 3], [3, 4]]),
            (3, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0]]),
            (4, [[0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 0]]),
            (5, [[0, 0, 1, 2, 3], [0, 1, 2, 3, 4], [1, 2, 3, 4, 0], [2, 3, 4, 0, 0]]),
            (
                11,
                [
                    [0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0],
                    [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0],
                    [0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0],
                    [0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0],
                ],
            ),
        ],
    )
    def test_unfold_reads_a_window_with_zeros_outside(self, window: int, expected: list[list[int]]) -> None:
        graph = of(f"N=4; k={window}", "N, k", lambda build, i, j: [build.unfold(i, j)])
        assert interpret(graph, {}, np.array([1, 2, 3, 4])).tolist() == expected

    def test_outside_of_a_window_the_whole_summand_is_zero(self) -> None:
        """Not only what is read there: the repeated axis has zeros at the borders too."""

        def make(build, i, j):
            build.expand(build.unfold(i, j))
            return []

        graph = of("N=3; k=3", "N, k", make)
        assert interpret(graph, {}, np.array(7)).tolist() == [[0, 7, 7], [7, 7, 7], [7, 7, 0]]

    def test_a_shifted_window_has_zeros_where_the_window_leaves_the_rotated_axis(self) -> None:
        graph = of("N=4; k=3", "N, k", lambda build, i, j: [build.shift(build.unfold(i, j), 1)])
        assert interpret(graph, {}, np.array([1, 2, 3, 4])).tolist() == [[0, 2, 3], [2, 3, 4], [3, 4, 1], [4, 1, 0]]

    @pytest.mark.parametrize(
        ("stride", "expected"),
        [(1, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0]]), (2, [[0, 0, 2], [0, 1, 3], [0, 2, 4], [1, 3, 0]])],
    )
    def test_stride_dilates_the_window_it_is_paired_with(self, stride: int, expected: list[list[int]]) -> None:
        """[i, j] reads i + S*j - (S*K)//2."""
        graph = of(f"N=4; k=3, s={stride}", "N, k", lambda build, i, j: [build.unfold(i, build.stride(j, "s"))])
        assert interpret(graph, {}, np.array([1, 2, 3, 4])).tolist() == expected

    def test_reduce_sums(self) -> None:
        graph = of("N=2, C=3", "N", lambda build, i: [i, *build.reduce("C")])
        assert interpret(graph, {}, np.array([[1, 2, 3], [4, 5, 6]])).tolist() == [6, 15]

    def test_reducing_everything_gives_one_number(self) -> None:
        graph = of("C=3, H=2", "", lambda build: list(build.reduce("C, H")))
        result = interpret(graph, {}, counted(3, 2))
        assert result.shape == () and result == 21

    def test_share_multiplies_with_the_weight_at_the_same_coordinate(self) -> None:
        graph = of("N=2, C=3", "N, C", lambda build, i, j: [i, *build.contract(inner=[j])])
        assert interpret(graph, {}, np.array([[1, 2, 3], [4, 5, 6]]), np.array([10, 100, 1000])).tolist() == [
            [10, 200, 3000],
            [40, 500, 6000],
        ]

    def test_two_shares_multiply_twice(self) -> None:
        def make(build, i):
            (i,) = build.contract(inner=[i])
            return build.contract(inner=[i])

        graph = of("N=2", "N", make)
        assert interpret(graph, {}, np.array([2, 3]), np.array([5, 7]), np.array([11, 13])).tolist() == [110, 273]

    def test_a_contraction_is_a_matrix_product(self) -> None:
        graph = of("M=2, K=3, N=2", "M, N", lambda build, m, n: [m, *build.contract(outer=[n], inner=build.reduce("K"))])
        x, w = counted(2, 3), counted(2, 3)
        assert interpret(graph, {}, x, w).tolist() == (x @ w.T).tolist() == [[14, 32], [32, 77]]

    def test_axes_of_input_and_weights_come_in_the_order_given(self) -> None:
        def make(build, i, j):
            weight = build.weight()
            j = build.share(j, weight)
            i = build.share(i, weight)
            return [j, i]

        graph = of("N=2, C=3", "N, C", make)
        x, w = counted(3, 2), counted(3, 2) * 100
        assert shapes(graph, graph.variables.valuation()) == ((3, 2), [(3, 2)], (2, 3))
        assert interpret(graph, {}, x, w).tolist() == (x * w).T.tolist()

    def test_every_primitive_has_its_case_here(self) -> None:
        cases = " ".join(name for name in dir(type(self)) if name.startswith("test_"))
        assert [name for name in TABLE if name.lower() not in cases] == []


def test_a_reduction_has_no_index() -> None:
    with pytest.raises(GraphError, match="a Reduce is a loop variable of its own"):
        REDUCE.index(None, [], [], None)  # type: ignore[arg-type]


def test_coordinates_need_all_loops() -> None:
    graph = OPERATORS["conv2d"]()
    valuation = graph.variables.valuation(N=1, C_in=1, C_out=1, H=3)
    with pytest.raises(GraphError, match="the coordinate of Reduce:C_in is not given"):
        coordinates(graph.tops, dict.fromkeys(graph.output, np.array(0)), interpreter.Indices(valuation))


class TestErrors:
    CONV = OPERATORS["conv2d"]()
    VALUES = {"N": 2, "C_in": 3, "C_out": 4, "H": 5}  # noqa: RUF012
    X = np.zeros((2, 3, 5, 5))
    W = np.zeros((4, 3, 3, 3))

    def test_shapes_follow_from_the_values(self) -> None:
        assert shapes(self.CONV, self.CONV.variables.valuation(self.VALUES)) == ((2, 3, 5, 5), [(4, 3, 3, 3)], (2, 4, 5, 5))
        assert interpret(self.CONV, self.VALUES, self.X, self.W).shape == (2, 4, 5, 5)

    def test_a_missing_weight_is_an_error(self) -> None:
        with pytest.raises(ShapeError, match=r"conv2d .*1 weights; given: 1 tensors"):
            interpret(self.CONV, self.VALUES, self.X)

    def test_a_weight_too_many_is_an_error(self) -> None:
        with pytest.raises(ShapeError, match="takes an input and 1 weights; given: 3 tensors"):
            interpret(self.CONV, self.VALUES, self.X, self.W, self.W)

    def test_an_input_of_another_shape(self) -> None:
        message = r"the input has shape \[2, 3, 5, 4\]; <pGraph conv2d .*> with these sizes takes \[2, 3, 5, 5\]"
        with pytest.raises(ShapeError, match=message):
            interpret(self.CONV, self.VALUES, self.X[..., :4], self.W)

    def test_an_axis_of_length_one_is_not_stretched(self) -> None:
        with pytest.raises(ShapeError, match="the input has shape"):
            interpret(self.CONV, self.VALUES, self.X[:, :1], self.W)

    def test_a_weight_of_another_shape(self) -> None:
        with pytest.raises(ShapeError, match=r"w1 .*\[3, 4, 3, 3\]; .*\[4, 3, 3, 3\]"):
            interpret(self.CONV, self.VALUES, self.X, self.W.swapaxes(0, 1))

    def test_the_second_weight_is_named(self) -> None:
        graph = OPERATORS["separable_conv2d"]()
        with pytest.raises(ShapeError, match=r"weight w2 has shape \[3, 3\]; .* takes \[3, 3, 3\]"):
            interpret(graph, self.VALUES, self.X, np.zeros((4, 3)), np.zeros((3, 3)))

    def test_sizes_that_do_not_divide(self) -> None:
        graph = OPERATORS["grouped_conv2d"]()
        with pytest.raises(SizeError, match=r"g\^-1\*C_in is 3/2 for .*C_in=3"):
            interpret(graph, self.VALUES, self.X, self.W)

    def test_a_size_that_is_no_axis_must_divide_too(self) -> None:
        def make(build, i):
            rest, block = build.merge(i, "s")
            return [build.split(rest, block)]

        graph = of("H; s=2", "H", make)
        with pytest.raises(SizeError, match=r"size s\^-1\*H is 5/2"):
            graph.valuation(H=5)
        with pytest.raises(SizeError, match=r"size s\^-1\*H is 5/2"):
            interpret(graph, {"H": 5}, np.zeros(5))
        assert interpret(graph, {"H": 4}, counted(4)).tolist() == [1, 2, 3, 4]

    def test_a_missing_value_is_an_error(self) -> None:
        with pytest.raises(ValuationError, match="no value for H; given: k=3, N=2, C_in=3, C_out=4"):
            interpret(self.CONV, {"N": 2, "C_in": 3, "C_out": 4}, self.X, self.W)

    def test_a_value_for_what_the_operator_does_not_have(self) -> None:
        with pytest.raises(ValuationError, match='no variable "C_out2"; .* Did you mean "C_out"?'):
            interpret(self.CONV, {**self.VALUES, "C_out2": 4}, self.X, self.W)


class TestChunks:
    """Loops are taken one by one where the arrays of indices would not fit."""

    @pytest.mark.parametrize("elements", [1, 7, 50, 1000])
    @pytest.mark.parametrize("name", ["conv2d", "operator_2", "gpt2_projection", "sum_pool2d"])
    def test_small_chunks_give_the_same(self, name: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = OPERATORS[name]()
        values = {
            "conv2d": {"N": 2, "C_in": 3, "C_out": 2, "H": 4},
            "operator_2": {"N": 1, "C_in": 4, "C_out": 4, "H": 3, "g": 2},
            "gpt2_projection": {"N": 1, "seq_len": 2, "H_in": 16, "t": 1},
            "sum_pool2d": {"N": 1, "C": 2, "H": 6},
        }[name]
        input_shape, weight_shapes, _ = shapes(graph, graph.variables.valuation(values))
        tensors = [counted(*shape) for shape in (input_shape, *weight_shapes)]
        whole = interpret(graph, values, *tensors)
        monkeypatch.setattr(interpreter, "CHUNK_ELEMENTS", elements)
        assert interpret(graph, values, *tensors).tolist() == whole.tolist()

    @settings(deadline=None, derandomize=True, max_examples=25)
    @given(pgraphs())
    def test_small_chunks_give_the_same_for_random_operators(self, graph: PGraph) -> None:
        input_shape, weight_shapes, _ = shapes(graph, graph.variables.valuation())
        generator = np.random.default_rng(0)
        tensors = [generator.integers(-9, 9, shape) for shape in (input_shape, *weight_shapes)]
        whole = interpret(graph, {}, *tensors)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interpreter, "CHUNK_ELEMENTS", 400)
            assert np.array_equal(interpret(graph, {}, *tensors), whole)


class TestDtype:
    @pytest.mark.parametrize(
        ("one", "other", "result"),
        [
            ("float32", "float32", "float32"),
            ("float64", "float64", "float64"),
            ("float32", "float64", "float64"),
            ("int64", "int64", "int64"),
            ("int32", "float64", "float64"),
            ("complex64", "float32", "complex64"),
        ],
    )
    def test_the_output_has_the_common_dtype(self, one: str, other: str, result: str) -> None:
        graph = of("N=2, C=3", "N", lambda build, i: [i, *build.contract(inner=build.reduce("C"))])
        computed = interpret(graph, {}, counted(2, 3).astype(one), np.array([1, 10, 100]).astype(other))
        assert computed.dtype == result
        assert computed.tolist() == [321, 654]

    def test_inputs_are_left_as_they_are(self) -> None:
        graph = of("N=4; k=3", "N", lambda build, i: [build.unfold(i, *build.contract(inner=build.reduce("k")))])
        x, w = counted(4), np.array([1, 10, 100])
        interpret(graph, {}, x, w)
        assert x.tolist() == [1, 2, 3, 4] and w.tolist() == [1, 10, 100]
