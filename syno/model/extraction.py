"""Finding the layers of a network that can be replaced, and the sizes they have there.

Sizes are found by running the network once on an example, so they are those of any network that runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import nn

from syno.base.errors import SpecError, suggestion
from syno.model.layers import Layer, Named, Where, rule_for
from syno.model.tracing import Call, trace

KINDS = (nn.Conv2d, nn.Linear)


def replaceable(
    model: nn.Module, example: torch.Tensor, rule: Where = "spatial", *, keep_stem: bool = True
) -> tuple[Layer, ...]:
    """The layers of `model` that operators can replace, in the order in which they run.

    Args:
        model: run once on the example, in evaluation mode without gradients; it is left as it was.
        example: an input, of the batch size that N shall have; tokens [N, seq_len] for a language model.
        rule: says for a layer why it is not replaced, or None. Or its name: `layer_rules` of the model goes before
            `LAYER_RULES`, and `package.module:name` is your own. Or the names of the layers.
        keep_stem: whether the convolution that runs first stays, if it is not named.

    Raises:
        SpecError: there is none, or one that is named cannot be replaced. It says why.
        UnknownNameError: there is no such rule.
    """
    found, refused = sorted_out(model, example, rule, keep_stem=keep_stem)
    if not found:
        kinds = getattr(rule_for(model, rule), "kind", KINDS)
        none_runs = f"it runs no {' and no '.join(kind.__name__ for kind in KINDS if issubclass(kind, kinds))}"
        raise SpecError(
            f"{type(model).__name__} has no layer to replace "
            f"({'; '.join(f'{name}: {reason}' for name, reason in refused.items()) or none_runs}); "
            "give another model or a rule that takes one of its layers"
        )
    return found


def sorted_out(
    model: nn.Module, example: torch.Tensor, rule: Where = "spatial", *, keep_stem: bool = True
) -> tuple[tuple[Layer, ...], dict[str, str]]:
    """The layers that `replaceable` finds, perhaps none, and for each other layer of their kinds the reason why it stays.

    Arguments and exceptions are those of `replaceable`.
    """
    refuse = rule_for(model, rule)
    kinds = getattr(refuse, "kind", KINDS)
    uses: dict[str, list[Call]] = {}
    for call in trace(model, example):
        if isinstance(call.module, kinds):
            uses.setdefault(call.name, []).append(call)
    convolutions = [name for name, (call, *_) in uses.items() if isinstance(call.module, nn.Conv2d)]
    stem = convolutions[:1] if keep_stem and not isinstance(refuse, Named) else []
    found: list[Layer] = []
    refused: dict[str, str] = {}
    for name, used in uses.items():
        layer = "it is the first convolution" if name in stem else _layer(used)
        reason = layer if isinstance(layer, str) else refuse(layer)
        if reason is not None:
            refused[name] = reason
        elif isinstance(layer, Layer):
            found.append(layer)
    if isinstance(refuse, Named):
        _check_names(model, refuse.names, found, refused)
    return tuple(found), refused


def _layer(used: list[Call]) -> Layer | str:
    """What ran, as a layer, or why operators with a layer's sizes do not fit here."""
    if len(used) > 1:
        return f"it runs {len(used)} times"
    return _projection(used[0]) if isinstance(used[0].module, nn.Linear) else _convolution(used[0])


def _projection(call: Call) -> Layer | str:
    if len(call.input) != 3:
        return f"its input is {list(call.input)}, not [N, seq_len, H_in]"
    return Layer(call.name, call.module, MappingProxyType(dict(zip(("N", "seq_len", "H_in"), call.input, strict=True))))


def _convolution(call: Call) -> Layer | str:
    before, after = call.input, call.output
    if len(before) != 4 or before[2] != before[3]:
        return f"its input is {list(before)}, not square"
    stride = call.module.stride[0]
    if before[2:] != (stride * after[2], stride * after[3]):
        return f"it maps {list(before)} to {list(after)}" + (f" with stride {stride}" if stride > 1 else "")
    values = {"N": before[0], "C_in": before[1], "C_out": after[1], "H": after[2]}
    return Layer(call.name, call.module, MappingProxyType(values), stride)


def _check_names(model: nn.Module, names: Sequence[str], found: Sequence[Layer], refused: Mapping[str, str]) -> None:
    modules = dict(model.named_modules())
    for name in names:
        if any(layer.name == name for layer in found):
            continue
        if name in refused:
            raise SpecError(f'layer "{name}" cannot be replaced: {refused[name]}; leave it out')
        if name not in modules:
            raise SpecError(f'{type(model).__name__} has no layer "{name}".{suggestion(name, modules)}')
        kind, allowed = type(modules[name]).__name__, " or ".join(kind.__name__ for kind in KINDS)
        why = "which does not run" if isinstance(modules[name], KINDS) else f"not a {allowed}"
        raise SpecError(f'layer "{name}" is a {kind}, {why}; name layers that run and are a {allowed}')
