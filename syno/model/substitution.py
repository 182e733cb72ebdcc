"""Substitution of operators for a network's layers.

>>> import torch, syno
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False))
>>> changed = syno.substitute(model, syno.OPERATORS["separable_conv2d"](), torch.zeros(1, 3, 16, 16), where=["2"])
>>> [type(layer).__name__ for layer in changed]
['Conv2d', 'ReLU', 'SeparableConv2d']
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from syno.base.errors import MisfitError
from syno.model.extraction import layers_of, replaceable
from syno.model.inputs import Inputs
from syno.model.layer import Layer
from syno.model.layer_modules import Placement
from syno.model.layer_rules import Where
from syno.model.replacements import AnyOperator, as_replacement


def substitute(
    model: nn.Module,
    operator: AnyOperator,
    example: Inputs,
    *,
    where: Where = "spatial",
    seed: int = 0,
    mode: str = "fused",
    causal: bool | None = None,
    keep_stem: bool = True,
    batch: int | None = None,
    layers: Sequence[Layer] | None = None,
) -> nn.Module:
    """Return a copy of `model` with `operator` in place of some of its layers.

    The layers are convolutions, transposed convolutions, or linear layers. For a strided layer, an average pooling precedes the
    operator; for a transposed one, an upsampling; an operator with the variable `stride` is strided itself. If the layer's
    padding does not keep the size, the operator's input is padded with zeros and its output is cropped. The layer's bias is
    kept, and added after the operator.

    If an operator computes in channels-last format, the other convolutions store their weights in this format, too; shapes and
    values are the same.

    >>> import syno, torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    >>> example = torch.zeros(1, 3, 16, 16)
    >>> changed = syno.substitute(network, syno.OPERATORS["separable_conv2d"](), example)
    >>> syno.model_cost(network, example).flops, syno.model_cost(changed, example).flops
    (202752, 90112)

    Args:
        model: any module that runs on the example; it is not changed, and the weights of layers that stay are copied.
        operator: from [N, C_in, H, H] to [N, C_out, H, H]; from [N, seq_len, H_in] to [N, seq_len, t*H_in] or
            [N, seq_len, H_out]. Its other variables have defaults. If pictures are not square, an operator for square ones gets
            a variable W for the width, provided that it does not mix the two axes. Or another replacement: a module baseline, a
            known layer, a narrower network or a mixture; the last two do not use `where`.
        example: the model's inputs, of any batch size: a tensor, a tuple of arguments, or a dict of named arguments.
        where: selects the layers. The name of a rule: "spatial", "paper-3x3", "paper", "projections", or `package.module:rule`
            for your own. Or a rule: a function of a `Layer` that returns the reason to keep it, or None. Or the names of
            layers, as in `named_modules`, or patterns of names, such as `blocks.*.conv1`.
        seed: seed of the operators' weights, which are different in every layer.
        mode: the form of the operators: "fused", or "literal". A baseline that is a module has one form.
        causal: whether the model predicts later positions of a sequence, so that operators that read ahead are an error.
            None: the model's attribute `causal`; False if it has none.
        keep_stem: whether the convolution that runs first stays, unless it is named.
        batch: the batch size for which the operators' code is optimized; it takes any other, too. None: a usual one.
        layers: the result of `replaceable` for the same network with any weights, to find layers once for many operators; used
            instead of `where`. None: layers are found here.

    Raises:
        MisfitError: the operator does not fit a layer (the message says which, and why), or reads ahead in a causal model.
        SpecError: no layer is selected, or a named layer cannot be replaced.
        UnknownNameError: there is no such rule.
        LoweringError: the operator cannot be lowered, or is too large to find out whether it reads ahead.
    """
    replacement = as_replacement(operator)
    if layers is not None and not replacement.is_whole:
        layers = layers_of(model, layers)
    elif not replacement.is_whole:
        layers = replaceable(model, example, where, keep_stem=keep_stem)
    is_causal = getattr(model, "causal", False) if causal is None else causal
    return replacement.apply(Placement(model, example, layers, seed, mode, is_causal, batch))


def why_it_does_not_fit(operator: AnyOperator, layer: Layer, model: nn.Module) -> str | None:
    """Return the reason why an operator cannot replace a model's layer, such as sizes that do not divide; None if it can."""
    example, is_causal = torch.zeros(layer.own_input), getattr(model, "causal", False)
    try:
        substitute(layer.module, operator, example, where=lambda _: None, causal=is_causal, keep_stem=False)
    except MisfitError as error:
        return str(error)
    return None
