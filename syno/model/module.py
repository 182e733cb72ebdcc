"""Operators as `nn.Module`: the class that executing the generated source makes, with the operator as an attribute.

Pickles and state dicts contain the operator's text; loading weights of another operator is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from syno.base.errors import GraphError, ShapeError
from syno.ir.graph import PGraph
from syno.ir.rewriting import for_wide_pictures
from syno.ir.text import parse, parse_stored
from syno.lower.plan import Plan
from syno.lower.pytorch.source import constructor_sizes, load_class, to_source
from syno.model.prepared_weights import PreparedWeights

NOMINAL_LENGTH = 32  # value in plans of variables that are free at run time: a usual batch size


class OperatorModule(PreparedWeights):
    """Base of all modules that `build` makes.

    Attributes:
        graph: the operator.
        source: the Python source of the module, which works without Syno.
        sizes: the values of the operator's variables with which it was constructed.
    """

    graph: PGraph
    source: str
    mode: str
    sizes: dict[str, int]

    @property
    def is_channels_last(self) -> bool:
        """Whether the module converts pictures to channels-last format on a CPU; its output then has this format, too."""
        return "torch.channels_last" in self.source

    @property
    def is_channels_first_on_gpus(self) -> bool:
        """Whether the module computes in channels-first format on a GPU, to which it converts channels-last input."""
        return "is_cuda" in self.source

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (str(self.graph), self.source, self.mode, self.sizes), self._state_without_kept()

    def extra_repr(self) -> str:
        """Return the operator's name, its sizes, the mode, and the operator's id, on one line.

        The id identifies the operator: a training checkpoint is accepted only by a network with the same repr.
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
        values: a value for each variable that has no default. A variable may be left out if it is only the size of axes that
            pass unchanged from the input to the output, such as the batch: the module then takes any length.
        mode: "fused": with PyTorch's convolutions and matrix products; or "literal": one statement per primitive.
        plan: the order of contractions; None: the one with the fewest FLOPs.
        seed: seed of the initial weights; None: the global random state.
        init: "fan_in" keeps the variance of the input; "paper" is the published system's truncated normal of 0.1.
        device, dtype: device and dtype of the weights.

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
    """Return whether two operators are equal, or differ only in having a variable for the width."""
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
