"""Inference: what depends on weights alone is computed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from syno.base.errors import GraphError, ShapeError
from syno.ir.graph import PGraph
from syno.ir.rewriting import for_wide_pictures
from syno.ir.text import parse, parse_stored
from syno.lower.plan import Plan
from syno.lower.pytorch.source import constructor_sizes, load_class, to_source
from syno.model.proof import InPlace

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
    """Base of modules that can keep what they compute from weights alone, as long as the weights stay the same."""

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
        """Set the mode. The training mode ends keeping what is computed from weights."""
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


# ---- operators as modules --------------------------------------------------------------------------------------------

# An operator as an `nn.Module`: its generated source, executed, with the operator itself.
#
# Its pickle and the check when weights are loaded contain the operator's text, its repr the operator's id.

NOMINAL_LENGTH = 32  # for axes of any length, where a plan needs a number: a usual batch size


class OperatorModule(PreparedWeights):
    """Base of all modules that `build` makes.

    Attributes:
        graph: the operator.
        source: the Python source of the module, which works without Syno.
        sizes: the values it was constructed with.
    """

    graph: PGraph
    source: str
    mode: str
    sizes: dict[str, int]

    @property
    def is_channels_last(self) -> bool:
        """Whether the module brings pictures into channels-last format on a CPU, in which its output is, too."""
        return "torch.channels_last" in self.source

    @property
    def is_channels_first_on_gpus(self) -> bool:
        """Whether it computes on channels-first data on a GPU, for which channels-last data is converted."""
        return "is_cuda" in self.source

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (str(self.graph), self.source, self.mode, self.sizes), self._state_without_kept()

    def extra_repr(self) -> str:
        """Return the operator's name, its sizes, the mode, and the operator's id, on one line.

        The id stands for the whole operator: a checkpoint of a training belongs to a network with the same repr.
        """
        sizes = "".join(f", {name}={value}" for name, value in self.sizes.items())
        return f"{self.graph.name}{sizes}, mode={self.mode}, id={self.graph.id}"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:  # metadata stands beside the tensors, so that a state_dict holds tensors only
            metadata.setdefault(prefix[:-1], {})["operator"] = str(self.graph)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Mapping[str, Any], *args: Any) -> None:
        saved = local_metadata.get("operator")
        if saved is not None and not _have_same_weights(parse_stored(saved), self.graph):
            raise ShapeError(
                f"the weights{f' for {prefix[:-1]}' if prefix else ''} are those of another operator: "
                f"saved is {parse_stored(saved)!r}, this module is {self.graph!r}"
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)


def build(
    graph: PGraph,
    values: Mapping[str, int] | None = None,
    *,
    mode: str = "fused",
    plan: Plan | None = None,
    seed: int | None = None,
    init: str = "fan_in",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> OperatorModule:
    """Return the operator as a module.

    >>> import syno, torch
    >>> module = syno.build(syno.OPERATORS["conv2d"](), {"C_in": 3, "C_out": 8}, seed=0)
    >>> module
    Conv2d(conv2d, k=3, C_in=3, C_out=8, mode=fused, id=962045187d9fdba14d3f4bcc9885d5df)
    >>> module(torch.zeros(2, 3, 16, 16)).shape  # any batch, any height
    torch.Size([2, 8, 16, 16])

    Args:
        graph: the operator.
        values: a value for each variable that has no default. Variables may be left out if they are only sizes of axes that go
            unchanged from the input to the output, such as a batch size: the module takes any value for them.
        mode: "fused" or "literal".
        plan: an order of work to use instead of the one with the fewest FLOPs.
        seed: of the weights; None: of the global random state.
        init: "fan_in" keeps the variance of the input; "paper" is the published system's truncated normal of 0.1.
        device, dtype: of the weights.

    Raises:
        ValuationError, SizeError: a value is missing or does not divide.
        LoweringError: the operator cannot be lowered.
    """
    given = dict(values or {})
    missing = graph.runtime_variables - given.keys() - graph.variables.defaults.keys()
    valuation = graph.valuation({**given, **dict.fromkeys(missing, NOMINAL_LENGTH)})
    source = to_source(graph, valuation, mode=mode, plan=plan)
    sizes = {name: value for name, value in valuation.items() if name not in graph.runtime_variables}
    options = {"seed": seed, "init": init, "device": device, "dtype": dtype} if graph.weights else {}
    return _class(graph, source, mode, sizes)(**constructor_sizes(graph, sizes), **options)


def _have_same_weights(saved: PGraph, own: PGraph) -> bool:
    """Return whether two operators are the same one, perhaps of square pictures and of others."""
    if saved.id == own.id:
        return True
    try:
        return for_wide_pictures(saved).id == for_wide_pictures(own).id
    except GraphError:
        return False


def _class(graph: PGraph, source: str, mode: str, sizes: dict[str, int]) -> type[OperatorModule]:
    """Return the generated class, with `OperatorModule` among its bases."""
    generated = load_class(source, graph)
    attributes = {"graph": graph, "source": source, "mode": mode, "sizes": sizes}
    return type(generated.__name__, (OperatorModule, generated), attributes)


def _rebuild(text: str, source: str, mode: str, sizes: dict[str, int]) -> OperatorModule:
    kind = _class(parse(text), source, mode, sizes)
    return kind.__new__(kind)
