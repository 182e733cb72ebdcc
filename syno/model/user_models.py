"""An operator in a model of your own.

>>> import torch, syno
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
>>> changed = syno.substitute(model, syno.OPERATORS["separable_conv2d"](), torch.zeros(1, 3, 16, 16), where=["2"])
>>> [type(layer).__name__ for layer in changed]
['Conv2d', 'ReLU', 'SeparableConv2d', 'ReLU']
"""

from __future__ import annotations

import torch
from torch import nn

from syno.ir.graph import PGraph
from syno.model import substitution
from syno.model.layers import Where


def substitute(
    model: nn.Module,
    operator: PGraph,
    example: torch.Tensor,
    *,
    where: Where = "spatial",
    seed: int = 0,
    mode: str = "fused",
    causal: bool | None = None,
) -> nn.Module:
    """A copy of `model` with `operator` in some of its layers: convolutions on square pictures, or linear layers on sequences.

    Args:
        model: any module that runs on the example; it is not changed.
        operator: from [N, C_in, H, H] to [N, C_out, H, H], or from [N, seq_len, H_in] to [N, seq_len, t*H_in]; its other
            variables have defaults.
        example: an input of the model, of any batch size.
        where: which layers. The name of a rule: "spatial", "paper-3x3", "paper", "projections", or `package.module:rule` for
            your own; or such a rule, which returns why a `Layer` stays, or None; the convolution that runs first stays
            under any rule. Or the names of layers, as `named_modules` has them; if they have a bias, it is dropped, since
            operators have none.
        seed: of the operators' weights, which are different in every layer.
        mode: the form of the operators: "fused", or "literal".
        causal: whether the model predicts what comes later in a sequence: then an operator that reads ahead is refused.
            None: as the model's attribute `causal` says, if it has one.

    Raises:
        SpecError: the operator does not fit a layer (it says which, and why), or reads ahead in a causal model; no layer is
            meant, or one that cannot be replaced.
        UnknownNameError: there is no such rule.
        LoweringError: the operator cannot be lowered.
    """
    return substitution.substitute(model, operator, example, rule=where, seed=seed, mode=mode, causal=causal)
