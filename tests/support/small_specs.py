"""Specs small enough that their whole space can be gone through without the distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from syno.space import OperatorSpec

CONVOLUTION: dict[str, Any] = {
    "input": "N, C_in: unordered, H",
    "output": "N, C_out: unordered, H",
    "bound_axes": [(0, 0)],
    "contractions": {"least_elements": 20},
}


def changeable(fields: Callable[[], dict[str, Any]]) -> Callable[..., OperatorSpec]:
    """The spec with these fields, under the function's name; what it is called with stands in their place."""

    @wraps(fields)
    def spec(**changes: Any) -> OperatorSpec:
        return OperatorSpec(**{"name": fields.__name__, **fields(), **changes})

    return spec


@changeable
def matmul() -> dict[str, Any]:
    """`[N, M] -> [N, K]`."""
    return {
        "input": "N, M",
        "output": "N, K",
        "variables": "N:0, M:2, K:2; s=2:2",
        "layers": [{"N": 4, "M": 64, "K": 32}],
        "bound_axes": [(0, 0)],
        "occurrences": {"tensors": 3},
        "contractions": {"least_elements": 4},
        "depth": 4,
    }


@changeable
def two_axes() -> dict[str, Any]:
    """`[H, W] -> [H, W]`, other options as by default."""
    return {
        "input": "H, W",
        "output": "H, W",
        "variables": "H:2, W:2; s_1=2:2, s_2=3:2",
        "layers": [{"H": 32, "W": 32}, {"H": 16, "W": 16}, {"H": 16, "W": 16}],
        "occurrences": {"reductions": 3},
        "depth": 3,
    }


@changeable
def convolution() -> dict[str, Any]:
    """A 1-d convolution's shapes, two weights, few views."""
    return {
        "variables": "N:0, C_in:2, C_out:3, H:0; k=3:2, s=2:1",
        "layers": [{"N": 2, "C_in": 16, "C_out": 32, "H": 12}],
        "occurrences": {"tensors": 3, "reductions": 3, "merges": 1, "shifts": 1, "splits": 2},
        "repeats": {"largest": 1, "tile": False},
        "depth": 4,
        **CONVOLUTION,
    }


def tight_convolution(**changes: Any) -> OperatorSpec:
    """The same with bounds of FLOPs on both sides."""
    once = 2 * 16 * 32 * 12
    return convolution(**{"name": "tight", "budget": {"least_flops": 0.8 * once, "most_flops": 2 * once}, **changes})


def short_chains(**changes: Any) -> OperatorSpec:
    """No more than two operations above each other."""
    return convolution(**{"name": "chains", "occurrences": {"reductions": 3, "chain_length": 2}, **changes})


@changeable
def strided() -> dict[str, Any]:
    """One axis, with strides."""
    return {
        "input": "N, H",
        "output": "N, H",
        "variables": "N:0, H:1; k=3:2, s=2:2",
        "layers": [{"N": 4, "H": 24}],
        "bound_axes": [(0, 0)],
        "occurrences": {"reductions": 2, "strides": 1, "shifts": 0},
        "contractions": {"least_elements": 1},
        "depth": 4,
    }


@changeable
def repeated() -> dict[str, Any]:
    """A projection to several heads, with repeats and tiles."""
    return {
        "input": "N, L, C: unordered",
        "output": "N, L, t*C",
        "variables": "N:0, L:0, C:3; t=3:2",
        "layers": [{"N": 1, "L": 12, "C": 27}],
        "bound_axes": [(0, 0)],
        "occurrences": {"reductions": 2, "merges": 2, "splits": 1, "shifts": 1},
        "contractions": {"least_elements": 20},
        "depth": 4,
    }


@changeable
def two_ended() -> dict[str, Any]:
    """`[N, C] -> [N, D, E]` with two primitives: a sum, and a contraction that ends D and E at once."""
    return {
        "input": "N, C",
        "output": "N, D, E",
        "variables": "N:0, C:2, D:1, E:1",
        "layers": [{"N": 4, "C": 16, "D": 16, "E": 16}],
        "bound_axes": [(0, 0)],
        "depth": 2,
    }


ALL = (matmul, two_axes, convolution, tight_convolution, short_chains, strided, repeated)
