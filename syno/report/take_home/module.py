"""An operator as the source of a PyTorch module, which needs nothing of Syno."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from syno.algebra import Valuation
from syno.base.files import write_whole
from syno.ir.graph import PGraph
from syno.lower.pytorch.source import constructor_sizes, load_class, to_source
from syno.report.take_home.meaning import Array, check_comparable, equal_to_meaning, with_nominal_lengths


def take_home(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write the operator's module to a file that imports torch and nothing of Syno; returns how it was checked.

    Args:
        operator: the operator.
        file: where the source goes.
        values: sizes to choose the order of work for; the module works with all others too. Those that may have any value, such
            as a batch size, may be left out.

    Raises:
        WrongOutputError: the module does not compute what the interpreter does; nothing is written.
        LoweringError: the operator cannot be lowered.
        ValuationError, SizeError: a value is missing or does not divide; or the operator is too large to be compared.
    """
    check_comparable(operator)
    source = to_source(operator, None if values is None else with_nominal_lengths(operator, values))
    how = equal_to_meaning(operator, "the module", lambda row, tensors: _computed(operator, source, row, tensors))
    write_whole(file, source)
    return how


def _computed(operator: PGraph, source: str, values: Valuation, tensors: list[Array]) -> Array:
    """The module's output for input and weights in double precision."""
    import torch

    data, *weights = tensors
    module = load_class(source, operator)(**constructor_sizes(operator, values)).double()
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
        output: Array = module(torch.from_numpy(data)).numpy()
    return output
