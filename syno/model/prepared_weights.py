"""Inference: what depends on weights alone is computed once."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from syno.model.stand_ins import InPlace

Model = TypeVar("Model", bound=nn.Module)
State = tuple[int, list[tuple[int, int]]]  # the steps of optimizers, and each weight's place in memory and count of changes


class _OptimizerSteps:
    """The number of steps that optimizers have taken: fused ones change weights without counting it at the weight."""

    taken = 0
    hook: Any = None

    @classmethod
    def count(cls) -> None:
        if cls.hook is None:
            cls.hook = register_optimizer_step_post_hook(cls._step)

    @classmethod
    def _step(cls, *_: Any) -> None:
        cls.taken += 1


class PreparedWeights(InPlace):
    """Base of modules with a cache of values computed from weights alone, valid while the weights stay the same."""

    _keeps = False
    _kept: tuple[State, list[torch.Tensor], Any] | None = None  # with aliases of the weights, whose memory stays in use by that

    def prepared_weights(self) -> Any:
        """Return the tensors that `forward` computes from weights alone: those kept, if the weights have not changed since."""
        weight = next(iter(self._parameters.values()))
        if not self._keeps or torch.compiler.is_compiling() or torch.is_grad_enabled():
            return super().prepared_weights()
        if torch.is_autocast_enabled(weight.device.type) or any(one.is_inference() for one in self._parameters.values()):
            return super().prepared_weights()  # of another number format, or weights that count no changes
        try:
            state = _OptimizerSteps.taken, [(one.data_ptr(), one._version) for one in self._parameters.values()]
        except RuntimeError:  # weights without memory, as in torch.func
            return super().prepared_weights()
        if self._kept is None or self._kept[0] != state:
            aliases = [one.detach() for one in self._parameters.values()]
            self._kept = state, aliases, super().prepared_weights()
        return self._kept[2]

    def keep_prepared_weights(self, keep: bool) -> None:
        """Begin or end keeping what `forward` computes from weights alone."""
        self._keeps, self._kept = keep, None

    def train(self, mode: bool = True) -> PreparedWeights:
        """Set the mode. Training mode drops the cache of values computed from weights."""
        if mode:
            self.keep_prepared_weights(False)
        super().train(mode)
        return self

    def _apply(self, *args: Any, **options: Any) -> Any:
        self._kept = None  # the weights move, or get another number format
        return super()._apply(*args, **options)

    def _state_without_kept(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}


def prepare_for_inference(model: Model) -> Model:
    """Put a model in evaluation mode, and let its operators compute what depends on weights alone once. Return the model.

    The operators keep it after the first call under `torch.no_grad()` or `torch.inference_mode()`. They compute it again after
    a weight has changed: by an optimizer, `load_state_dict`, `to`, or any operation on the weight itself. PyTorch does not
    count changes through `weight.data`, such as `weight.data.mul_(2)`, or a NumPy array of the same memory; call this function
    again after those. `model.train()` ends it. Calls that need gradients, and code of `torch.compile` and `torch.export`,
    compute it each time, as before.

    >>> import syno, torch
    >>> module = syno.build(syno.OPERATORS["operator_1"](), {"C_in": 64, "C_out": 64, "H": 8}, seed=0)
    >>> prepared = syno.prepare_for_inference(module)
    >>> with torch.no_grad():
    ...     tuple(prepared(torch.zeros(1, 64, 8, 8)).shape)
    (1, 64, 8, 8)
    """
    _OptimizerSteps.count()
    model.eval()
    for module in model.modules():
        if isinstance(module, PreparedWeights):
            module.keep_prepared_weights(True)
    return model
