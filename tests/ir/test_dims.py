"""Dims: one object each, with ids that tell them apart."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
from small_dims import H, K, N, S, output

from syno.algebra import VariableTable
from syno.ir import dim as dims
from syno.ir.dim import Dim
from syno.ir.library import OPERATORS
from syno.ir.primitives import SPLIT


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

    def test_a_dim_says_what_it_is(self) -> None:
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
