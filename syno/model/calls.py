"""Interception of a network's calls by foreign code, such as a user's loss: to record them, copy inputs, or change the mode.

Two habits of networks make this necessary: some change their inputs in place, and some return other things in evaluation mode
than in training mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, update_wrapper
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree

from syno.model.extraction import evaluation_mode
from syno.model.inputs import copied, first_inputs
from syno.model.outputs import in_plain_containers

Around: TypeAlias = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
Call: TypeAlias = Callable[[nn.Module], Any]  # calls a network with copies of recorded inputs, and returns its output
Mode: TypeAlias = Callable[[nn.Module], Any]  # returns a context in which a network is in some mode

_AROUND: dict[int, tuple[type, Around]] = {}  # by the id of a network: its own class, and the wrapper of its calls


class _Intercepted:
    """First base of the temporary class of a network whose calls are intercepted (`calls_through`).

    Forward hooks do not serve: they see the arguments only after the network's own `__call__` and earlier hooks.
    """

    def __init_subclass__(cls, **_: Any) -> None:
        """Do nothing, so that a registry of subclasses in the network's base does not list this temporary class."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _as_before(self) as around:
            return around(self, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Reduce to the wrapped network, so that a copy or a pickle has the network's own class."""
        with _as_before(self):
            function, *parts = self.__reduce_ex__(protocol)
        return (
            _remake if function.__name__ == "__newobj__" else function
        ), *parts  # which pickle has for an object of its class


def _remake(own: Any, *args: Any) -> Any:
    return own.__new__(own, *args)


@lru_cache(maxsize=64)
def _intercepted_class(own: Any) -> Any:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _as_before(self) as around:
            return around(self.forward, args, kwargs)

    named = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    return type(own)(own.__name__, (_Intercepted, own), {**named, "forward": update_wrapper(forward, own.forward)})


@contextmanager
def _as_before(network: Any) -> Iterator[Around]:
    """Give a network its own class back for the block; yield the wrapper of its calls (`around` of `calls_through`)."""
    kind = type(network)
    own, around = _AROUND.get(id(network), (kind.__bases__[1], _plainly))  # of a copy that was made meanwhile
    object.__setattr__(network, "__class__", own)
    try:
        yield around
    finally:
        if type(network) is own:
            object.__setattr__(network, "__class__", kind)


def _plainly(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return call(*args, **kwargs)


@contextmanager
def calls_through(network: nn.Module, around: Around) -> Iterator[None]:
    """Intercept each call of a network in the block by a wrapper. Nested blocks wrap each other.

    Args:
        network: called as `network(...)` or `network.forward(...)`. Calls of its submodules are not intercepted.
        around: the wrapper: `around(call, args, kwargs)` makes the call, and returns the result for the caller.
    """
    if isinstance(network, torch.jit.ScriptModule):  # its class cannot be exchanged; no layer of it is replaced
        yield
        return
    before = _AROUND.get(id(network))
    own = type(network) if before is None else before[0]
    through = around

    def first(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert before is not None
        return around(lambda *args, **kwargs: before[1](call, args, kwargs), args, kwargs)

    if before is not None:
        through = first
    _AROUND[id(network)] = own, through
    object.__setattr__(network, "__class__", _intercepted_class(own))
    try:
        yield
    finally:
        if before is not None:
            _AROUND[id(network)] = before
        else:
            del _AROUND[id(network)]
            if type(network) is _intercepted_class(own):
                object.__setattr__(network, "__class__", own)


def own_inputs(network: nn.Module) -> Any:
    """Return a context in which each call of a network gets copies of its input tensors.

    Lists and dicts are passed without copying, since a network may write results for its loss into them.
    """

    def call_with_copies(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(*_copied(args), **{name: _copied(value) for name, value in kwargs.items()})

    return calls_through(network, call_with_copies)


def _copied(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, value, is_leaf=lambda part: isinstance(part, list | dict))


def calls_of(network: nn.Module, function: Callable[[nn.Module], object]) -> list[Call]:
    """Record the calls of a network that a function makes, such as a loss; each can be repeated with any network.

    Args:
        network: its buffers and modes, and torch's random state, are restored.
        function: calls the network.
    """
    calls: list[Call] = []

    def note(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append(call_with(copied(args), copied(kwargs)))
        return call(*args, **kwargs)

    with left_as_it_was(network), own_inputs(network), calls_through(network, note):
        function(network)
    return calls


def call_with(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return a function of a network that calls it with copies of these arguments."""
    return lambda network: network(*copied(args), **copied(kwargs))


def changes_inputs(network: nn.Module, function: Callable[[nn.Module], object]) -> bool:
    """Return whether a network changes an input tensor in place in one of the calls that `function` makes.

    The function is called once. The network's buffers and modes, and torch's random state, are restored.
    """
    changed = False

    def look(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal changed
        inputs = copied((args, kwargs))
        before = [(tensor, tensor._version) for tensor in first_inputs(inputs)]
        output = call(*inputs[0], **inputs[1])
        pairs = zip(before, first_inputs((args, kwargs)), strict=True)
        changed |= any(tensor._version != version or not _are_same(tensor, wanted) for (tensor, version), wanted in pairs)
        return output

    with left_as_it_was(network), calls_through(network, look):
        function(network)
    return changed


class WithOwnInputs(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Wraps a network that changes its inputs in place, and calls it with copies. Latencies include the time of copying."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the network's output for copies of these tensors."""
        return self.network(*[tensor.clone() for tensor in tensors])


def with_own_inputs(network: nn.Module, *tensors: torch.Tensor) -> nn.Module:
    """Return the network if it leaves its inputs unchanged, else the network in `WithOwnInputs`.

    To find out, it is called once with copies of these tensors.
    """
    with torch.no_grad():
        return WithOwnInputs(network) if changes_inputs(network, lambda network: network(*tensors)) else network


def _are_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.is_meta or first.layout != torch.strided:
        return True
    return first.shape == second.shape and bool(((first == second) | (first != first)).all())


@contextmanager
def left_as_it_was(network: nn.Module) -> Iterator[None]:
    """Restore a network's buffers and modes, and torch's random state, at the end of the block."""
    kept = [(buffer, buffer.detach().clone()) for buffer in network.buffers() if not buffer.is_meta]
    modes = [(module, module.training) for module in network.modules()]
    devices = {tensor.device for tensor in network.parameters() if tensor.is_cuda}
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
        for module, training in modes:
            module.training = training


CLOSE = 1e-3  # of the largest value: kernels of the two modes may round in another order
SIMILAR = 0.01  # of the mean square: the difference of a random output's mean that says nothing of its meaning
DRAWS = 8  # outputs with random numbers, of which the mean is compared


@contextmanager
def steady_training_mode(network: nn.Module) -> Iterator[None]:
    """Put a network in training mode in the block, but its dropout and normalizations in evaluation mode.

    The output then has the form that a loss for training expects, and each sample's output is independent of the others.
    """
    modes = [(module, module.training) for module in network.modules()]
    for module, _ in modes:
        module.training = not _is_noise(module)
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _is_noise(module: nn.Module) -> bool:
    """Return whether training mode makes a module random, or lets it depend on the other samples of a batch."""
    is_own = type(module).__module__.startswith("torch.nn.")
    return is_own or isinstance(module, _NormBase | _DropoutNd) or hasattr(module, "running_mean")


def mode_of_loss(network: nn.Module, call: Call) -> Mode:
    """Return the mode in which a loss that was written for training mode can evaluate the network.

    That is evaluation mode if the network's output has the same form (number of tensors, shapes) and meaning as in training.
    Otherwise it is `steady_training_mode`: for a network with a softmax in evaluation only, or with extra heads in training.

    Args:
        network: its buffers, modes and torch's random state are restored.
        call: one call of the network.
    """
    with torch.no_grad(), left_as_it_was(network):
        try:
            with evaluation_mode(network):
                tested = _Answer(call(network))
        except Exception:  # it takes such inputs in training mode only
            return steady_training_mode
        with steady_training_mode(network):
            trained = _Answer(call(network))
            if trained.form != tested.form:
                return steady_training_mode
            if trained.is_close_to(tested):
                return evaluation_mode
            draws = [trained, *(_Answer(call(network)) for _ in range(DRAWS - 1))]
    return evaluation_mode if _differ_by_chance(draws, tested) else steady_training_mode


def as_in_training(network: nn.Module) -> Any:
    """Return a context in which each call runs in the mode that `mode_of_loss` chooses at the first call."""
    mode: Mode | None = None

    def answer(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal mode
        if mode is None:
            mode = mode_of_loss(getattr(network, "_orig_mod", network), call_with(args, kwargs))  # not to compile it again
        with mode(network):
            return call(*args, **kwargs)

    return calls_through(network, answer)


class _Answer:
    """The output of a network: its form (nesting and shapes of tensors), and its floating-point tensors in float64."""

    def __init__(self, output: Any) -> None:
        leaves, structure = pytree.tree_flatten(in_plain_containers(output))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.form = structure, [tuple(tensor.shape) for tensor in tensors]
        self.numbers = [tensor.detach().double() for tensor in tensors if tensor.is_floating_point()]

    def is_close_to(self, other: _Answer) -> bool:
        return all(
            torch.allclose(own, wanted, rtol=CLOSE, atol=CLOSE * float(wanted.abs().nan_to_num(0, 0, 0).max()), equal_nan=True)
            for own, wanted in zip(self.numbers, other.numbers, strict=True)
            if wanted.numel()
        )


def _differ_by_chance(draws: list[_Answer], tested: _Answer) -> bool:
    """Return whether the mean of random outputs `draws`, such as those with dropout, is the deterministic output `tested`."""
    if any(draw.form != tested.form for draw in draws):
        return False
    for place, wanted in enumerate(tested.numbers):
        drawn = torch.stack([draw.numbers[place] for draw in draws]).nan_to_num(0, 0, 0)
        expected = wanted.nan_to_num(0, 0, 0)
        distance = (drawn.mean(0) - expected).square().mean()
        # The mean of 8 draws differs by an eighth of the variance by chance; dropout before a nonlinearity adds a bias.
        if not distance <= max(drawn.var(0).mean(), SIMILAR * expected.square().mean()):
            return False
    return True
