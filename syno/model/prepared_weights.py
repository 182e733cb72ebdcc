"""Prepared weights: values that depend on weights alone are computed once for inference, and cached until a weight changes."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from syno.model.stand_ins import InPlace

Model = TypeVar("Model", bound=nn.Module)
State = tuple[int, list[tuple[int, int]]]  # number of optimizer steps; address and version counter of each weight


class _OptimizerSteps:
    """Counts the steps of all optimizers, since fused optimizers change weights without increasing their version counters."""

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
    _kept: tuple[State, list[torch.Tensor], Any] | None = None  # aliases of the weights keep their addresses from being reused

    def prepared_weights(self) -> Any:
        """Return the tensors that `forward` computes from weights alone, from the cache if no weight has changed."""
        weight = next(iter(self._parameters.values()))
        if not self._keeps or torch.compiler.is_compiling() or torch.is_grad_enabled():
            return super().prepared_weights()
        if torch.is_autocast_enabled(weight.device.type) or any(one.is_inference() for one in self._parameters.values()):
            return super().prepared_weights()  # autocast changes the dtype, and inference tensors have no version counter
        try:
            state = _OptimizerSteps.taken, [(one.data_ptr(), one._version) for one in self._parameters.values()]
        except RuntimeError:  # weights without memory, as in torch.func
            return super().prepared_weights()
        if self._kept is None or self._kept[0] != state:
            aliases = [one.detach() for one in self._parameters.values()]
            self._kept = state, aliases, super().prepared_weights()
        return self._kept[2]

    def keep_prepared_weights(self, keep: bool) -> None:
        """Switch the cache of `prepared_weights` on or off, and clear it."""
        self._keeps, self._kept = keep, None

    def train(self, mode: bool = True) -> PreparedWeights:
        """Set training or evaluation mode. Training mode drops the cache of values computed from weights."""
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
    """Put a model in evaluation mode, and let its operators cache tensors that depend on weights alone. Return the model.

    The cache is filled by the first call under `torch.no_grad()` or `torch.inference_mode()`, and computed again after a weight
    was changed by an optimizer, `load_state_dict`, `to`, or any operation on the weight itself. PyTorch does not notice changes
    through `weight.data`, such as `weight.data.mul_(2)`, or through a NumPy array of the same memory; call this function again
    after those. `model.train()` drops the cache. Calls with gradients, and code of `torch.compile` and `torch.export`, do not
    use it.

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
