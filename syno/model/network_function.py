"""Calls of the function that makes a network: a built-in one or a user's own, which need not take all arguments.

>>> def make(classes): return torch.nn.Linear(4, classes)
>>> call(make, {"classes": 3, "channels": 1, "width": 1.0, "seed": 0})
Linear(in_features=4, out_features=3, bias=True)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from syno.base.errors import SpecError, UserCodeError
from syno.base.registry import Registry, is_path
from syno.base.user_code import check_arguments, unchanged_process, user_code
from syno.model.extraction import check_network, evaluation_mode
from syno.model.inputs import Inputs, of_batch, shapes_in_words
from syno.model.inputs import call as call_network

SEED, WIDTH = "seed", "width"
LEAST_BATCH = 2  # batch normalization in training mode fails on one sample


def make_network(
    models: Registry[Callable[..., Any]],
    name: str,
    arguments: Mapping[str, Any],
    settings: Mapping[str, Any],
    example: Inputs,
) -> nn.Module:
    """Call a function by name, and return the network that it makes.

    Its lazy layers are materialized. Process-wide settings that the function changes, such as the default dtype, are restored.
    Equal arguments make equal weights, unless the function draws them from a generator of its own.

    Args:
        models: registry of built-in functions.
        name: a name in the registry, or `package.module:function` of the user.
        arguments: arguments that follow from the data and the workload; a user's function need not take all of them.
        settings: further arguments, which the function must take.
        example: the network's inputs, of any batch.

    Raises:
        UnknownNameError: there is no such function.
        SpecError: it cannot be imported, or `settings` repeats a name of `arguments`.
        UserCodeError: it needs other arguments, raised an exception, or returned no network; or a lazy layer does not run.
    """
    make, description = models.find(name), f'the model "{name}"'
    if taken := sorted(arguments.keys() & settings.keys()):
        raise SpecError(
            f"workload: model_settings gives {', '.join(taken)}, and {', '.join(arguments)} follow from the data or are "
            "settings of the workload itself; leave it out"
        )
    passed = {**arguments_taken(make, arguments), **settings}
    if is_path(name) or settings:
        check_arguments(make, f"{description}{' (workload: model_settings)' if settings else ''}", passed)
    with unchanged_process(arguments.get(SEED)), user_code(description) if is_path(name) else nullcontext():
        try:
            network = make(**passed)
        except TypeError as error:
            if (handed_on := _handed_on(make, error, passed)) is None:
                raise
            raise UserCodeError(
                f"{description} failed: {error}. It has the parameter **{_rest(make)}, so it gets {', '.join(passed)}, and "
                f"hands on {handed_on}: write {handed_on} as a parameter of its own, and hand on the others"
            ) from error
        check_network(network, f"{description} returned")
        make_whole(network, example, description)
    return network


def make_whole(network: nn.Module, example: Inputs, description: str) -> None:
    """Materialize the lazy layers of a network in place, by running it on an example of its inputs.

    Weights are drawn from torch's random numbers, in the order in which layers run. Running statistics are not updated.

    Raises UserCodeError, which begins with `description`, if a lazy layer does not run, or the network fails.
    """
    if not _lazy_layers(network):
        return
    known = {name: buffer.clone() for name, buffer in network.named_buffers() if not is_lazy(buffer)}
    inputs = of_batch(example, LEAST_BATCH)
    shapes = shapes_in_words(inputs)
    with torch.no_grad(), user_code(f"{description}, run on {shapes} to find the sizes of its lazy layers,"):
        with evaluation_mode(network):
            call_network(network, inputs)
        if _lazy_layers(network):  # such as those of a head that exists in training only
            modes = {module: module.training for module in network.modules()}
            call_network(network.train(), inputs)
            for module, mode in modes.items():
                module.training = mode
            for name, buffer in network.named_buffers():
                if name in known:
                    buffer.copy_(known[name])
            for module in network.modules():
                reset = getattr(module, "reset_running_stats", None)
                if reset is not None and _buffers_of(network, module) - known.keys():
                    reset()
    if lazy := _lazy_layers(network):
        raise UserCodeError(
            f"{description} has lazy layers that do not run on {shapes}, so their sizes are not known: "
            f"{', '.join(lazy[:5])}; give them sizes, or leave them out"
        )


def _lazy_layers(network: nn.Module) -> list[str]:
    return [
        name
        for name, module in network.named_modules()
        if any(map(is_lazy, (*module.parameters(recurse=False), *module.buffers(recurse=False))))
    ]


def _buffers_of(network: nn.Module, module: nn.Module) -> set[str]:
    """Return the names of a module's own buffers in the network."""
    own = {id(buffer) for buffer in module.buffers(recurse=False)}
    return {name for name, buffer in network.named_buffers() if id(buffer) in own}


def arguments_taken(make: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `arguments` that a function takes; a width other than 1 in any case, so that it is not silently ignored.

    Numbers of classes and channels may be ignored: a network may have fixed ones, and whether they fit the data shows in the
    first batch. A function with `**rest` gets all arguments but a width of 1, which most functions that get `rest` do not take.
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # no function, or one written in C
        return dict(arguments)
    names = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
    names |= arguments.keys() - {WIDTH} if len(names) < len(parameters) else set()
    return {name: value for name, value in arguments.items() if name in names or (name == WIDTH and value != 1)}


def call(make: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function with those arguments that it takes, and return its result.

    The argument `seed` seeds all random numbers during the call, so that equal arguments make equal weights.
    """
    with unchanged_process(arguments.get(SEED)):
        return make(**arguments_taken(make, arguments))


def _rest(make: Callable[..., Any]) -> str | None:
    """Return the name of a function's parameter for further keyword arguments (`**`); None if it has none."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return None
    return next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)


def _handed_on(make: Callable[..., Any], error: TypeError, arguments: Mapping[str, Any]) -> str | None:
    """Return the name of an argument that a function passed on by `**rest` to a function that refuses it; None otherwise."""
    if _rest(make) is None or "unexpected keyword argument" not in str(error):
        return None
    return next((name for name in arguments if f"'{name}'" in str(error)), None)
