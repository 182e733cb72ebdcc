"""A network made ready for TVM's importer: normalizations as products and sums, operators as one call each, small operations.

PyTorch sees each synthesized operator as one call of `syno::synthesized`, which knows only the shape of its result; the
operator's stages are put in when the exported program is read (`syno.measure.tvm.network`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from torch import nn

from syno.algebra import Valuation
from syno.lower.interpreter import shapes
from syno.model.module import OperatorModule

CALL = "synthesized"
ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
LINEAR = torch.ops.aten.linear.default


class Affine(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A normalization with fixed statistics: x * scale + offset."""

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        scale = torch.rsqrt(norm.running_var + norm.eps)
        scale = scale if norm.weight is None else scale * norm.weight
        offset = -norm.running_mean * scale
        offset = offset if norm.bias is None else offset + norm.bias
        self.register_buffer("scale", scale.detach())
        self.register_buffer("offset", offset.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, C, ...] -> [N, C, ...]."""
        shape = (-1, *(1,) * (x.dim() - 2))
        return x * self.scale.view(shape) + self.offset.view(shape)


class OperatorCall(nn.Module):  # type: ignore[misc]
    """A call of `syno::synthesized` in place of an operator.

    Args:
        number: the operator's number in the network.
        operator: is not a submodule: its weights are not exported.
    """

    def __init__(self, number: int, operator: OperatorModule) -> None:
        super().__init__()
        self.number, self.operator = number, (operator,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the operator's output shape."""
        (operator,) = self.operator
        shape = shapes(operator.graph, valuation_for(operator, x.shape))[2]
        return _call()(x, self.number, list(shape))


def valuation_for(operator: OperatorModule, shape: Sequence[int]) -> Valuation:
    """Return the operator's sizes for an input of this shape."""
    graph = operator.graph
    free = {str(dim.size): int(length) for dim, length in zip(graph.input, shape, strict=True)}
    return graph.valuation({**{name: free[name] for name in graph.runtime_variables}, **operator.sizes})


def prepared(module: nn.Module) -> tuple[nn.Module, list[OperatorModule]]:
    """Return a copy of `module` for export, on the CPU, and the operators that its calls replace."""
    copy = deepcopy(module).cpu().eval().to(memory_format=torch.contiguous_format)
    operators = [part for part in copy.modules() if isinstance(part, OperatorModule)]
    replacements: dict[nn.Module, nn.Module] = {part: OperatorCall(number, part) for number, part in enumerate(operators)}
    for part in copy.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            replacements[part] = Affine(part)
    for name, part in list(copy.named_modules(remove_duplicate=False)):  # a module may be in several places
        if name and part in replacements:
            copy.set_submodule(name, replacements[part])
    return replacements.get(copy, copy), operators


@cache
def _call() -> Any:
    """Define `syno::synthesized` on first use, and return it. It has a shape and no implementation: nothing ever runs it."""
    library = torch.library.Library("syno", "FRAGMENT")
    library.define(f"{CALL}(Tensor x, int number, int[] shape) -> Tensor")
    torch.library.register_fake(f"syno::{CALL}", lambda x, number, shape: x.new_empty(shape), lib=library)
    _call.library = library  # type: ignore[attr-defined]  # the definition lives as long as this object does
    return getattr(torch.ops.syno, CALL)


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program in PyTorch's core operations and linear layers, with `attention` where it computes the same.

    TVM makes few kernels of these, each with one product. PyTorch's own decomposition of attention scales queries and keys each
    by itself, and looks through all scores for rows in which every position is masked. TVM's operator for attention is one
    kernel of everything, too large to be tuned well. A linear layer stays one operation: with positions and batch made one axis
    before it and two after it, nothing would be fused to it.
    """
    table = torch.export.default_decompositions()
    pytorchs_own = table[ATTENTION]

    def chosen(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        same_heads = query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        if attn_mask is None and not dropout_p and same_heads:  # no row of scores is masked as a whole
            return attention(query, key, value, is_causal=is_causal, scale=scale)
        return pytorchs_own(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    table[ATTENTION] = chosen
    del table[LINEAR]
    return program.run_decompositions(table)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, is_causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Compute `scaled_dot_product_attention`. [..., L, E], [..., S, E], [..., S, V] -> [..., L, V]."""
    *heads, length, features = query.shape
    queries, keys, values = (part.reshape(-1, *part.shape[-2:]) for part in (query, key, value))
    scores = torch.bmm(queries, keys.transpose(1, 2)) * (features**-0.5 if scale is None else scale)  # [heads, L, S]
    if is_causal:
        own, others = (torch.arange(count, device=scores.device) for count in scores.shape[1:])
        scores = scores.masked_fill(others > own.unsqueeze(1), float("-inf"))
    return torch.bmm(scores.softmax(2), values).reshape(*heads, length, -1)
