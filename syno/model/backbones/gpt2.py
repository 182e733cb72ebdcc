"""GPT-2, and a smaller model of the same kind. Projections to queries, keys and values have no bias, as operators have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from syno.base.errors import ShapeError
from syno.model.backbones.table import SEQUENCE_BACKBONES, seeded, widened
from syno.model.layer_rules import LayerRule, Projections

STANDARD_DEVIATION = 0.02  # of new weights


class Attention(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Causal attention of several heads: [N, L, features] -> [N, L, features]."""

    def __init__(self, features: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(features, 3 * features, bias=False)
        self.c_proj = nn.Linear(features, features)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attended features, [N, L, features]."""
        batch, length, features = x.shape
        # [N, L, 3*features] -> queries, keys, values, each [N, heads, L, features/heads]
        parts = self.c_attn(x).view(batch, length, 3, self.heads, features // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        dropout = self.attn_dropout.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(batch, length, features)))


class Perceptron(nn.Module):  # type: ignore[misc]
    """Two linear layers with four times as many features between them: [N, L, features] -> [N, L, features]."""

    def __init__(self, features: int, dropout: float) -> None:
        super().__init__()
        self.c_fc = nn.Linear(features, 4 * features)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * features, features)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features after both layers, [N, L, features]."""
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class TransformerBlock(nn.Module):  # type: ignore[misc]
    """Attention, then a perceptron, each after a normalization and with a shortcut: [N, L, features] -> [N, L, features]."""

    def __init__(self, features: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(features)
        self.attn = Attention(features, heads, dropout)
        self.ln_2 = nn.LayerNorm(features)
        self.mlp = Perceptron(features, dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features after attention and perceptron, [N, L, features]."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):  # type: ignore[misc]
    """Embeddings of tokens and positions, blocks, and a head with its own weight. [N, L] -> [N, L, vocabulary].

    Args:
        vocabulary: number of different tokens.
        context: the largest L.
        blocks, heads, features: numbers of blocks, heads of each block, and features, which are divided among the heads.
        dropout: probability of dropout in training, for embeddings, attention and the output of each branch of a block.
    """

    causal = True
    layer_rules: ClassVar[Mapping[str, LayerRule]] = {"paper": Projections(ratio=3, least_size=4)}

    def __init__(self, vocabulary: int, context: int, *, blocks: int, heads: int, features: int, dropout: float) -> None:
        super().__init__()
        self.context = context
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, features),
                "wpe": nn.Embedding(context, features),
                "drop": nn.Dropout(dropout),
                "h": nn.ModuleList(TransformerBlock(features, heads, dropout) for _ in range(blocks)),
                "ln_f": nn.LayerNorm(features),
            }
        )
        self.lm_head = nn.Linear(features, vocabulary, bias=False)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                # The residual sum has 2*blocks terms.
                scale = (2 * blocks) ** -0.5 if name.endswith("c_proj") else 1.0
                nn.init.normal_(module.weight, std=STANDARD_DEVIATION * scale)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each position's next token. ShapeError if there are more positions than `context`."""
        length = tokens.shape[1]
        if length > self.context:
            raise ShapeError(f"the input has {length} positions; the model was made for {self.context} at most")
        part = self.transformer
        x = part["drop"](part["wte"](tokens) + part["wpe"](torch.arange(length, device=tokens.device)))
        for block in part["h"]:
            x = block(x)
        return self.lm_head(part["ln_f"](x))


@SEQUENCE_BACKBONES.register("gpt2")
def gpt2(*, vocabulary: int = 50257, context: int = 2048, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return GPT-2 (117M): 12 blocks of 12 heads, 768 features times `width`; vocabulary and context are the paper's.

    Raises SpecError if `width` makes a number of features that is no multiple of the heads.

    Source: Radford 2019, language models are unsupervised multitask learners; parameter names as in nanoGPT.
    """
    return _gpt(vocabulary, context, blocks=12, heads=12, of_a_head=64, width=width, dropout=0.1, seed=seed)


@SEQUENCE_BACKBONES.register("gpt_tiny")
def gpt_tiny(*, vocabulary: int = 256, context: int = 64, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return a small GPT for bytes: two blocks of 4 heads, 96 features times `width`, no dropout.

    With less than 96 features, the paper's operator for GPT-2 has axes of length 1. Raises SpecError as `gpt2`.
    """
    return _gpt(vocabulary, context, blocks=2, heads=4, of_a_head=24, width=width, dropout=0.0, seed=seed)


def _gpt(
    vocabulary: int, context: int, *, blocks: int, heads: int, of_a_head: int, width: float, dropout: float, seed: int
) -> nn.Module:
    (of_a_head,) = widened((of_a_head,), width)
    return seeded(seed, GPT, vocabulary, context, blocks=blocks, heads=heads, features=heads * of_a_head, dropout=dropout)
