"""An operator in place of a network's layers.

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
    """Return a copy of `model` with `operator` in some of its layers.

    Where operators work on channels-last data, the convolutions that stay store their weights channels-last: shapes and values
    are the same.

    The layers are convolutions, transposed convolutions, or linear layers. In place of a layer with a stride there is an
    average pooling by the stride, of a transposed one an enlargement, and the operator after it; an operator with the variable
    `stride` has the stride itself. Where the layer's padding does not keep the size, zeros are added ahead, and positions left
    out behind. A layer's bias stays, and is added after the operator.

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
            [N, seq_len, H_out]. Its other variables have defaults. On pictures that are not square, one of squares gets a
            variable W for the width, where it does not mix both axes. Or a baseline that is a module; or a whole network with
            fewer channels or a mixture, whatever the layers are.
        example: the model's inputs, of any batch size: a tensor, a tuple of arguments, or a dict of named arguments.
        where: the layers. The name of a rule: "spatial", "paper-3x3", "paper", "projections", or `package.module:rule` for
            your own. Or such a rule, which returns why a `Layer` stays, or None. Or the names of layers, as `named_modules`
            has them, or patterns of names, such as `blocks.*.conv1`.
        seed: of the operators' weights, which are different in every layer.
        mode: the form of the operators: "fused", or "literal". A baseline that is a module has one form.
        causal: whether the model predicts later positions of a sequence, so that an operator that reads ahead is refused.
            None: as the model's attribute `causal` says; if it has none, False.
        keep_stem: whether the convolution that runs first stays, unless it is named.
        batch: the batch size to choose the form of the operators' code for; it takes any other one, too. None: a usual one.
        layers: those that `replaceable` found in the same network with other weights, instead of `where`; so they are looked
            for once for many operators. None: they are looked for.

    Raises:
        MisfitError: the operator does not fit a layer (the message says which, and why), or reads ahead in a causal model.
        SpecError: there is no such layer, or one that is named cannot be replaced.
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
    """Return why an operator cannot have the sizes of a layer of the model; None if it can."""
    example, is_causal = torch.zeros(layer.own_input), getattr(model, "causal", False)
    try:
        substitute(layer.module, operator, example, where=lambda _: None, causal=is_causal, keep_stem=False)
    except MisfitError as error:
        return str(error)
    return None
