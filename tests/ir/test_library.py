"""Every known operator against torch, or against its formula written out here by other means."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from torch import Tensor

from syno.base.errors import UnknownNameError
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.lower.interpreter import interpret, shapes

Reference = Callable[..., Tensor]  # values, input, *weights -> output


class Case(NamedTuple):
    name: str
    values: dict[str, int]
    reference: Reference


CASES: list[Case] = []


def sizes(text: str) -> dict[str, int]:
    """`"H=5, k=2"` as a dict; the last of equal names counts."""
    return {name: int(value) for name, value in (pair.split("=") for pair in text.split(", "))}


def reference(name: str, *values: str) -> Callable[[Reference], Reference]:
    """The decorated function computes what the operator `name` must give, for each of `values`; what comes later wins."""

    def enter(function: Reference) -> Reference:
        CASES.extend(Case(name, sizes(one), function) for one in values)
        return function

    return enter


def pad_same(x: Tensor, rows: int, columns: int, dilation: int = 1) -> Tensor:
    """Zeros for a window of K = dilation * size positions: K//2 in front, what a window of `size` reads beyond behind."""
    (top, bottom), (left, right) = (
        (dilation * size // 2, dilation * (size - 1) - dilation * size // 2) for size in (rows, columns)
    )
    return F.pad(x, (left, right, top, bottom))


def same_conv(x: Tensor, weight: Tensor, groups: int = 1, dilation: int = 1) -> Tensor:
    padded = pad_same(x, weight.shape[2], weight.shape[3], dilation)
    return F.conv2d(padded, weight, groups=groups, dilation=dilation)


SQUARE = "N=7, C_in=12, C_out=8, H=5"


@reference("matmul", "M=3, K=5, N=4")
def _(v, x, w):
    return x @ w


@reference("conv2d", SQUARE, f"{SQUARE}, k=1", f"{SQUARE}, k=2", f"{SQUARE}, k=4", f"{SQUARE}, k=6")
def _(v, x, w):
    return same_conv(x, w)


@reference("conv1x1", SQUARE)
def _(v, x, w):
    return F.conv2d(x, w[:, :, None, None])


@reference("grouped_conv2d", SQUARE, f"{SQUARE}, k=2", f"{SQUARE}, C_out=6, g=3")
def _(v, x, w):
    return same_conv(x, w.flatten(0, 1), groups=v["g"])


@reference("grouped_conv2d_shared", SQUARE, f"{SQUARE}, k=2", f"{SQUARE}, C_out=6, g=3")
def _(v, x, w):
    return torch.cat([same_conv(group, w) for group in x.chunk(v["g"], dim=1)], dim=1)


@reference("dilated_conv2d", *(f"{SQUARE}, k={k}, s={s}" for k, s in ((3, 2), (2, 2), (3, 3), (4, 2))))
def _(v, x, w):
    return same_conv(x, w, dilation=v["s"])


@reference("depthwise_conv2d", "N=2, C=6, H=5", "N=2, C=6, H=5, k=2")
def _(v, x, w):
    return same_conv(x, w[:, None], groups=v["C"])


@reference("separable_conv2d", SQUARE, f"{SQUARE}, k=2")
def _(v, x, w1, w2):
    return same_conv(same_conv(x, w2[:, None], groups=v["C_in"]), w1[:, :, None, None])


@reference("channel_scale", "N=2, C=6, H=5")
def _(v, x, w):
    return x * w[:, None, None]


@reference("low_rank_conv1x1", f"{SQUARE}, r=3")
def _(v, x, w1, w2):
    return F.conv2d(F.conv2d(x, w2[:, :, None, None]), w1[:, :, None, None])


@reference("low_rank_conv2d", f"{SQUARE}, r=3", f"{SQUARE}, r=3, k=2")
def _(v, x, w1, w2):
    return F.conv2d(same_conv(x, w2), w1[:, :, None, None])


@reference("sum_pool2d", "N=2, C=3, H=6", "N=2, C=4, H=6, s=3")
def _(v, x):
    return F.avg_pool2d(x, v["s"]) * v["s"] ** 2


@reference("pixel_shuffle", "N=2, C=3, H=5", "N=2, C=4, H=5, s=3")
def _(v, x):
    return F.pixel_shuffle(x, v["s"])


@reference("upsample_nearest", "N=2, C=3, H=5", "N=2, C=4, H=5, s=3")
def _(v, x):
    return F.interpolate(x, scale_factor=v["s"], mode="nearest")


@reference("tile2d", "N=2, C=3, H=5", "N=2, C=4, H=5, s=3")
def _(v, x):
    return x.tile(1, 1, v["s"], v["s"])


@reference("shift_conv1x1", SQUARE, f"{SQUARE}, s=3")
def _(v, x, w):
    column, row, *others = x.chunk(v["s"], dim=1)
    shifted = torch.cat([column.roll(-1, dims=3), row.roll(-1, dims=2), *others], dim=1)
    return F.conv2d(shifted, w.flatten(1)[:, :, None, None])


@reference("shift_rows_conv1x1", SQUARE, f"{SQUARE}, s=3")
def _(v, x, w):
    first, others = w[:, 0, :, None, None], w[:, 1:].sum(1)[:, :, None, None]
    return F.conv2d(x.roll(-1, dims=2), first) + F.conv2d(x, others)


@reference("mqa_projection", "N=2, seq_len=5, H_in=4")
def _(v, x, w):
    return F.linear(x, w).tile(1, 1, v["t"])


PUBLISHED = "N=7, C_in=12, C_out=24, H=5, g=2, s=3"
WINDOWS = (PUBLISHED, f"{PUBLISHED}, k_1=2", f"{PUBLISHED}, C_out=18, g=6, s=1")


@reference("operator_1", *WINDOWS)
def _(v, x, w1, w2):
    # The product of both weights, summed over their common features, is one convolution's weight.
    return same_conv(x, torch.einsum("qijop,qcjp->oqcij", w1, w2.unflatten(0, (v["g"], -1))).flatten(1, 2))


@reference("operator_2", *WINDOWS)
def _(v, x, w1, w2):
    # A grouped 1 x k convolution, then a k x 1 convolution, of the rotated input.
    grouped = w2.unflatten(0, (v["g"], -1)).permute(0, 3, 1, 2).flatten(0, 1)[:, :, None]
    return same_conv(same_conv(x.roll(-1, dims=2), grouped, groups=v["g"]), w1.permute(0, 1, 3, 2).flatten(1, 2)[..., None])


@reference("stacked_convolution", *WINDOWS)
def _(v, x, w1, w2):
    grouped = w2.unflatten(0, (v["g"], -1)).permute(0, 3, 1, 2).flatten(0, 1)[:, :, None]
    return same_conv(same_conv(x, grouped, groups=v["g"]), w1.permute(3, 0, 4, 1, 2).flatten(1, 2))


@reference("gpt2_projection", "N=2, seq_len=3, H_in=96")
def _(v, x, w):
    half, block, part = v["H_in"] // 2, v["H_in"] // (8 * v["t"]), v["H_in"] // (16 * v["t"])
    return torch.stack(
        [
            x[..., (u % block) // part * half :][..., :half] @ w[u // block, :, (u % block) % part]
            for u in range(v["t"] * v["H_in"])
        ],
        dim=-1,
    )


SPLIT = "N=7, C_in=12, C_out=24, H=5, g=3"


@reference("nas_pte_sequence_1", SPLIT, f"{SPLIT}, s=4, k=2")
def _(v, x, w):
    return torch.cat([same_conv(x, part.flatten(0, 1), groups=v["g"]) for part in w], dim=1)


@reference("nas_pte_sequence_2", f"{SPLIT}, u=2", f"{SPLIT}, u=4, k=2")
def _(v, x, w):
    return same_conv(x, w.permute(1, 2, 0, 3, 4, 5).flatten(0, 2), groups=v["g"])


@reference("nas_pte_sequence_3", f"{SQUARE}, H=10", f"{SQUARE}, H=9, s=3, k=2")
def _(v, x, w):
    return torch.cat([same_conv(rows, part) for rows, part in zip(x.chunk(v["s"], dim=2), w, strict=True)], dim=2)


def random_tensors(graph: PGraph, values: dict[str, int]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    input_shape, weight_shapes, _ = shapes(graph, graph.variables.valuation(values))
    return [generator.standard_normal(shape) for shape in (input_shape, *weight_shapes)]


def show(case: object) -> str | None:
    return f"{case.name}-{'-'.join(f'{k}{v}' for k, v in case.values.items())}" if isinstance(case, Case) else None


@pytest.mark.parametrize("case", CASES, ids=show)
def test_known_operators_compute_as_their_references(case: Case) -> None:
    graph = OPERATORS[case.name]()
    tensors = random_tensors(graph, case.values)
    values = dict(graph.variables.valuation(case.values))
    expected = case.reference(values, *(torch.from_numpy(tensor) for tensor in tensors)).numpy()
    computed = interpret(graph, case.values, *tensors)
    assert computed.shape == expected.shape
    np.testing.assert_allclose(computed, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_every_operator_has_a_reference() -> None:
    assert {case.name for case in CASES} == set(OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
class TestEach:
    def test_the_docstring_ends_with_its_source(self, name: str) -> None:
        docstring = inspect.getdoc(OPERATORS[name])
        assert docstring is not None and docstring.splitlines()[-1].startswith("Source: ")

    def test_the_name_is_the_function_and_the_label(self, name: str) -> None:
        assert OPERATORS[name].__name__ == name == OPERATORS[name]().name

    def test_the_text_parses_back(self, name: str) -> None:
        graph = OPERATORS[name]()
        again = parse(str(graph))
        assert again.id == graph.id and again == graph
        assert str(again) == str(graph)

    def test_coefficients_have_defaults_and_primaries_have_none(self, name: str) -> None:
        variables = OPERATORS[name]().variables
        assert set(variables.defaults) == {
            entry for entry, variable in variables.items() if variable.kind.value == "coefficient"
        }


def test_no_two_are_the_same_operator() -> None:
    assert len({function().id for function in OPERATORS.values()}) == len(OPERATORS)


@pytest.mark.parametrize(
    ("name", "weights"),
    [  # as in `metadata.json` of the artifact
        ("operator_1", ["[g, k_1, k_1, C_out, g^-1*s^-1*C_out]", "[C_in, k_1, g^-1*s^-1*C_out]"]),
        ("operator_2", ["[C_out, g, k_1, g^-1*s^-1*C_out]", "[C_in, k_1, g^-1*s^-1*C_out]"]),
        ("gpt2_projection", ["[k_1^3*t^2, k_1^-1*H_in, k_1^-4*t^-1*H_in]"]),
        # as in torch, C_out being (g, C_out/g)
        ("conv2d", ["[C_out, C_in, k, k]"]),
        ("grouped_conv2d", ["[g, g^-1*C_out, g^-1*C_in, k, k]"]),
    ],
)
def test_weights_have_the_published_axes(name: str, weights: list[str]) -> None:
    graph = OPERATORS[name]()
    assert [f"[{', '.join(map(str, graph.weight_sizes(number)))}]" for number in range(1, len(graph.weights) + 1)] == weights


def test_operator_1_is_no_stack_of_two_convolutions() -> None:
    """The same weights, one window less: the outputs differ."""
    shared, stacked = OPERATORS["operator_1"](), OPERATORS["stacked_convolution"]()
    values = sizes(PUBLISHED)
    tensors = random_tensors(shared, values)
    difference = interpret(shared, values, *tensors) - interpret(stacked, values, *tensors)
    assert np.abs(difference).max() > 0.1


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r'"conv2"; .*"conv2d"\?'):
        OPERATORS["conv2"]
