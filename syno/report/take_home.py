"""An operator to take home: its PyTorch module as a file, which was compared with the operator's meaning before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from syno.algebra import Valuation
from syno.errors import WrongOutputError
from syno.files import write_whole
from syno.ir.graph import PGraph
from syno.ir.primitives import UNFOLD
from syno.lower.interpreter import interpret, shapes
from syno.lower.pytorch.source import load_class, to_source
from syno.space.agreement import tiny_valuations

TOLERANCE = 1e-9  # in double precision, as a share of the largest value


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
    unfolds = [operation for operation in operator.operations if operation.primitive is UNFOLD]
    windows = [(unfold.bottoms[0].size, unfold.bottoms[1].size) for unfold in unfolds]
    rows = tiny_valuations(operator.sizes, windows)
    error = max(_error(operator, source, row, seed) for seed, row in enumerate(rows))
    if not error <= TOLERANCE:
        raise WrongOutputError(
            f"the module of {operator.name} differs from its meaning by {error:.2g} of the largest value, where {TOLERANCE:g} "
            "is allowed; this is a mistake in Syno: please report the operator's text"
        )
    write_whole(file, source)
    return f"equal to the interpreter at {len(rows)} sets of sizes in double precision: largest relative difference {error:.1g}"


def _error(operator: PGraph, source: str, values: Valuation, seed: int) -> float:
    """How far the module is from the interpreter, as a share of the largest value."""
    import torch

    random = np.random.default_rng(seed)
    input_shape, weight_shapes, _ = shapes(operator, values)
    data, *weights = (random.normal(size=shape) for shape in (input_shape, *weight_shapes))
    sizes = {name: value for name, value in values.items() if name not in operator.runtime_variables}
    module = load_class(source, operator)(**sizes).double()
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
        found = module(torch.from_numpy(data)).numpy()
    wanted = interpret(operator, values, data, *weights)
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), np.finfo(np.float64).tiny))
