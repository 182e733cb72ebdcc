"""An operator as the source of a PyTorch module, which needs nothing of Syno."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from syno.algebra import Valuation
from syno.files import write_whole
from syno.ir.graph import PGraph
from syno.lower.pytorch.source import load_class, to_source
from syno.report.take_home.meaning import Array, equal_to_meaning


def take_home(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write the operator's module to a file that imports torch and nothing of Syno; returns how it was checked.

    Args:
        operator: the operator.
        file: where the source goes.
        values: sizes to choose the order of work for; the module works with all others too.

    Raises:
        WrongOutputError: the module does not compute what the interpreter does; nothing is written.
        LoweringError: the operator cannot be lowered.
        ValuationError, SizeError: a value is missing or does not divide.
    """
    source = to_source(operator, None if values is None else operator.valuation(values))
    how = equal_to_meaning(operator, "the module", lambda row, tensors: _computed(operator, source, row, tensors))
    write_whole(file, source)
    return how


def _computed(operator: PGraph, source: str, values: Valuation, tensors: list[Array]) -> Array:
    """The module's output for input and weights in double precision."""
    import torch

    data, *weights = tensors
    sizes = {name: value for name, value in values.items() if name not in operator.runtime_variables}
    module = load_class(source, operator)(**sizes).double()
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
        output: Array = module(torch.from_numpy(data)).numpy()
    return output
