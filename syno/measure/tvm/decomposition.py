"""An exported program in operations from which TVM makes few kernels, each with one product: those of language models.

PyTorch's own decomposition of attention scales queries and keys each by itself, and looks through all scores for rows in which
every position is masked. TVM's operator for attention is one kernel of everything, too large to be tuned well. A linear layer
stays one operation: with positions and batch made one axis before it and two after it, nothing would be fused to it.
"""

from __future__ import annotations

import torch

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
LINEAR = torch.ops.aten.linear.default


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program in PyTorch's core operations and linear layers, with `attention` where it computes the same."""
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
    """What `scaled_dot_product_attention` computes. [..., L, E], [..., S, E], [..., S, V] -> [..., L, V]."""
    *heads, length, features = query.shape
    queries, keys, values = (part.reshape(-1, *part.shape[-2:]) for part in (query, key, value))
    scores = torch.bmm(queries, keys.transpose(1, 2)) * (features**-0.5 if scale is None else scale)  # [heads, L, S]
    if is_causal:
        own, others = (torch.arange(count, device=scores.device) for count in scores.shape[1:])
        scores = scores.masked_fill(others > own.unsqueeze(1), float("-inf"))
    return torch.bmm(scores.softmax(2), values).reshape(*heads, length, -1)
